"""Scripts on the model, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping
from typing import Any

from tests.model.consumer import Consumer
from tests.model.group import Group
from tests.model.log import Kafka
from tests.model.member import Member
from tests.model.session import ModelSession
from tests.model.world import Client, Failure, Record, World, parse, written

_TURN = 0.02


class ModelWorld(World):
    """See :class:`tests.model.world.World`.

    Args:
        rng: for the durations that the model may choose.
    """

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng
        self.kafka = Kafka()
        self._lone: list[str] = []
        self._groups: dict[str, Group] = {}

    async def topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """See :class:`tests.model.world.World`."""
        self.kafka.create(name, partitions)

    async def topic_on_coordinator(self, name: str, group: str = "g") -> None:
        """See :class:`tests.model.world.World`."""
        self.kafka.create(name, 1)
        self._lone.append(name)

    async def coordinator_dies(self, group: str = "g") -> None:
        """See :class:`tests.model.world.World`."""
        for name in self._lone:
            self.kafka.log((name, 0)).leader = False
        self._groups[group].coordinator_dies()
        self.kafka.changed()

    async def broker_returns(self) -> None:
        """See :class:`tests.model.world.World`."""
        for name in self._lone:
            self.kafka.log((name, 0)).leader = True
        self.kafka.changed()

    async def delete_topic(self, name: str) -> None:
        """See :class:`tests.model.world.World`."""
        self.kafka.delete(name)

    async def grow(self, name: str, partitions: int) -> None:
        """See :class:`tests.model.world.World`."""
        self.kafka.grow(name, partitions)

    async def produce(self, partition: str, count: int = 1) -> None:
        """See :class:`tests.model.world.World`."""
        self.kafka.produce(parse(partition), count)

    async def delete_records(self, partition: str, before: int) -> None:
        """See :class:`tests.model.world.World`."""
        self.kafka.log(parse(partition)).delete(before)
        self.kafka.changed()

    async def begin(self, transaction: str) -> None:
        """See :class:`tests.model.world.World`."""

    async def produce_in(self, transaction: str, partition: str, count: int = 1) -> None:
        """See :class:`tests.model.world.World`."""
        self.kafka.produce(parse(partition), count, transaction)

    async def end(self, transaction: str, *, commit: bool) -> None:
        """See :class:`tests.model.world.World`."""
        self.kafka.end(transaction, commit=commit)

    def client(self, name: str, *, reset: str = "earliest", isolation: str = "read_committed") -> Client:
        """See :class:`tests.model.world.World`."""
        return ModelClient(
            self, name, Consumer(self.kafka, reset, committed=isolation == "read_committed", rng=self._rng)
        )

    def member(self, name: str, group: str = "g", **conf: Any) -> Member:
        """See :class:`tests.model.world.World`."""
        member = Member(self, name)
        coordinator = self._groups.get(group)
        if coordinator is None:
            coordinator = self._groups[group] = Group(self.kafka, self._rng, group, forward_only=False)
        member.session = ModelSession(coordinator, member.post, self._rng, **conf)
        return member

    async def sets_offset(self, partition: str, offset: int, group: str = "g") -> None:
        """See :class:`tests.model.world.World`."""
        self.kafka.committed[group][parse(partition)] = (offset, "")

    async def expels(self, member: Member) -> None:
        """See :class:`tests.model.world.World`."""
        assert isinstance(member.session, ModelSession)
        member.session.expelled()
        self.see(f"{member.name} is expelled")


class ModelClient(Client):
    """See :class:`tests.model.world.Client`."""

    def __init__(self, world: ModelWorld, name: str, consumer: Consumer) -> None:
        super().__init__(world, name)
        self._kafka, self._consumer = world.kafka, consumer

    def _assign(self, starts: Mapping[str, int]) -> None:
        self._consumer.assign({parse(each): offset for each, offset in starts.items()})

    def _add(self, starts: Mapping[str, int]) -> None:
        self._consumer.add({parse(each): offset for each, offset in starts.items()})

    def _remove(self, partitions: Iterable[str]) -> None:
        self._consumer.remove(map(parse, partitions))

    def _pause(self, partitions: Iterable[str]) -> None:
        self._consumer.pause(map(parse, partitions))

    def _resume(self, partitions: Iterable[str]) -> None:
        self._consumer.resume([parse(each) for each in partitions])

    def _seek(self, partition: str, offset: int) -> None:
        self._consumer.seek(parse(partition), offset)

    def _position(self, partition: str) -> int | None:
        return self._consumer.position(parse(partition))

    def _bounds(self, partition: str) -> tuple[int, int]:
        return self._consumer.bounds(parse(partition))

    async def _poll(self) -> Record | Failure | None:
        found = self._consumer.poll()
        if found is None:
            await asyncio.sleep(_TURN)
            return None
        partition, what = found
        return (
            Record(written(partition), what) if isinstance(what, int) else Failure(written(partition), what)
        )

    async def _settle(self) -> None:
        while (event := await self._poll()) is not None:
            self._take(event)
