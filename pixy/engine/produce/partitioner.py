"""Which partition a message goes to.

``hash`` is FNV-1a 32 with Sarama's sign rule. librdkafka implements exactly that (its ``fnv1a``
partitioners) in C, so the daemon leaves hashing and random choice to it; :func:`fnv1a_partition`
states the rule and is what tests and tools compare with. ``roundrobin`` is ours.
"""

from __future__ import annotations

LIBRDKAFKA_PARTITIONER = {
    "hash": "fnv1a_random",
    "random": "random",
    "roundrobin": "random",  # asked only for messages whose topic has no known partition yet
}


def fnv1a_partition(key: bytes, partitions: int) -> int:
    """The partition of a key among all partitions, leaderless ones too."""
    value = 2166136261
    for byte in key:
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    signed = value - 2**32 if value >> 31 else value
    return abs(signed) % partitions


class RoundRobinPartitioner:
    """Takes the writable partitions in turn, from the first on."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0

    def choose(self, writable: tuple[int, ...]) -> int:
        """The next of the sorted, writable partitions. -1 if there is none."""
        if not writable:
            return -1
        chosen = writable[self._next % len(writable)]
        self._next += 1
        return chosen
