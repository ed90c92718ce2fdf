"""Record what the clients and the kit do, as lines of JSON in one file per kind of event.

Times are seconds of the wall clock, which clients, daemons and brokers share here. ``t0`` is taken before
a request is sent, ``t1`` after its answer came.

| file | a line is |
|---|---|
| ``plan`` | the run: seed, topics, groups, timeouts |
| ``produced`` | answered: ``topic``, ``ids``, ``at`` (a pair of partition and offset each), ``key`` of a single message |
| ``unproduced`` | not answered with success: ``topic``, ``ids``, ``error``; they may be in Kafka all the same |
| | both with ``asked`` if they were for one partition |
| ``accepted`` | taken by an asynchronous request: ``topic``, ``d``, ``ids`` |
| ``delivered`` | ``group``, ``topic``, ``d`` (daemon), ``reader``, ``records``: partition, offset and id of each |
| ``acks`` | ``group``, ``topic``, ``d``, ``partition``, ``offset``, ``result`` (``ok``, ``sent``, ``unknown``, ``refused``) |
| ``polls`` | a request that brought nothing: ``result`` is ``empty``, ``refused`` or ``unknown`` |
| ``events`` | of readers, daemons and topics: ``what`` and what it concerns |
| ``faults`` | ``kind``, ``target``, ``daemon`` (0 for all), ``t0``, ``t1`` (healed), ``note`` |
| ``lives`` | a partition of a topic that is about to be deleted: as ``log``, with ``t``, when it began to be read |
| ``log``, ``commits``, ``groups``, ``final`` | the final picture: see :mod:`tests.chaos.kit.snapshot` |
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

_encode = msgspec.json.Encoder().encode


class Recorder:
    """Appends events to the files of one run.

    Args:
        folder: gets the files; made if it is missing.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._files: dict[str, BinaryIO] = {}
        self.produced = 0
        """Messages that were answered with success."""
        self.delivered = 0
        """Messages that clients received, duplicates included."""

    def write(self, kind: str, /, **event: Any) -> None:
        """Append one event.

        Args:
            kind: the file; see the table above.
            event: the fields of the line.
        """
        file = self._files.get(kind)
        if file is None:
            file = self._files[kind] = (self.folder / f"{kind}.jsonl").open("ab")
        file.write(_encode(event) + b"\n")
        if kind == "produced":
            self.produced += len(event["ids"])
        elif kind == "delivered":
            self.delivered += len(event["records"])

    def event(self, what: str, /, **event: Any) -> None:
        """Append to ``events``, with the time.

        Args:
            what: names the event.
            event: what it concerns.
        """
        self.write("events", t=time.time(), what=what, **event)

    def flush(self) -> None:
        """Hand everything to the operating system."""
        for file in self._files.values():
            file.flush()

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()
        self._files.clear()


def read(folder: Path, kind: str) -> Iterator[dict[str, Any]]:
    """Yield the events of one kind; none if there is no file.

    Args:
        folder: the records of a run.
        kind: the file; see the table above.
    """
    path = folder / f"{kind}.jsonl"
    if path.exists():
        decode = msgspec.json.Decoder().decode
        with path.open("rb") as file:
            for line in file:
                yield decode(line)


def starved_seconds() -> float:
    """Return the seconds since the machine's start in which a process waited for a processor; 0 if Linux does not say."""
    try:
        pressure = Path("/proc/pressure/cpu").read_text()
    except OSError:
        return 0.0
    return int(pressure.splitlines()[0].rpartition("total=")[2]) / 1e6


__all__ = ["Recorder", "read", "starved_seconds"]
