"""The producer of a cluster: librdkafka sends, one thread collects the delivery reports.

Reports are appended to a list in librdkafka's callback and handed to the loop once per wake-up: the
thread and the loop fight for the GIL, so the less it does the better.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from pixy.kafka.errors import translate
from pixy.kafka.settings import Settings

Headers = Sequence[tuple[str, bytes | None]]
Report = tuple[Any, Any, int, int]
"""(token, confluent-kafka's error or None, partition, offset)"""

_POLL = 0.1


class QueueFull(Exception):
    """librdkafka's buffer is full: try again after the next delivery report."""


class ProducerClient:
    """Thin, typed and non-blocking; everything that waits has a coroutine.

    Args:
        settings: see :mod:`pixy.kafka.settings`.
        deliver: called on the loop with each list of reports.
        failed: called on the loop with an error after which this client can not go on.
    """

    def __init__(
        self, settings: Settings, deliver: Callable[[list[Report]], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._deliver = deliver
        self._failed = failed
        self._reports: list[Report] = []
        self._closing = False
        self.down: str = ""
        """Why no broker can be reached, as librdkafka last said; empty when not known."""
        self._producer = Producer({**settings, "error_cb": self._error})
        self._thread = threading.Thread(target=self._poll, name="kafka-producer", daemon=True)
        self._thread.start()

    def send(
        self, topic: str, value: bytes | None, key: bytes | None, headers: Headers | None,
        partition: int, token: Any,
    ) -> None:
        """Hand a message to librdkafka; its report will carry ``token``.

        Raises:
            QueueFull: no room now.
            PixyError: librdkafka refuses the message.
        """
        try:
            self._producer.produce(
                topic, value, key, partition, on_delivery=partial(self._report, token),
                headers=headers or None,
            )
        except BufferError as error:
            raise QueueFull from error
        except (KafkaException, TypeError, ValueError) as error:
            raise translate(error) from error

    async def metadata(self, topic: str | None, timeout: float) -> dict[str, Any]:
        """Topics by name as confluent-kafka's ``TopicMetadata``; may create the one asked for."""
        found = await asyncio.to_thread(self._list_topics, topic, timeout)
        return dict(found.topics)

    def brokers(self, timeout: float) -> str:
        """Blocking: the brokers' addresses, comma separated (for a sandbox's other clients)."""
        found = self._list_topics(None, timeout)
        return ",".join(f"{broker.host}:{broker.port}" for broker in found.brokers.values())

    async def close(self, timeout: float) -> int:
        """Send what is buffered, for at most ``timeout`` seconds; return how many were given up."""
        left = await asyncio.to_thread(self._flush, timeout)
        self._closing = True
        await asyncio.to_thread(self._thread.join, 5.0)
        return left

    # -- in other threads -------------------------------------------------------------------------

    def _list_topics(self, topic: str | None, timeout: float) -> Any:
        try:
            if topic is None:
                return self._producer.list_topics(timeout=timeout)
            return self._producer.list_topics(topic, timeout=timeout)
        except KafkaException as error:
            raise translate(error) from error

    def _flush(self, timeout: float) -> int:
        left = self._producer.flush(timeout)
        if left:
            self._producer.purge()
            self._producer.flush(1.0)
        self._hand_over()
        return int(left)

    def _report(self, token: Any, error: Any, message: Any) -> None:
        self._reports.append((token, error, message.partition(), message.offset()))

    def _error(self, error: KafkaError) -> None:
        if error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._AUTHENTICATION, KafkaError._SSL):
            self.down = error.str()
        if error.fatal():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._failed, translate(error))

    def _poll(self) -> None:
        poll = self._producer.poll
        while not self._closing:
            if poll(_POLL):
                self._hand_over()

    def _hand_over(self) -> None:
        reports, self._reports = self._reports, []
        if reports:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._deliver, reports)
