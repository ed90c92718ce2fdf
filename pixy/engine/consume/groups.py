"""The groups of one cluster, by name: bounded in all and for each caller, and found again while they leave.

A part of the cluster's actor, not an actor: it runs inside the actor's handlers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from actors import ActorRef, Future
from pixy.engine.consume.group_consumer import GroupConsumer
from pixy.engine.shares import part
from pixy.errors import PixyError, ShuttingDown, TooManyRequests
from pixy.membership.kafka.beginnings import Memory

Ref = ActorRef[GroupConsumer]


@dataclass(slots=True)
class _Group:
    ref: Ref
    caller: str
    leaving: bool = False
    waiting: list[Future[Any]] = field(default_factory=list)
    """Requests for the group since it began to leave."""


class Groups:
    """Starts a group for whoever asks first.

    Args:
        spawn: starts a group's actor, with what is known of its topics.
        most: ``consumer.max_groups``.

    Attributes:
        closed: no group is started any more.
    """

    def __init__(self, spawn: Callable[[str, Memory], Ref], most: int) -> None:
        self._spawn = spawn
        self._most = most
        self._groups: dict[str, _Group] = {}
        self._started: dict[str, Memory] = {}
        """What is known of the topics of groups that were started, the newest last; the next life of a group begins with it."""
        self._held: dict[str, list[tuple[Future[Any], str]]] = {}
        """Requests for groups that may not start now, with their callers."""
        self.closed = False

    def __len__(self) -> int:
        return len(self._groups)

    def refs(self) -> dict[str, Ref]:
        """Return the groups' actors by the groups' names."""
        return {name: group.ref for name, group in self._groups.items()}

    def known(self) -> list[str]:
        """Return the names of the groups that were started last, as many as there may be at the same time."""
        return list(self._started)

    def get(self, name: str, caller: str, take_reply: Callable[[], Future[Any]]) -> Ref | None:
        """Return a group's actor, started if need be; None if the reply was taken, because the group is leaving.

        Args:
            name: of the group.
            caller: whose share of all groups it counts against; empty for nobody's.
            take_reply: takes the reply of the request.

        Raises:
            TooManyRequests: there are too many groups, in all or of the caller.
            ShuttingDown: no group is started any more.
        """
        if (held := self._held.get(name)) is not None:
            held.append((take_reply(), caller))
            return None
        group = self._groups.get(name)
        if group is not None and group.leaving:
            group.waiting.append(take_reply())
            return None
        return self._find(name, caller)

    def _find(self, name: str, caller: str) -> Ref:
        group = self._groups.get(name)
        if group is not None:
            return group.ref
        if self.closed:
            raise ShuttingDown
        own = sum(each.caller == caller for each in self._groups.values()) if caller else 0
        if len(self._groups) >= self._most or own >= part(self._most):
            raise TooManyRequests("consumer.max_groups")
        memory = self._started.get(name) or Memory()
        ref = self._spawn(name, memory)
        self._groups[name] = _Group(ref, caller)
        self._started.pop(name, None)
        self._started[name] = memory
        if len(self._started) > self._most:
            del self._started[next(iter(self._started))]
        return ref

    def hold(self, name: str) -> bool:
        """Let requests for a group wait, so that it does not start again once it has left; return False if they do already."""
        if name in self._held:
            return False
        self._held[name] = []
        return True

    def let_go(self, name: str) -> None:
        """Serve the requests that have waited since :meth:`hold`."""
        for reply, caller in self._held.pop(name, ()):
            group = self._groups.get(name)
            if group is not None and group.leaving:
                group.waiting.append(reply)
            else:
                self._serve(reply, name, caller)

    def _serve(self, reply: Future[Any], name: str, caller: str) -> None:
        try:
            reply.try_set(self._find(name, caller))
        except PixyError as error:
            reply.try_fail(error)

    def leaving(self, name: str) -> None:
        """Note that a group takes no more requests: whoever asks for it waits for the next one of its name."""
        if (group := self._groups.get(name)) is not None:
            group.leaving = True

    def started(self, name: str) -> None:
        """Note that a group takes requests. If it was leaving, it has failed meanwhile, and begun anew."""
        group = self._groups.get(name)
        if group is not None and group.leaving:
            group.leaving = False
            waiting, group.waiting = group.waiting, []
            for reply in waiting:
                reply.try_set(group.ref)

    def stopped(self, ref: ActorRef[Any]) -> None:
        """Forget a group that has stopped; start it again if somebody waits for it."""
        for name, group in tuple(self._groups.items()):
            if group.ref is ref:
                del self._groups[name]
                for reply in group.waiting:
                    if (held := self._held.get(name)) is not None:
                        held.append((reply, group.caller))
                    else:
                        self._serve(reply, name, group.caller)


__all__ = ["Groups"]
