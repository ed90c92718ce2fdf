"""The language of scenarios: what a script may do, and how it is written down what it saw.

A script is an async function that gets a :class:`World`. Each command and each observation adds a line to
``world.seen``. Whatever may differ between two correct runs is left out of the lines: times, the order among
partitions, how records were batched, epochs, and the topics' real names.

Partitions are written ``"t/0"``.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pixy.wire.types import TopicPartition

if TYPE_CHECKING:
    from tests.model.member import Member

PATIENCE = 6.0
"""Seconds that an observation waits; then it says that no more came."""


class Refused(Exception):
    """A call was refused; the text is the name of Kafka's or librdkafka's error."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record that a client was given."""

    partition: str
    offset: int


@dataclass(frozen=True, slots=True)
class Failure:
    """An error event that a client was given, with its partition if it concerns one."""

    partition: str
    name: str


def parse(partition: str) -> TopicPartition:
    """Parse ``"t/0"``."""
    topic, _, number = partition.rpartition("/")
    return topic, int(number)


def written(partition: TopicPartition) -> str:
    """Write a partition as ``"t/0"``."""
    return f"{partition[0]}/{partition[1]}"


def ranges(offsets: Iterable[int]) -> str:
    """Write offsets as ``"0-4 6"``, in the order in which they came."""
    runs: list[list[int]] = []
    for offset in offsets:
        if runs and offset == runs[-1][1] + 1:
            runs[-1][1] = offset
        else:
            runs.append([offset, offset])
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) or "nothing"


class World(ABC):
    """A Kafka, its producers and its consumers."""

    patience = PATIENCE
    """Seconds that an observation waits; longer where brokers fail, as a busy machine takes its time then."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def see(self, line: str) -> None:
        """Write down what was seen."""
        self.seen.append(line)

    @contextlib.contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Write down a command, and the error if it is refused."""
        try:
            yield
        except Refused as error:
            self.see(f"{what}: {error}")
        else:
            self.see(what)

    @abstractmethod
    async def topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """Create a topic."""

    @abstractmethod
    async def topic_on_coordinator(self, name: str, group: str = "g") -> None:
        """Create a topic of one partition without other replicas than on the broker that coordinates a group."""

    @abstractmethod
    async def coordinator_dies(self, group: str = "g") -> None:
        """Kill the broker that coordinates a group, and wait until its lone partitions have no leader."""

    @abstractmethod
    async def broker_returns(self) -> None:
        """Start the broker again, and wait until all partitions have leaders."""

    @abstractmethod
    async def delete_topic(self, name: str) -> None:
        """Delete a topic, and wait until it has gone."""

    @abstractmethod
    async def grow(self, name: str, partitions: int) -> None:
        """Add partitions, up to this number."""

    @abstractmethod
    async def produce(self, partition: str, count: int = 1) -> None:
        """Write records and wait for their acknowledgement."""

    @abstractmethod
    async def delete_records(self, partition: str, before: int) -> None:
        """Delete the records below an offset, as retention does."""

    @abstractmethod
    async def begin(self, transaction: str) -> None:
        """Begin a transaction; its name is that of its producer."""

    @abstractmethod
    async def produce_in(self, transaction: str, partition: str, count: int = 1) -> None:
        """Write records as a part of a transaction."""

    @abstractmethod
    async def end(self, transaction: str, *, commit: bool) -> None:
        """Commit or abort a transaction, and wait until its markers are written."""

    @abstractmethod
    def client(self, name: str, *, reset: str = "earliest", isolation: str = "read_committed") -> Client:
        """A consumer without a group."""

    @abstractmethod
    def member(self, name: str, group: str = "g", **conf: Any) -> Member:
        """A member of a group: a session as the engine uses it.

        Args:
            name: begins its lines.
            group: the group's name.
            conf: values for the section ``consumer`` of the configuration.
        """

    @abstractmethod
    async def sets_offset(self, partition: str, offset: int, group: str = "g") -> None:
        """Commit an offset for a group without members, as a tool does."""

    @abstractmethod
    async def expels(self, member: Member) -> None:
        """Let the coordinator remove a member, as it does when heartbeats do not come for a session timeout."""


