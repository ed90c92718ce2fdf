"""The consumer instances of a cluster: their names, their number, their supervision."""

from __future__ import annotations

import logging
import time
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from actors import (
    Actor,
    ActorDeadError,
    ActorRef,
    Directive,
    Future,
    Intensity,
    Request,
    Supervision,
    handles,
)
from pixy.config.model import Proxy
from pixy.engine.instances.actor import Instance
from pixy.engine.instances.context import Catalogue, ReaderState, SessionFactory
from pixy.engine.instances.messages import CloseInstance, GetInstanceState, InstanceClosing, InstanceSpec
from pixy.engine.instances.owned import InstancePlace
from pixy.engine.shares import part
from pixy.errors import (
    InstanceExists,
    InvalidParameter,
    PixyError,
    ShuttingDown,
    TooManyRequests,
    UnknownInstance,
)
from pixy.membership.instances import Earlier, InstanceEvent, InstanceSession

logger = logging.getLogger("pixy.engine")

OpenSession = Callable[
    [str, str, InstanceSpec, Earlier, Callable[[InstanceEvent], None]],
    InstanceSession,
]
"""Makes a session from the group, the instance's name and spec, what it knew before it restarted, and a
function that takes its events.
"""

_MAX_NAME = 255
_RESERVED = frozenset({"instances", ".", ".."})
_RESTARTS, _WINDOW = 5, 60.0
_UUID = 36


@dataclass(frozen=True, slots=True)
class CreateInstance(Request[str]):
    """Create an instance; the reply is its name.

    Attributes:
        group: the id of its group.
        name: None: generated, ``rest-consumer-[<node>-]<uuid>``.
        spec: the options it is created with.
        owner: to whom it belongs; empty without ``auth``.
        place: its place among the owner's instances; None: nobody counts them.
        caller: whose share of all instances it counts against (:mod:`pixy.engine.shares`).
    """

    group: str
    name: str | None
    spec: InstanceSpec
    owner: str = ""
    place: InstancePlace | None = None
    caller: str = ""


@dataclass(frozen=True, slots=True)
class GetInstance(Request[ActorRef[Instance]]):
    """Ask for an instance, or UnknownInstance, also if it belongs to somebody else."""

    group: str
    name: str
    owner: str = ""


@dataclass(frozen=True, slots=True)
class CountInstances(Request[dict[str, int]]):
    """Ask how many instances are in which state: see :class:`GetInstanceState`."""


@dataclass(frozen=True, slots=True)
class CloseInstances(Request[None]):
    """The service stops: all instances leave their groups. The reply comes when they have."""


def check_name(name: str) -> None:
    """Check that a name can stand in a path and is no word of the API's own. Raises InvalidParameter."""
    if not name or len(name) > _MAX_NAME:
        raise InvalidParameter(f"bad instance name: must be 1 to {_MAX_NAME} characters")
    if name in _RESERVED:
        raise InvalidParameter(f"bad instance name: {name!r} is reserved")
    if not name.isprintable():
        raise InvalidParameter("bad instance name: must not contain control characters")


def generated_name(node: str) -> str:
    """Return a new name, with the node in it if there is one."""
    return f"rest-consumer-{node}-{uuid.uuid4()}" if node else f"rest-consumer-{uuid.uuid4()}"


def node_of(name: str) -> str | None:
    """Return the node in a generated name; None if the name was not generated, or has no node."""
    head, tail = name[: -_UUID - 1], name[-_UUID:]
    prefix = "rest-consumer-"
    if not head.startswith(prefix) or name[-_UUID - 1 : -_UUID] != "-" or tail.count("-") != 4:
        return None
    return head[len(prefix) :] or None


class RestartLimit:
    """Restarts an instance that fails, and stops it, alone, after too many failures in a short time."""

    def __init__(self) -> None:
        self._failures: deque[float] = deque(maxlen=_RESTARTS + 1)

    def __call__(self, error: BaseException) -> Directive:
        """See :class:`actors.Supervision`."""
        now = time.monotonic()
        self._failures.append(now)
        if len(self._failures) > _RESTARTS and now - self._failures[0] < _WINDOW:
            return Directive.STOP
        return Directive.RESTART


