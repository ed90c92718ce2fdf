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
    for name, proxy in proxies.items():
        brokers = Brokers(settings.admin(proxy))
        said = -_SAY_EVERY
        while not stop.is_set():
            try:
                await asyncio.to_thread(brokers.topics, [])
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
            try:
                await asyncio.wait_for(stop.wait(), _PAUSE)
            except TimeoutError:
                continue
    return not stop.is_set()


__all__ = ["kafka_answers"]
