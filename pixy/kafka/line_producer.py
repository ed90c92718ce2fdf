"""Write lines to a Kafka topic, for :class:`pixy.json_lines.JsonLines`: each line is a message.

The client is its own, so that neither its queue nor its failures touch what clients produce. A message is sent again until
Kafka has it or its time is over, one request at a time: messages of a partition stay in order, and may occur twice.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from confluent_kafka import KafkaException, Producer

from pixy.json_lines import FLUSH_TIME
from pixy.kafka.errors import translate
from pixy.kafka.settings import Settings

logger = logging.getLogger("pixy.kafka")

_LOOK = 0.25
"""Seconds between two looks at deliveries while messages are under way."""


class LineProducer:
    """A :class:`pixy.json_lines.Target`.

    Args:
        settings: see :func:`pixy.kafka.settings.lines`.
        topic: that is written to.
        key: names the topic in the configuration.
    """

    def __init__(self, settings: Settings, topic: str, key: str) -> None:
        self._settings = settings
        self._topic = topic
        self._key = key
        self._producer: Any = None
        self._problem = ""
        self.lost = 0

    def open(self) -> None:
        """See :class:`pixy.json_lines.Target`. The client connects by itself, whenever Kafka is there."""
        self._producer = Producer(self._settings)

    def reopen(self) -> None:
        """See :class:`pixy.json_lines.Target`."""

    def write(self, line: bytes, count: int) -> bool:
        """See :class:`pixy.json_lines.Target`."""
        try:
            self._producer.produce(self._topic, line, on_delivery=partial(self._landed, count))
        except (BufferError, KafkaException) as error:
            full = isinstance(error, BufferError)
            self._complain("the client's queue is full" if full else str(translate(error)))
            return False
        finally:
            self._producer.poll(0)
        return True

    def patience(self) -> float | None:
        """See :class:`pixy.json_lines.Target`."""
        return _LOOK if len(self._producer) else None

    def look(self) -> None:
        """See :class:`pixy.json_lines.Target`."""
        self._producer.poll(0)

    def close(self) -> None:
        """See :class:`pixy.json_lines.Target`."""
        left = self._producer.flush(FLUSH_TIME)
        if left:
            logger.error("%s: %s: %d messages were not written at the end", self._key, self._topic, left)

    def _landed(self, count: int, error: Any, _message: Any) -> None:
        if error is not None:
            self.lost += count
            self._complain(str(translate(error)))
        elif self._problem:
            self._problem = ""
            logger.info("%s: %s is written again", self._key, self._topic)

    def _complain(self, problem: str) -> None:
        """Log one line for a series of failures with the same reason."""
        if problem != self._problem:
            self._problem = problem
            logger.error("%s: %s: %s; records are dropped", self._key, self._topic, problem)


__all__ = ["LineProducer"]