class Instances(Actor):
    """Child of the cluster.

    Args:
        proxy: the configuration of the cluster.
        node: this daemon's, for generated names; empty: there are no other daemons.
        open_session: makes an instance's session.
        catalogue: looks up topics and offsets.
    """

    def __init__(self, proxy: Proxy, node: str, open_session: OpenSession, catalogue: Catalogue) -> None:
        super().__init__()
        self._proxy = proxy
        self._node = node
        self._open_session = open_session
        self._catalogue = catalogue
        self._by_name: dict[tuple[str, str], ActorRef[Instance]] = {}
        self._owners: dict[tuple[str, str], str] = {}
        self._callers: dict[tuple[str, str], str] = {}
        self._places: dict[tuple[str, str], InstancePlace] = {}
        self._closing = False

    def on_receive(self, message: Any) -> Any:
        """Answer requests with the PixyError that they raise. See the messages of this module."""
        try:
            return super().on_receive(message)
        except PixyError as error:  # an answer, so nothing is logged
            self.take_reply().try_fail(error)
            return None

    def on_child_stopped(self, ref: ActorRef[Any]) -> None:
        """Free the name of an instance that has stopped."""
        for key, known in tuple(self._by_name.items()):
            if known is ref:
                self._free(key)

    @handles(CreateInstance)
    def _create(self, request: CreateInstance) -> str:
        if self._closing:
            raise ShuttingDown
        if self._proxy.consumer.disabled:
            raise InvalidParameter("consumers are disabled (`consumer.disabled`)")
        name = generated_name(self._node) if request.name is None else request.name
        check_name(name)
        key = (request.group, name)
        if key in self._by_name:
            raise InstanceExists
        # Instances that are closing still hold threads and connections, so they count.
        most = self._proxy.instances.max_instances
        own = sum(each == request.caller for each in self._callers.values()) if request.caller else 0
        if len(self.children) >= most or own >= part(most):
            raise TooManyRequests("instances.max_instances")
        place = request.place
        if place is not None:
            place.check()
        self._owners[key] = request.owner
        self._callers[key] = request.caller
        ref = self._by_name[key] = self.spawn(
            Instance,
            request.group,
            name,
            request.spec,
            self._proxy,
            self.actor_ref,
            self._session_of(request.group, name, request.spec),
            self._catalogue,
            ReaderState(),
            name=self.free_name(f"{request.group}.{name}"),
            supervision=Supervision(decide=RestartLimit(), intensity=Intensity(2 * _RESTARTS, _WINDOW)),
        )
        if place is not None:
            place.take(ref)
            self._places[key] = place
        return name

    def _session_of(self, group: str, name: str, spec: InstanceSpec) -> SessionFactory:
        open_session = self._open_session

        def make(earlier: Earlier, post: Callable[[InstanceEvent], None]) -> InstanceSession:
            return open_session(group, name, spec, earlier, post)

        return make

    @handles(GetInstance)
    def _get(self, request: GetInstance) -> ActorRef[Instance]:
        key = (request.group, request.name)
        ref = self._by_name.get(key)
        if ref is None:
            key, ref = self._ignoring_case(request)
        if ref is None or not ref.is_alive() or self._owners[key] != request.owner:
            raise UnknownInstance
        return ref

    def _ignoring_case(self, request: GetInstance) -> tuple[tuple[str, str], ActorRef[Instance] | None]:
        """Return the one instance whose name differs in letter case only: KIP-80 creates ``Instance1`` and reads
        from ``instance1``.
        """
        wanted = request.name.casefold()
        found = [
            (key, ref)
            for key, ref in self._by_name.items()
            if key[0] == request.group and key[1].casefold() == wanted
        ]
        return found[0] if len(found) == 1 else (("", ""), None)

    @handles(InstanceClosing)
    def _instance_closing(self, message: InstanceClosing) -> None:
        # Free the name at once, so that a client can create an instance again right after deleting it.
        key = (message.group, message.name)
        if self._by_name.get(key) is message.ref:
            self._free(key)

    def _free(self, key: tuple[str, str]) -> None:
        del self._by_name[key]
        del self._owners[key], self._callers[key]
        place = self._places.pop(key, None)
        if place is not None:
            place.free()

    @handles(CountInstances)
    def _count(self, _query: CountInstances) -> None:
        self.start_task(_count(self.take_reply(), tuple(self._by_name.values())))

    @handles(CloseInstances)
    def _close(self, _request: CloseInstances) -> None:
        self._closing = True
        self.start_task(_close(self.take_reply(), self.children))


async def _count(reply: Future[Any], refs: tuple[ActorRef[Any], ...]) -> None:
    states = {"waiting": 0, "idle": 0, "unused": 0}
    for asked in [ref.ask(GetInstanceState(), block=False, urgent=True) for ref in refs]:
        try:
            states[await asked] += 1
        except ActorDeadError:
            continue
    reply.try_set(states)


async def _close(reply: Future[Any], refs: tuple[ActorRef[Any], ...]) -> None:
    for asked in [ref.ask(CloseInstance(), block=False, urgent=True) for ref in refs]:
        try:
            await asked
        except ActorDeadError:
            continue
    reply.try_set(None)


__all__ = [
    "CloseInstances",
    "CountInstances",
    "CreateInstance",
    "GetInstance",
    "Instances",
    "RestartLimit",
    "check_name",
    "generated_name",
    "node_of",
]
