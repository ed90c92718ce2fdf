"""The part of the scenarios' language that is about sessions: members of a group, as the engine sees them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pixy.errors import KafkaError, PixyError
from pixy.membership import (
    Assigned,
    AssignedPartition,
    Commit,
    Committed,
    Event,
    Fetched,
    Lost,
    Revoked,
    Session,
    SessionFailed,
)
from tests.model.world import PATIENCE, parse, ranges

if TYPE_CHECKING:
    from tests.model.world import World


_TO_REPEAT = (
    "REBALANCE_IN_PROGRESS",
    "ILLEGAL_GENERATION",
    "NOT_COORDINATOR",
    "_TRANSPORT",
    "COORDINATOR_LOAD_IN_PROGRESS",
)


def named(error: PixyError | None) -> str:
    """The name of Kafka's error, or of our exception's class."""
    if error is None:
        return "ok"
    return error.name if isinstance(error, KafkaError) else type(error).__name__


class Member:
    """A member of a group: a session, and the events that it has posted.

    It gives credit for all that it fetches, as owners do whose clients keep up.

    Args:
        world: gets the lines.
        name: begins each line.
        real: the topic's name on the broker, by its name in the script.
    """

    session: Session

    def __init__(self, world: World, name: str, real: Callable[[str], str] = str) -> None:
        self.name = name
        self._world, self._real = world, real
        self._short: dict[str, str] = {}
        self.holds: dict[str, AssignedPartition] = {}
        """The partitions that are assigned now."""
        self._epochs: dict[str, int] = {}
        self._records: dict[str, list[int]] = defaultdict(list)
        self._ends: dict[str, int] = {}
        self._assigned: list[str] = []
        self._revoked: list[str] = []
        self._lost: list[str] = []
        self._committed: list[str] = []
        self._failed = ""
        self._news = asyncio.Event()
        self.revocation = Revoked(())
        """The last one, which a release answers."""

    # -- events -----------------------------------------------------------------------------------

    def post(self, event: Event) -> None:
        """Take an event of the session."""
        if isinstance(event, Assigned):
            for each in event.partitions:
                partition = f"{self._short[each.topic]}/{each.partition}"
                self.holds[partition] = each
                self._epochs[partition] = each.epoch
                self._assigned.append(partition)
        elif isinstance(event, Fetched):
            self._fetched(event)
        elif isinstance(event, Revoked | Lost):
            self.revocation = event if isinstance(event, Revoked) else self.revocation
            gone = sorted(f"{self._short[topic]}/{number}" for topic, number in event.partitions)
            (self._revoked if isinstance(event, Revoked) else self._lost).extend(gone)
            for partition in gone:
                self._epochs.pop(partition, None)
                if isinstance(event, Lost):
                    self._records[partition].clear()
        elif isinstance(event, Committed):
            failures = sorted({named(error) for error in event.partitions.values()})
            self._committed.append(" ".join([named(event.error), *failures]))
        elif isinstance(event, SessionFailed):
            self._failed = named(event.error)
        self._news.set()

    def _fetched(self, event: Fetched) -> None:
        for (topic, number), (epoch, records) in event.batches.items():
            partition = f"{self._short[topic]}/{number}"
            if self._epochs.get(partition) == epoch:
                self._records[partition] += [record.offset() for record in records]
                self.session.credit((topic, number), len(records), sum(map(len, records)))
        for (topic, number), (epoch, end) in event.ends.items():
            partition = f"{self._short[topic]}/{number}"
            if self._epochs.get(partition) == epoch:
                self._ends[partition] = end

    # -- commands ---------------------------------------------------------------------------------

    async def joins(self, **topics: int) -> None:
        """Subscribe to topics, each with the number of partitions that are known now."""
        self._short |= {self._real(topic): topic for topic in topics}
        self.session.subscribe({self._real(topic): known for topic, known in topics.items()})
        self._see(f"joins {' '.join(sorted(topics))}")

    async def seeks(self, partition: str, offset: int) -> None:
        """Fetch again from an offset, under a new epoch."""
        topic, number = parse(partition)
        epoch = self._epochs[partition] = self.session.next_epoch()
        self._records[partition].clear()
        self.session.seek((self._real(topic), number), offset, epoch)
        self._see(f"seeks {partition}@{offset}")

    async def commits(self, **offsets: int) -> None:
        """Commit offsets, given as ``t_0=5``, and see the outcome.

        Commits again after a rebalance or a move of the coordinator that it met, as the committer does.
        """
        while True:
            self.session.commit(self._commits(offsets))
            if not await self._until(lambda: bool(self._committed)) or not self._to_repeat():
                break
            self._committed.pop(0)
        await self.committed(**offsets)

    def _to_repeat(self) -> bool:
        return any(name in self._committed[0] for name in _TO_REPEAT)

    async def begins_to_commit(self, **offsets: int) -> None:
        """Hand over a commit and do not wait."""
        self.session.commit(self._commits(offsets))

    async def committed(self, **offsets: int) -> None:
        """Wait for the outcome of a commit."""
        came = await self._until(lambda: bool(self._committed))
        what = ", ".join(f"{each}={offset}" for each, offset in offsets.items())
        self._see(f"commits {what}: {self._committed.pop(0) if came else 'no answer'}")

    async def releases(self, **offsets: int) -> None:
        """Let go of the revoked partitions, with their last positions."""
        self.session.release(self.revocation, self._commits(offsets))
        self._see("releases" + "".join(f" {each}={offset}" for each, offset in offsets.items()))

    async def leaves(self, **offsets: int) -> None:
        """Leave the group, with last positions."""
        await self.session.close(self._commits(offsets), PATIENCE)
        self.holds.clear()
        self._see("leaves" + "".join(f" {each}={offset}" for each, offset in offsets.items()))

    def _commits(self, offsets: Mapping[str, int]) -> list[Commit]:
        made = []
        for each, offset in offsets.items():
            topic, _, number = each.rpartition("_")
            made.append(Commit(self._real(topic), int(number), offset, ""))
        return made

    # -- observations -----------------------------------------------------------------------------

    async def assigned(self, *partitions: str) -> None:
        """Wait until these partitions are assigned; see where they begin."""
        came = await self._until(lambda: set(partitions) <= set(self._assigned))
        for partition in sorted(self._assigned):
            start = self.holds[partition]
            new = ", new" if start.new else ""
            text = f" {start.metadata!r}" if start.metadata else ""
            self._see(f"assigned {partition} at {start.position}{text}{new}")
        self._no_more(came, "assigned")
        self._assigned.clear()

    async def fetched(self, partition: str, upto: int) -> None:
        """Wait until the record at offset ``upto`` comes; see the partition's records since the last time."""
        found = self._records[partition]
        came = await self._until(lambda: bool(found) and found[-1] >= upto)
        self._see(f"fetched {partition}: {ranges(found)}{'' if came else ', and no more'}")
        found.clear()

    async def ended(self, partition: str, at: int) -> None:
        """Wait until the session tells that no record below this offset will come."""
        await self._until(lambda: self._ends.get(partition, -1) >= at)
        self._see(f"ended {partition} at {self._ends.pop(partition, None)}")

    async def revoked(self, *partitions: str) -> None:
        """Wait until these partitions are to be released."""
        came = await self._until(lambda: set(partitions) <= set(self._revoked))
        self._see(f"revoked {' '.join(sorted(self._revoked))}")
        self._no_more(came, "revoked")
        self._revoked.clear()

    async def lost(self, *partitions: str) -> None:
        """Wait until these partitions are lost."""
        came = await self._until(lambda: set(partitions) <= set(self._lost))
        self._see(f"lost {' '.join(sorted(self._lost))}")
        self._no_more(came, "lost")
        self._lost.clear()

    async def failed(self) -> None:
        """Wait until the session is over."""
        came = await self._until(lambda: bool(self._failed))
        self._see(f"failed: {self._failed if came else 'not'}")

    def _no_more(self, came: bool, what: str) -> None:
        if not came:
            self._see(f"{what}: no more")

    async def _until(self, check: Callable[[], bool]) -> bool:
        try:
            async with asyncio.timeout(self._world.patience):
                while not check() and (not self._failed or check()):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return False
        return check()

    def _see(self, line: str) -> None:
        self._world.see(f"{self.name} {line}")
