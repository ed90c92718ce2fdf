"""What the parts of an instance share, and what each instance consumes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from actors import Actor
from pixy.config.model import Instances
from pixy.engine.instances.messages import InstanceSpec
from pixy.engine.instances.operations import Operations
from pixy.engine.instances.positions import Book
from pixy.engine.instances.reads import Reads
from pixy.errors import IllegalState
from pixy.membership.instances import InstanceSession
from pixy.wire.types import TopicPartition

BEGINNING, END = -2, -1
"""In the place of a time: the oldest record, and what is written next."""


class Catalogue(Protocol):
    """What an instance asks about topics, of somebody whose connections do not wait for records."""

    async def check(self, topic: str) -> None:
        """Raises UnknownTopic if there is no such topic."""

    async def find(self, times: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """See :class:`pixy.engine.admin.FindOffsets`."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """Topics, a pattern, or partitions; or nothing."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.topics or self.pattern or self.partitions)

    @property
    def wanted(self) -> tuple[str, ...]:
        """What to subscribe to, in the client's terms; a pattern means whole names."""
        return (f"^({self.pattern})$",) if self.pattern else self.topics

    def check_change(self, to: Subscription) -> None:
        """Raises IllegalState: only what is deleted can become something of another kind."""
        kinds = [bool(self.topics), bool(self.pattern), bool(self.partitions)]
        if any(kinds) and kinds != [bool(to.topics), bool(to.pattern), bool(to.partitions)]:
            raise IllegalState("Subscription to topics, partitions and pattern are mutually exclusive")


@dataclass(slots=True)
class Memory:
    """What outlives a life of the actor: a restart goes on where the reader was."""

    subscription: Subscription = field(default_factory=Subscription)
    book: Book = field(default_factory=Book)


@dataclass(slots=True)
class Parts:
    """An instance's parts.

    Attributes:
        actor: the instance itself.
        open: its session, made if it has none yet.
        session: its session, or None.
        leave: gives the session up: the coroutine commits, if that is wanted, and leaves the group.
        serve: serve reads, and set their timer.
        catalogue: what is there.
    """

    actor: Actor
    spec: InstanceSpec
    conf: Instances
    memory: Memory
    reads: Reads
    operations: Operations
    open: Callable[[], InstanceSession]
    session: Callable[[], InstanceSession | None]
    leave: Callable[[], Coroutine[Any, Any, None]]
    serve: Callable[[], None]
    catalogue: Catalogue

    @property
    def book(self) -> Book:
        """The positions."""
        return self.memory.book

    def now(self) -> float:
        """The loop's time."""
        return self.actor.system.loop.time()
