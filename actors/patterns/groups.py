"""Groups of actors by name, as Erlang's pg: join, leave, broadcast. An actor that stops leaves all its groups."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass
from typing import Any

from actors._actor import Actor
from actors._checks import count, ref_of
from actors._core.mailbox import ControlMessage
from actors._dispatch import handles
from actors._errors import ActorError, MailboxFull
from actors._messages import Terminated
from actors._policy import Supervision
from actors._ref import ActorRef
from actors._system import ActorSystem

AT_ONCE = 100
"""Members that the keeper begins to watch before other actors have their turn."""


class GroupFull(ActorError):
    """The groups of a system have as many members as their ``capacity`` allows."""


@dataclass(frozen=True, slots=True)
class _Watch(ControlMessage):
    """Watch the members that are not watched yet. It names none, so one that finds the mailbox full is not missed."""


class _Keeper(Actor):
    """Watches the members. After its restart it watches those that are left."""

    def __init__(self, groups: Groups) -> None:
        super().__init__()
        self._groups = groups

    def on_start(self) -> None:
        for ref in self._groups.refs():
            self.watch(ref)

    @handles(_Watch)
    def _watch(self, _: _Watch) -> None:
        for ref in self._groups.take_unwatched(AT_ONCE):
            self.watch(ref)
        if self._groups.has_unwatched():
            self.actor_ref.notify(_Watch())

    @handles(Terminated)
    def _gone(self, message: Terminated) -> None:
        self._groups.forget(message.ref)


class Groups:
    """The groups of one system. Any thread may use them.

    Args:
        system: the members' system; an actor of it watches the members.
        capacity: the most memberships of all groups together.
    """

    def __init__(self, system: ActorSystem, *, capacity: int = 100_000) -> None:
        count("capacity", capacity, 0)
        self.capacity = capacity
        self._lock = threading.RLock()  # a signal handler may look, too
        self._groups: dict[str, dict[ActorRef[Any], None]] = {}
        self._joined: dict[ActorRef[Any], set[str]] = {}
        self._unwatched: dict[ActorRef[Any], None] = {}
        self._size = 0
        self._keeper = system.spawn(_Keeper, self, supervision=Supervision())

    def join(self, name: str, ref: ActorRef[Any]) -> None:
        """Make an actor a member of a group; once, however often it joins.

        Args:
            name: the group's; a group exists while it has members.
            ref: the actor.

        Raises:
            GroupFull: there is no room for one more membership.
            ActorDeadError: the system has been stopped since these groups were made, even if it takes actors again.
            TypeError: ``ref`` is no ref, but a proxy, a path or the like.
        """
        ref_of("a member", ref)
        with self._lock:
            names = self._joined.setdefault(ref, set())
            new = not names
            if name in names:
                return
            if self._size >= self.capacity:
                if new:
                    del self._joined[ref]
                raise GroupFull(f"the groups have {self._size} members, as many as they may")
            names.add(name)
            self._groups.setdefault(name, {})[ref] = None
            self._size += 1
            if new:
                self._unwatched[ref] = None
        if not new:
            return
        try:
            self._keeper.tell(_Watch())  # one that is dead is reported, and leaves, at once
        except MailboxFull:
            pass  # the messages that fill it make the keeper watch this member, too
        except BaseException:
            self.leave(name, ref)
            raise

    def leave(self, name: str, ref: ActorRef[Any]) -> bool:
        """End a membership; return whether there was one.

        Args:
            name: the group's.
            ref: the member.
        """
        with self._lock:
            names = self._joined.get(ref)
            if names is None or name not in names:
                return False
            self._remove(name, ref)
            names.remove(name)
            if not names:
                del self._joined[ref]
                self._unwatched.pop(ref, None)
        return True

    def members(self, name: str) -> tuple[ActorRef[Any], ...]:
        """Return the living members of a group, in the order in which they joined."""
        with self._lock:
            members = tuple(self._groups.get(name, ()))
        return tuple(ref for ref in members if ref.is_alive())

    def names(self) -> tuple[str, ...]:
        """Return the names of the groups that have members."""
        with self._lock:
            return tuple(self._groups)

    def broadcast(self, name: str, message: Any, *, urgent: bool = False) -> int:
        """Tell all living members of a group; return how many mailboxes took the message.

        Args:
            name: the group's.
            message: what to send.
            urgent: as for :meth:`ActorRef.tell`.
        """
        return sum(ref.notify(message, urgent=urgent) for ref in self.members(name))

    def refs(self) -> tuple[ActorRef[Any], ...]:
        """Return all members of all groups."""
        with self._lock:
            return tuple(self._joined)

    def take_unwatched(self, most: int) -> tuple[ActorRef[Any], ...]:
        """Return up to ``most`` members that nobody watches yet; the caller watches them."""
        with self._lock:
            taken = tuple(itertools.islice(self._unwatched, most))
            for ref in taken:
                del self._unwatched[ref]
        return taken

    def has_unwatched(self) -> bool:
        """Tell whether there are members that nobody watches yet."""
        return bool(self._unwatched)

    def forget(self, ref: ActorRef[Any]) -> None:
        """End all memberships of an actor."""
        with self._lock:
            self._unwatched.pop(ref, None)
            for name in self._joined.pop(ref, ()):
                self._remove(name, ref)

    def _remove(self, name: str, ref: ActorRef[Any]) -> None:
        group = self._groups[name]
        del group[ref]
        self._size -= 1
        if not group:
            del self._groups[name]
