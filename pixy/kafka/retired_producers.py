"""librdkafka producers that were replaced: they give back what they still have, then they are destroyed.

Destroying a producer waits for librdkafka's threads. One that asks a name server, which does not answer while a
Kubernetes cluster restarts, takes half a minute. So a thread of its own destroys each, once the system allows one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from confluent_kafka import KafkaException, Producer

logger = logging.getLogger("pixy.kafka")

MOST = 8
"""Producers that still have messages. As many are to be expected only if librdkafka's threads hang for minutes."""


class RetiredProducers:
    """Producers that may still have messages. All methods are called in the thread that serves their callbacks.

    Attributes:
        lost: how many messages were given up without a result, because more than :data:`MOST` producers had some.
    """

    def __init__(self) -> None:
        self._owners: list[list[Producer]] = []
        self._to_destroy: list[list[Producer]] = []
        self.lost = 0

    def __len__(self) -> int:
        """Return the number of messages without a result."""
        return sum(len(owner[0]) for owner in self._owners)

    def __bool__(self) -> bool:
        """Return whether some producer has such messages, or had when it was polled last, or waits for a thread that destroys it."""
        return bool(self._owners or self._to_destroy)

    def add(self, owner: list[Producer]) -> None:
        """Take over a producer.

        Args:
            owner: a list that contains it, and nothing else refers to it.
        """
        self._owners.append(owner)
        self._destroy_empty()
        if len(self._owners) > MOST:
            oldest = self._owners.pop(0)
            self.lost += len(oldest[0])
            logger.error(
                "%d messages are given up, and nobody hears of them: they are with the oldest of %d replaced producers, which give nothing back",
                len(oldest[0]),
                MOST + 1,
            )
            self._to_destroy.append(oldest)
            self._destroy_empty()

    def poll(self) -> None:
        """Serve callbacks, and destroy producers that have no messages any more."""
        for owner in self._owners:
            _serve(owner[0].poll, 0.0)
        self._destroy_empty()

    def give_up(self, until: float) -> None:
        """Purge all messages and serve their callbacks.

        Args:
            until: when to stop waiting for them (``time.monotonic``).
        """
        for owner in self._owners:
            owner[0].purge()
            _serve(owner[0].flush, max(0.0, until - time.monotonic()))

    def _destroy_empty(self) -> None:
        self._to_destroy += [owner for owner in self._owners if not len(owner[0])]
        self._owners = [owner for owner in self._owners if len(owner[0])]
        while self._to_destroy and _destroyed(self._to_destroy[0]):
            del self._to_destroy[0]


def _destroyed(owner: list[Producer]) -> bool:
    """Begin to destroy a producer. Return whether the system allows a thread for that."""
    # The list has the last reference: whoever empties it destroys the producer.
    try:
        threading.Thread(target=owner.clear, name="kafka-producer-end", daemon=True).start()
    except RuntimeError:
        return False
    return True


def _serve(call: Callable[[float], int], timeout: float) -> None:
    try:
        call(timeout)
    except KafkaException as error:
        if not error.args[0].fatal():  # such an error has no consequence for the producer of today
            raise


__all__ = ["MOST", "RetiredProducers"]
