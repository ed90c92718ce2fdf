"""Fill the topics of the pipeline's benchmarks."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Producer


def produce(producer: Producer, topic: str, pool: Sequence[bytes], count: int, partitions: int) -> None:
    """Produce messages as fast as the producer accepts them, and flush.

    Args:
        producer: the producer.
        topic: the topic.
        pool: values, used in turn.
        count: messages to produce.
        partitions: partitions of the topic, used in turn.
    """
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
    """Produce messages as :func:`produce` does, with a new producer that compresses with ``codec``."""
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
