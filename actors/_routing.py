"""Routing policies: which of the workers of a pool or group gets a message, as small frozen values.

A policy keeps no state of its own: what a choice depends on is in :class:`Members`, an immutable
view of the workers that is replaced as a whole when one comes or goes. So one policy may serve many
routers, and any thread may choose.
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

if TYPE_CHECKING:
    from actors._ref import ActorRef

A = TypeVar("A", bound=pykka.Actor)

RUNNING = "running"


class Members(Generic[A]):
    """The workers at one moment, at least one of them when a policy gets to see it.

    ``keys`` name their places: a worker that replaces another one has its key. ``turn`` counts the
    choices of the router (``next`` of it is atomic), ``prepared`` is what the policy's
    :meth:`Routing.prepare` made of the keys.
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
        """The same without those that have stopped."""
        left = [pair for pair in zip(self.refs, self.keys, strict=True) if pair[0].is_alive()]
        return Members(routing, tuple(ref for ref, _ in left), tuple(key for _, key in left), self.turn)


class Routing:
    """Base of the policies. A choice may fall on a dead worker: the router drops it, asks again."""

    __slots__ = ()

    def prepare(self, keys: tuple[str, ...]) -> Any:
        """What is computed once for a set of workers; see :attr:`Members.prepared`."""
        return None

    def pick(self, members: Members[A], message: Any) -> ActorRef[A]:
        """The worker for a message. What this raises, the sender gets."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class RoundRobin(Routing):
    """One after the other, whether or not its mailbox has room."""

    def pick(self, members: Members[A], message: Any) -> ActorRef[A]:
        """See :meth:`Routing.pick`."""
        return members.refs[next(members.turn) % len(members.refs)]


ROUND_ROBIN = RoundRobin()


@dataclass(frozen=True, slots=True)
class LeastMailbox(Routing):
    """The worker with the fewest messages before it is free; among equals one after the other.

    Counts what waits in the mailbox, the senders that wait for room, and what is being handled: an
    idle worker comes before one that is busy with its last message.
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
    """How many messages an actor has before it, the one in its hands included."""
    cell = ref._cell
    mailbox = cell.mailbox
    busy = cell.envelope is not None or cell.state != RUNNING
    return len(mailbox) + len(mailbox.waiting or ()) + busy


@dataclass(frozen=True, slots=True)
class Random(Routing):
    """Any of them. ``rng`` is for tests to seed; it may be shared by threads."""

    rng: random.Random = field(default_factory=random.Random)

    def pick(self, members: Members[A], message: Any) -> ActorRef[A]:
        """See :meth:`Routing.pick`."""
        return members.refs[int(self.rng.random() * len(members.refs))]


@dataclass(frozen=True, slots=True)
class ConsistentHash(Routing):
    """Messages with the same key go to the same worker, in every process and after every restart.

    Each worker has ``replicas`` points on a ring of 64-bit hashes (Karger et al., 1997); a key
    belongs to the next point. When one of n workers goes only its keys move (about 1/n), and they
    come back to the worker that takes its place. Python's ``hash`` would not do: for strings it
    differs from process to process.

    Args:
        key: gets the message and gives its key, a str, bytes or int (anything else is a
            TypeError in the sender).
        replicas: more of them share the keys out more evenly (the shares of 64 vary by about 12 %)
            and take longer to set up, about 1 us each.
    """

    key: Callable[[Any], str | bytes | int]
    replicas: int = 64

    def prepare(self, keys: tuple[str, ...]) -> tuple[list[int], list[int]]:
        """The ring: the points in order, and whose they are."""
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
    """The 64-bit hash of a key: the first 8 bytes of its BLAKE2b, big-endian."""
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
    """Every message goes to all workers; the reply to an ask is the list of theirs."""
