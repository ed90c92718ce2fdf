"""Filling the pipeline's topics."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Producer


def produce(producer: Producer, topic: str, pool: Sequence[bytes], count: int, partitions: int) -> None:
    """Messages of the pool in turn, spread over the partitions; as fast as it goes, and flushed."""
    for at in range(count):
        while True:
            try:
                producer.produce(topic, pool[at % len(pool)], b"%d" % at, at % partitions)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()


def fill(
    bootstrap: str, topic: str, pool: Sequence[bytes], count: int, partitions: int, codec: str = "none"
) -> None:
    """The same with a producer made for it."""
    produce(
        Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 50,
                "batch.size": 1 << 20,
                "compression.type": codec,
                "queue.buffering.max.kbytes": 1 << 19,
            }
        ),
        topic,
        pool,
        count,
        partitions,
    )
