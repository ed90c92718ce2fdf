"""Gates before the partitions of a topic: until one message has its offset, no second one is on its way.

A broker that has no record of a producer on a partition accepts any first sequence number. So if the leader is not ready
when the first request comes (the topic is new, or just elects one) and ready when the second comes, the second overtakes
the first (see :mod:`pixy.kafka.returned_messages`, which sends the first again, behind the second). An offset proves that
the leader knows the producer, and then it refuses whatever is out of sequence.

A gate opens for the life of librdkafka's producer: the leaders elected later have its last sequence number from the log.
It delays a burst to a partition by one round trip, once. This module has no clock and does no I/O.

What the gates know of their topic may be wrong by now: each look-up corrects it, and so does a message that librdkafka
refuses because its partition does not exist. The number of partitions, on which predictions rest, is corrected only while no
message is held or on its way: with another prediction the next message of a key would pass those before another gate.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Generic, TypeVar

from pixy.kafka.partitioning import fnv1a_partition

T = TypeVar("T")

UNKNOWN: Final = -1
"""Partition of a message that librdkafka chooses, and that is too costly to predict: it passes without a gate."""
_LONGEST_KEY = 512
"""Bytes of the longest key that is hashed here, which takes 60 nanoseconds a byte on the event loop."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The known partitions of a topic.

    Attributes:
        partitions: those that have gates, sorted, at least one.
        writable: those that have a leader.
    """

    partitions: tuple[int, ...]
    writable: tuple[int, ...]

    @property
    def count(self) -> int:
        """The number of partitions that the topic has."""
        return self.partitions[-1] + 1


@lru_cache(maxsize=4096)
def _hashed(key: bytes, partitions: int) -> int:
    # Partitions stay closed for long only if a topic has few keys: those are found here.
    return fnv1a_partition(key, partitions)


def gate_of(key: bytes | None, partition: int, count: int, *, hashing: bool) -> int | None:
    """Return which gate is before the messages that come after one and go to the same partition.

    Args:
        key: of the message.
        partition: where it went, or was to go; -1 if librdkafka chooses.
        count: how many partitions the topic has.
        hashing: as in :class:`TopicGates`.

    Returns:
        The gate's partition. None if there is none, because the partition of such messages is not predicted, or otherwise.
    """
    if key is None or not hashing:
        return partition if partition >= 0 else None
    if len(key) > _LONGEST_KEY:
        return None
    predicted = _hashed(key, count)
    return predicted if partition in (-1, predicted) else None


class _Gate(Generic[T]):
    """A gate with a probe on its way, or with messages that it holds.

    Attributes:
        proved: whether its probe has an offset.
        under_way: whether its probe is on its way.
        foreign: whether that is a message which a new producer sends again; see :meth:`TopicGates.shut`.
    """

    __slots__ = ("foreign", "held", "proved", "under_way")

    def __init__(self) -> None:
        self.held: deque[T] = deque()
        self.under_way = True
        self.proved = self.foreign = False


class TopicGates(Generic[T]):
    """The gates of one topic that are not open yet.

    A gate is closed until a first message comes, which is sent: its probe. Later messages are held, in order, until the
    probe has an offset; if it fails, the next one is the probe. Then the held messages are sent, and the gate is open.

    Args:
        layout: of the topic.
        hashing: whether librdkafka hashes keys; else it chooses at random.

    Attributes:
        closed: partitions whose gate is not open.
        layout: of the topic.
        generation: another object for each producer, so that the result of an earlier one's probe can be told.
    """

    def __init__(self, layout: Layout, *, hashing: bool) -> None:
        self._hashing = hashing
        self.layout = layout
        self._probing: dict[int, _Gate[T]] = {}
        self.closed = set(layout.partitions)
        self.generation = object()

    def choose(self, key: bytes | None, partition: int) -> tuple[int, int]:
        """Return where a message will go, and what librdkafka must be told.

        librdkafka hashes keys itself, because it is the first to learn of new partitions.

        Args:
            key: of the message.
            partition: what the message asks for; -1 for none.

        Returns:
            (partition or :data:`UNKNOWN`, partition or -1).
        """
        if partition >= 0:
            return partition, partition
        if key is not None and self._hashing:
            return (_hashed(key, self.layout.count) if len(key) <= _LONGEST_KEY else UNKNOWN), -1
        writable = self.layout.writable
        if not writable:
            return UNKNOWN, -1
        chosen = random.choice(writable)
        if chosen in self._probing:  # the message would wait: take a partition where it does not
            chosen = random.choice([at for at in writable if at not in self._probing] or [chosen])
        return chosen, chosen

    def all_open(self, keys: Iterable[bytes | None]) -> bool:
        """Return whether messages without a partition pass without :meth:`choose`; if not, ask it for each.

        Args:
            keys: the different keys of the messages.
        """
        if not self._hashing:
            return False
        for key in keys:
            if key is None or len(key) > _LONGEST_KEY or _hashed(key, self.layout.count) in self.closed:
                return False
        return True

    def shut(self, busy: Collection[int] = ()) -> list[int]:
        """Close all gates again: nothing proves that the leaders know the new producer, and the results of earlier probes do not count.

        Args:
            busy: partitions to which a message is on its way that the producer before had; its result is a probe's.

        Returns:
            The partitions for which to call :meth:`next`.
        """
        self.generation = object()
        for partition in busy:
            self._probing.setdefault(partition, _Gate())
        self.closed = {*self.layout.partitions, *self._probing}
        for partition, gate in self._probing.items():
            gate.proved = False
            gate.under_way = gate.foreign = partition in busy
        return [partition for partition in self._probing if partition not in busy]

    def found(self, layout: Layout) -> list[int]:
        """Correct what is known of the topic.

        Args:
            layout: as a look-up has found it.

        Returns:
            The partitions for which to call :meth:`next`: they do not exist any more.
        """
        known = self.layout
        if self._probing:
            writable = tuple([at for at in layout.writable if at in known.partitions])
            self.layout = Layout(known.partitions, writable)
        else:
            self.closed.update(at for at in layout.partitions if at not in known.partitions)
            self.layout = layout
        gone = self.closed.difference(layout.partitions)
        for partition in gone:
            self.drop(partition)
        return list(gone)

    def drop(self, partition: int) -> None:
        """Open the gate of a partition that does not exist, for what it holds; choose that partition no more."""
        writable = tuple([at for at in self.layout.writable if at != partition])
        self.layout = Layout(self.layout.partitions, writable)
        gate = self._probing.get(partition)
        if gate is None:
            self.closed.discard(partition)
        elif not gate.foreign:
            gate.proved = True

    def idle(self) -> bool:
        """Return whether no message is held, and none that a new producer sends again is waited for."""
        return not any(gate.held or gate.foreign for gate in self._probing.values())

    def admit(self, partition: int) -> bool:
        """Return whether a message may be sent to a closed partition, as its probe; else it must be held."""
        if partition in self._probing:
            return False
        self._probing[partition] = _Gate()
        return True

    def withdraw(self, partition: int) -> None:
        """Undo :meth:`admit`: the probe was not sent."""
        del self._probing[partition]

    def hold(self, partition: int, message: T) -> bool:
        """Keep a message that was not admitted. Return whether it is the only one held for its partition.

        Args:
            partition: one that has a probe: :meth:`admit` has returned False.
            message: goes behind those held before.
        """
        held = self._probing[partition].held
        held.append(message)
        return len(held) == 1

    def landed(self, partition: int, actual: int | None) -> list[int]:
        """Note the result of a probe.

        Args:
            partition: where it was expected to go.
            actual: where it has an offset; None if it failed.

        Returns:
            The partitions for which to call :meth:`next`.
        """
        if actual is not None and actual != partition:
            # The topic has grown, and keys go elsewhere than predicted: let everything pass.
            self._probing[partition].foreign = False
            passing = [each for each, gate in self._probing.items() if not gate.foreign]
            for each in passing:
                self._probing[each].proved = True
            self.closed.intersection_update(self._probing)
            return passing
        gate = self._probing[partition]
        gate.proved, gate.under_way, gate.foreign = actual is not None, False, False
        return [partition]

    def next(self, partition: int) -> tuple[T, bool] | None:
        """Take the message to send next.

        Returns:
            (message, whether it is a probe): after a probe, wait for :meth:`landed`. None if none is left.
        """
        gate = self._probing.get(partition)
        if gate is None or (gate.under_way and not gate.proved):
            return None
        if gate.held:
            return gate.held.popleft(), not gate.proved
        if gate.proved:
            self.closed.discard(partition)
        del self._probing[partition]
        return None

    def sent(self, partition: int) -> None:
        """Note that the probe which :meth:`next` returned is on its way."""
        self._probing[partition].under_way = True

    def put_back(self, partition: int, message: T) -> None:
        """Undo :meth:`next`.

        Args:
            partition: as for :meth:`next`.
            message: what it has returned.
        """
        self._probing[partition].held.appendleft(message)

    def held(self, partition: int) -> deque[T]:
        """Return the messages that are held for a partition, in order."""
        gate = self._probing.get(partition)
        return deque() if gate is None else gate.held

    def probing(self) -> tuple[int, ...]:
        """Return the partitions that have a probe on its way or messages held."""
        return tuple(self._probing)
