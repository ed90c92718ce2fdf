"""Chooses the partition of a message.

``hash`` is FNV-1a 32 with Sarama's sign rule. librdkafka's ``fnv1a`` partitioners implement exactly that
in C, so the daemon leaves hashing and random choice to it; :func:`fnv1a_partition` states the rule, for the gates
(:mod:`pixy.kafka.partition_gates`), tests and tools. ``roundrobin`` is implemented here.
"""

from __future__ import annotations

from pixy.kafka.partitioning import fnv1a_partition

LIBRDKAFKA_PARTITIONER = {
    "hash": "fnv1a_random",
    "random": "random",
    "roundrobin": "random",  # librdkafka chooses only while no partition is writable
}

__all__ = ["LIBRDKAFKA_PARTITIONER", "RoundRobinPartitioner", "fnv1a_partition"]


class RoundRobinPartitioner:
    """Chooses the writable partitions in turn, beginning with the first."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0

    def choose(self, writable: tuple[int, ...]) -> int:
        """Return the next of the sorted writable partitions; -1 if there is none."""
        if not writable:
            return -1
        chosen = writable[self._next % len(writable)]
        self._next += 1
        return chosen
