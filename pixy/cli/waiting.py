"""Wait until the brokers of every cluster answer (``--waitForKafka``)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from pixy.config.model import Proxy
from pixy.errors import KafkaError
from pixy.kafka import settings
from pixy.kafka.brokers import Brokers, reason

logger = logging.getLogger("pixy")

_PAUSE = 1.0
_SAY_EVERY = 30.0
"""Seconds between two lines in the log about the same cluster."""


async def kafka_answers(proxies: Mapping[str, Proxy], stop: asyncio.Event) -> bool:
    """Ask each cluster until it answers. Return False if ``stop`` was set meanwhile.

    Args:
        proxies: the clusters by name.
        stop: ends the wait.
    """
    stopped = asyncio.ensure_future(stop.wait())
    for name, proxy in proxies.items():
        brokers = Brokers(settings.admin(proxy))
        said = -_SAY_EVERY
        while not stop.is_set():
            asked = asyncio.ensure_future(asyncio.to_thread(brokers.topics, []))
            try:
                # A frozen broker keeps the question for many seconds; nobody who stops the daemon waits for them.
                await asyncio.wait((asked, stopped), return_when=asyncio.FIRST_COMPLETED)
                if asked.done():
                    asked.result()
                    break
            except KafkaError as error:
                now = asyncio.get_running_loop().time()
                if now - said >= _SAY_EVERY:
                    said = now
                    logger.warning(
                        "waiting for Kafka at %s (cluster %s): %s (%s)",
                        ",".join(proxy.kafka.seed_peers),
                        name,
                        error,
                        reason(error),
                    )
            await asyncio.wait((stopped,), timeout=_PAUSE)
    stopped.cancel()
    return not stop.is_set()


__all__ = ["kafka_answers"]
