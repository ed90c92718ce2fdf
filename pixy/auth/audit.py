"""The audit log: who did what, with which result, as JSON lines in a file.

A request never waits for it: records go to a bounded queue, and a thread writes them. What finds the queue full, or cannot be
written, is dropped and counted, and the next line that is written says how many. Strangers cannot fill the disk either:
of records about callers who are not recognized, or over their limits, a hundred a second are kept.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from pixy.auth.buckets import TokenBucket
from pixy.auth.principal import Caller
from pixy.auth.rules import MAX_NAME, Access
from pixy.config.security import Audit
from pixy.errors import Limited, PixyError, Unauthenticated

logger = logging.getLogger("pixy.auth")

REFUSALS: Final = 100.0
"""Records a second about callers who are not recognized, or over their limits."""
_FILE_MODE: Final = 0o600
_STOP: Final = None
_FLUSH_TIME: Final = 5.0
"""Seconds that a stop waits for the last lines."""


class AuditLog:
    """Writes records of what callers do.

    Args:
        config: the section ``audit``, with a path.
        wall: seconds since 1970.
        clock: seconds.
        chance: a number from 0 to 1, another one each time.
    """

    def __init__(
        self,
        config: Audit,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._path = config.path
        self._verbs = frozenset(config.verbs)
        self._all = "*" in self._verbs
        self._sample = config.sample
        self._wall = wall
        self._clock = clock
        self._chance = chance
        self._queue: queue.Queue[dict[str, Any] | None] = queue.Queue(config.max_queued)
        self._refusals = TokenBucket(REFUSALS, REFUSALS, clock())
        self._dropped = 0  # counted by callers of this object
        self._lost = 0  # counted by the thread
        self._reported = 0  # by the thread, of both
        self._reopen = False
        self._failing = False
        self._file = -1
        self._thread = threading.Thread(target=self._write_all, name="audit-log", daemon=True)

    def start(self) -> None:
        """Open the file and begin to write. Raises OSError."""
        self._file = self._open()
        self._thread.start()

    def stop(self) -> None:
        """Write what waits, and close the file. Waits a few seconds at most."""
        if not self._thread.is_alive():
            return
        try:
            self._queue.put(_STOP, timeout=_FLUSH_TIME)
        except queue.Full:
            return
        self._thread.join(_FLUSH_TIME)

    def reopen(self) -> None:
        """Go on in a new file of the same name: the earlier one was renamed."""
        self._reopen = True

    # -- records ----------------------------------------------------------------------------------

    def wants(self, verb: str) -> bool:
        """Whether an operation of this verb is recorded; draws lots for those that are sampled."""
        return self._all or verb in self._verbs or (self._sample > 0 and self._chance() < self._sample)

    def done(self, caller: Caller, access: Access, seconds: float, error: BaseException | None) -> None:
        """Record an operation that is over.

        Args:
            caller: who.
            access: what.
            seconds: how long it took.
            error: why it failed; None: it did not.
        """
        result = "ok" if error is None else type(error).__name__
        self._offer(result, caller, access, ms=round(seconds * 1000, 3), error=_text(error))

    def refused(self, caller: Caller, access: Access, error: PixyError) -> None:
        """Record an operation that was not permitted."""
        if isinstance(error, Limited) and not self._keeps_refusal():
            return
        self._offer(type(error).__name__, caller, access, error=_text(error))

    def unauthenticated(self, address: str, trace: str, error: Unauthenticated) -> None:
        """Record a caller who was not recognized."""
        if self._keeps_refusal():
            self._put(
                {
                    "result": "Unauthenticated",
                    "address": address,
                    "trace": trace[:MAX_NAME],
                    "reason": error.reason,
                    "error": str(error),
                }
            )

    def _keeps_refusal(self) -> bool:
        now = self._clock()
        if self._refusals.wait(1, now):
            self._dropped += 1
            return False
        self._refusals.spend(1, now)
        return True

    def _offer(self, result: str, caller: Caller, access: Access, **more: Any) -> None:
        self._put(
            {
                "result": result,
                "principal": caller.principal.name,
                "verb": access.verb,
                "cluster": access.cluster[:MAX_NAME],
                "topic": access.topic and access.topic[:MAX_NAME],
                "group": access.group and access.group[:MAX_NAME],
                "address": caller.address,
                "trace": caller.trace[:MAX_NAME],
                **more,
            }
        )

    def _put(self, record: dict[str, Any]) -> None:
        record["time"] = self._wall()
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            self._dropped += 1

    # -- the thread -------------------------------------------------------------------------------

    def _write_all(self) -> None:
        while (record := self._queue.get()) is not _STOP:
            self._write_one(_line(record), 1)
        self._write_one(b"", 0)
        os.close(self._file)

    def _write_one(self, line: bytes, count: int) -> None:
        dropped = self._dropped + self._lost
        news = dropped - self._reported
        if news:
            line = _line({"result": "dropped", "count": news, "time": self._wall()}) + line
        if not line or self._write(line):
            self._reported = dropped
        else:
            self._lost += count

    def _write(self, data: bytes) -> bool:
        try:
            if self._reopen:
                self._reopen = False
                opened = self._open()
                os.close(self._file)
                self._file = opened
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            if not self._failing:
                logger.error("audit.path: %s: %s; records are dropped", self._path, error.strerror or error)
            self._failing = True
            return False
        self._failing = False
        return True

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)


def _text(error: BaseException | None) -> str | None:
    return None if error is None else str(error) or None


def _line(record: dict[str, Any]) -> bytes:
    moment = datetime.fromtimestamp(record.pop("time"), UTC)
    shown = {"time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")}
    shown |= {name: value for name, value in record.items() if value not in (None, "")}
    # JSON in ASCII: no text of a client can look like anything else in a terminal.
    return json.dumps(shown, separators=(",", ":")).encode() + b"\n"


__all__ = ["REFUSALS", "AuditLog"]
