"""Sarama's rule for the partition of a key, which librdkafka's ``fnv1a`` partitioners implement in C."""

from __future__ import annotations


def fnv1a_partition(key: bytes, partitions: int) -> int:
    """Return the partition of a key: FNV-1a 32 with Sarama's sign rule.

    Args:
        key: of the message.
        partitions: how many the topic has, including those without a leader.
    """
    value = 2166136261
    for byte in key:
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    signed = value - 2**32 if value >> 31 else value
    return abs(signed) % partitions