class Client(ABC):
    """A consumer whose partitions the script assigns: librdkafka's own behaviour.

    Args:
        world: gets the lines.
        name: begins each line.
    """

    def __init__(self, world: World, name: str) -> None:
        self._world, self._name = world, name
        self._records: dict[str, list[int]] = defaultdict(list)
        self._failures: set[str] = set()

    # -- commands ---------------------------------------------------------------------------------

    async def assign(self, starts: Mapping[str, int]) -> None:
        """Replace the assignment; each partition begins at the given offset."""
        what = ", ".join(f"{partition}@{offset}" for partition, offset in starts.items())
        with self._doing(f"assigns {what or 'nothing'}"):
            self._assign(starts)

    async def add(self, starts: Mapping[str, int]) -> None:
        """Add partitions to the assignment."""
        with self._doing(
            "adds " + ", ".join(f"{partition}@{offset}" for partition, offset in starts.items())
        ):
            self._add(starts)

    async def remove(self, *partitions: str) -> None:
        """Remove partitions from the assignment."""
        with self._doing(f"removes {', '.join(partitions)}"):
            self._remove(partitions)

    async def pause(self, *partitions: str) -> None:
        """Pause partitions."""
        with self._doing(f"pauses {', '.join(partitions)}"):
            self._pause(partitions)

    async def resume(self, *partitions: str) -> None:
        """Resume partitions."""
        with self._doing(f"resumes {', '.join(partitions)}"):
            self._resume(partitions)

    async def seek(self, partition: str, offset: int) -> None:
        """Seek, once the partition is being fetched."""
        with self._doing(f"seeks {partition}@{offset}"):
            self._seek(partition, offset)

    # -- observations -----------------------------------------------------------------------------

    async def fetched(self, partition: str, upto: int) -> None:
        """Poll until the record at offset ``upto`` comes; see the partition's records since the last time."""
        found = self._records[partition]
        came = await self._until(lambda: bool(found) and found[-1] >= upto)
        self._see(f"fetched {partition}: {ranges(found)}{'' if came else ', and no more'}")
        found.clear()

    async def takes(self, partition: str, count: int) -> None:
        """Poll until so many records came; librdkafka's queue may hold the next ones."""
        found = self._records[partition]
        came = await self._until(lambda: len(found) >= count)
        self._see(f"took {partition}: {ranges(found)}{'' if came else ', and no more'}")
        found.clear()

    async def failed(self, name: str) -> None:
        """Poll until this error event comes."""
        came = await self._until(lambda: any(each.startswith(name) for each in self._failures))
        self._see(f"failed: {', '.join(sorted(self._failures))}{'' if came else ', and no more'}")
        self._failures.clear()

    async def settles(self) -> None:
        """Poll until all that is there has come; see it."""
        await self._settle()
        for partition, found in sorted(self._records.items()):
            if found:
                self._see(f"fetched {partition}: {ranges(found)}")
                found.clear()
        for failure in sorted(self._failures):
            self._see(f"failed: {failure}")
        self._failures.clear()
        self._see("settled")

    async def position(self, *partitions: str) -> None:
        """See the offset that a commit without arguments would commit."""
        for partition in partitions:
            try:
                at: object = self._position(partition)
            except Refused as error:
                at = error
            self._see(f"position {partition}: {at}")

    async def bounds(self, *partitions: str) -> None:
        """See the first offset that can be read, and the offset after the last."""
        for partition in partitions:
            try:
                found: object = "{}-{}".format(*self._bounds(partition))
            except Refused as error:
                found = error
            self._see(f"bounds {partition}: {found}")

    # -- what an implementation does --------------------------------------------------------------

    @abstractmethod
    def _assign(self, starts: Mapping[str, int]) -> None: ...

    @abstractmethod
    def _add(self, starts: Mapping[str, int]) -> None: ...

    @abstractmethod
    def _remove(self, partitions: Iterable[str]) -> None: ...

    @abstractmethod
    def _pause(self, partitions: Iterable[str]) -> None: ...

    @abstractmethod
    def _resume(self, partitions: Iterable[str]) -> None: ...

    @abstractmethod
    def _seek(self, partition: str, offset: int) -> None: ...

    @abstractmethod
    def _position(self, partition: str) -> int | None: ...

    @abstractmethod
    def _bounds(self, partition: str) -> tuple[int, int]: ...

    @abstractmethod
    async def _poll(self) -> Record | Failure | None:
        """The next event; None if none came in a short while."""

    @abstractmethod
    async def _settle(self) -> None:
        """Poll, and :meth:`_take` what comes, until nothing is left to come."""

    def _take(self, event: Record | Failure) -> None:
        if isinstance(event, Record):
            self._records[event.partition].append(event.offset)
        else:
            self._failures.add(f"{event.name} {event.partition}".strip())

    async def _until(self, check: Callable[[], bool]) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._world.patience
        while not check():
            if loop.time() > deadline:
                return False
            event = await self._poll()
            if event is not None:
                self._take(event)
        return True

    def _see(self, line: str) -> None:
        self._world.see(f"{self._name} {line}")

    def _doing(self, what: str) -> contextlib.AbstractContextManager[None]:
        return self._world.doing(f"{self._name} {what}")


Script = Callable[[Any], Awaitable[None]]
"""An async function of a world."""
