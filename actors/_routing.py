"""Routing policies: small frozen values that choose the worker of a pool or group for a message.

A policy has no state of its own. A choice depends on :class:`Members`, an immutable view of the workers,
replaced as a whole when one comes or goes. So one policy may serve many routers, in any thread.
"""

from __future__ import annotations

import functools
import itertools
import random
from bisect import bisect
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pykka

from actors._checks import count, function
from actors._core.lifecycle import RUNNING

if TYPE_CHECKING:
    from actors._ref import ActorRef

A = TypeVar("A", bound=pykka.Actor)


class Members(Generic[A]):
    """The workers at one moment; a policy sees at least one.

    Args:
        routing: the policy.
        refs: the workers.
        keys: the names of their places: a worker that replaces another one has its key.
        turn: counts the router's choices; its ``next`` is atomic.

    ``prepared`` is the result of the policy's :meth:`Routing.prepare`.
    """

    __slots__ = ("keys", "prepared", "refs", "turn")

    def __init__(
        self,
        routing: Routing,
        refs: tuple[ActorRef[A], ...],
        keys: tuple[str, ...],
        turn: itertools.count[int],
    ) -> None:
        self.refs, self.keys, self.turn = refs, keys, turn
        self.prepared = routing.prepare(keys)

    def living(self, routing: Routing) -> Members[A]:
        """The same members without those that have stopped."""
        left = [pair for pair in zip(self.refs, self.keys, strict=True) if pair[0].is_alive()]
        return Members(routing, tuple(ref for ref, _ in left), tuple(key for _, key in left), self.turn)


class Routing:
    """Base class of the policies. A choice may be a dead worker: the router drops it and asks again."""

    __slots__ = ()

    def prepare(self, keys: tuple[str, ...]) -> Any:
        """Compute ``Members.prepared``, once for a set of workers, from the keys of their places."""
        return None

    def pick(self, members: Members[A], message: Any) -> ActorRef[A]:
        """Choose the worker for a message. An exception goes to the sender.

        Args:
            members: the workers, at least one.
            message: the message.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class RoundRobin(Routing):
    """Chooses one worker after the other, full mailboxes included."""

    def pick(self, members: Members[A], message: Any) -> ActorRef[A]:
        """See :meth:`Routing.pick`."""
        return members.refs[next(members.turn) % len(members.refs)]


ROUND_ROBIN = RoundRobin()


@dataclass(frozen=True, slots=True)
class LeastMailbox(Routing):
    """Chooses the worker with the fewest messages before it is free; equal workers in turn.

    Counts the messages in the mailbox, the senders that wait for room, and the message that is being
    handled: an idle worker comes before one that is busy with its last message.
    """

    def pick(self, members: Members[A], message: Any) -> ActorRef[A]:
        """See :meth:`Routing.pick`."""
        refs = members.refs
        first = next(members.turn) % len(refs)
        best, least = refs[first], load(refs[first])
        for index in range(first + 1, first + len(refs)):
            if not least:
                break
            ref = refs[index % len(refs)]
            waiting = load(ref)
            if waiting < least:
                best, least = ref, waiting
        return best


def load(ref: ActorRef[Any]) -> int:
    """The number of messages that an actor has to handle, the current one included."""
    cell = ref._cell
    mailbox = cell.mailbox
    busy = cell.envelope is not None or cell.state != RUNNING
    return len(mailbox) + len(mailbox.waiting or ()) + busy


@dataclass(frozen=True, slots=True)
class Random(Routing):
    """Chooses any worker with equal probability. ``rng`` is for tests to seed; threads may share it."""

    rng: random.Random = field(default_factory=random.Random)

    def pick(self, members: Members[A], message: Any) -> ActorRef[A]:
        """See :meth:`Routing.pick`."""
        return members.refs[int(self.rng.random() * len(members.refs))]


@dataclass(frozen=True, slots=True)
class ConsistentHash(Routing):
    """Sends messages with the same key to the same worker, in every process and after every restart.

    Each worker has ``replicas`` points on a ring of 64-bit hashes (Karger et al., 1997); a key belongs to
    the next point. When one of n workers leaves, only its keys move (about 1/n), and they return to the
    worker that takes its place. Python's ``hash`` is no alternative: for strings it differs between
    processes.

    Args:
        key: returns a message's key, a str, bytes or int; anything else is a TypeError in the sender.
        replicas: points per worker. More of them share the keys out more evenly (with 64, shares vary by
            about 12 %) and take longer to set up, about 1 us each.

    Raises:
        TypeError: ``key`` is no function, or ``replicas`` no whole number.
        ValueError: ``replicas`` is below 1.
    """

    key: Callable[[Any], str | bytes | int]
    replicas: int = 64

    def __post_init__(self) -> None:
        function("a routing key", self.key)
        count("replicas", self.replicas, 1)

    def prepare(self, keys: tuple[str, ...]) -> tuple[list[int], list[int]]:
        """Make the ring: the points in order, and the index of each one's worker."""
        ring = sorted(
            (point, index) for index, name in enumerate(keys) for point in _points(name, self.replicas)
        )
        return [point for point, _ in ring], [index for _, index in ring]

    def pick(self, members: Members[A], message: Any) -> ActorRef[A]:
        """See :meth:`Routing.pick`."""
        ring: tuple[list[int], list[int]] = members.prepared
        points, owners = ring
        at = bisect(points, key_hash(self.key(message)))
        return members.refs[owners[at if at < len(owners) else 0]]


def key_hash(key: str | bytes | int) -> int:
    """Hash a key to 64 bits: the first 8 bytes of its BLAKE2b, big-endian."""
    if isinstance(key, int):
        key = str(int(key))
    if isinstance(key, str):
        key = key.encode("utf-8", "surrogatepass")
    elif not isinstance(key, bytes):
        raise TypeError(f"a routing key is a str, bytes or int, not {key!r}")
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big")


@functools.lru_cache(maxsize=4096)
def _points(name: str, replicas: int) -> tuple[int, ...]:
    return tuple(key_hash(f"{name}#{replica}") for replica in range(replicas))


@dataclass(frozen=True, slots=True)
class Broadcast(Routing):
    """Sends every message to all workers; the reply to an ask is the list of all replies."""
