"""Everything the parts of a consumer instance share: its settings, its state and its session."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from actors import Actor, Future
from pixy.config.model import Instances
from pixy.engine.instances.messages import InstanceSpec
from pixy.engine.instances.positions import Positions
from pixy.engine.instances.topic_patterns import TopicPattern
from pixy.errors import IllegalState
from pixy.kafka.consumer import Commit
from pixy.membership.instances import Earlier, InstanceEvent, InstanceSession, MetTopic
from pixy.wire.types import TopicPartition

BEGINNING, END = -2, -1
"""Special times of a seek: the oldest record, and the next to be written."""

SessionFactory = Callable[[Earlier, Callable[[InstanceEvent], None]], InstanceSession]
"""Makes a session from what the instance knew before it restarted and a function that takes its events."""


class Catalogue(Protocol):
    """Looks up topics and offsets over connections that do not wait for records."""

    async def check(self, topic: str) -> None:
        """Raise UnknownTopic if there is no such topic."""

    async def matching(self, pattern: TopicPattern) -> tuple[str, ...]:
        """Return the topics that match a pattern, sorted. Raises PixyError."""

    async def find(self, times: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """See :class:`pixy.engine.admin_messages.FindOffsets`."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """Topics, a pattern, or partitions; or nothing."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()
    allowed: Callable[[str], bool] | None = field(default=None, compare=False, repr=False)
    """See :class:`~pixy.engine.instances.messages.SubscribeTo`."""

    def __bool__(self) -> bool:
        return bool(self.topics or self.pattern or self.partitions)

    def check_change(self, to: Subscription) -> None:
        """Raise IllegalState if ``to`` is of another kind: delete the subscription first."""
        kinds = [bool(self.topics), bool(self.pattern), bool(self.partitions)]
        if any(kinds) and kinds != [bool(to.topics), bool(to.pattern), bool(to.partitions)]:
            raise IllegalState("Subscription to topics, partitions and pattern are mutually exclusive")


@dataclass(slots=True)
class ReaderState:
    """Survives a restart of the actor, so that the reader continues where it was."""

    subscription: Subscription = field(default_factory=Subscription)
    """The last subscription that a client has asked for."""
    in_effect: Subscription = field(default_factory=Subscription)
    """The last subscription that the session has carried out. A later change may be under way."""
    matched_first: frozenset[str] = frozenset()
    """The topics that matched a pattern when the subscription to it took effect, without those that have been missing since."""
    positions: Positions = field(default_factory=Positions)
    met: dict[str, MetTopic] = field(default_factory=dict)
    """The topics as sessions have learned them since the subscription began."""


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """To the instance: an event of the session with this id."""

    session_id: object
    event: InstanceEvent


class Context:
    """Owns the session. Knows none of the parts that use it.

    Args:
        actor: the instance, for its timers, its replies and its address.
        spec: how the instance was created.
        conf: the limits and timeouts of instances.
        state: kept by the registry across restarts.
        catalogue: looks up topics and offsets.
        make_session: called when a session is first needed.
    """

    def __init__(
        self,
        actor: Actor,
        spec: InstanceSpec,
        conf: Instances,
        state: ReaderState,
        catalogue: Catalogue,
        make_session: SessionFactory,
    ) -> None:
        self.actor = actor
        self.spec = spec
        self.conf = conf
        self.state = state
        self.positions = state.positions
        self.catalogue = catalogue
        self.closing = False
        """True if the instance takes no more requests."""
        self.session: InstanceSession | None = None
        self._session_id: object = None
        self._make_session = make_session
        self._earlier = Earlier(state.positions.begin_again(), dict(state.met), state.positions.late)

    def now(self) -> float:
        """Return the loop's time in seconds."""
        return self.actor.system.loop.time()

    def take_reply(self) -> Future[Any]:
        """Return the reply to the current request, to be set later."""
        return self.actor.take_reply()

    def open_session(self) -> InstanceSession:
        """Return the session; a new one unless there is one already.

        A session costs a thread, connections and memory, so an instance opens one only to consume or
        commit.
        """
        if self.session is None:
            ref = self.actor.actor_ref
            self._session_id = session_id = object()

            def post(event: InstanceEvent) -> None:
                ref.notify(SessionEvent(session_id, event), urgent=True)

            self.session = self._make_session(self._earlier, post)
        return self.session

    def is_current(self, message: SessionEvent) -> bool:
        """Return whether an event comes from the present session."""
        return message.session_id is self._session_id

    def leave_group(self) -> Coroutine[Any, Any, None]:
        """Give the session up. The coroutine makes the last automatic commit and leaves the group."""
        session, self.session = self.session, None
        self._session_id, self._earlier = None, Earlier()
        commits = self.positions.confirmed() if self.spec.auto_commit else ()
        return _close(session, commits, self.conf.close_timeout)


async def _close(session: InstanceSession | None, commits: tuple[Commit, ...], timeout: float) -> None:
    if session is not None:
        await session.close(commits, timeout)
