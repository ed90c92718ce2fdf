"""Reads headers again that confluent-kafka cannot decode, before their message goes to a client.

:mod:`pixy.kafka.record_headers` says why; the cluster's fetcher bounds how many are read at the same time.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from pixy.engine import shares
from pixy.engine.fetcher import ReadHeaders
from pixy.errors import PixyError
from pixy.kafka.record_headers import replace_headers, unreadable
from pixy.wire.types import RecordHeaders, TopicPartition

logger = logging.getLogger("pixy.engine")

Ask = Callable[[ReadHeaders], Awaitable[dict[int, RecordHeaders]]]


async def read_headers(messages: Iterable[Any], ask: Ask) -> None:
    """Give messages their headers back. If that fails, a message has none, and a warning is logged.

    Args:
        messages: any; those whose headers are readable stay as they are.
        ask: asks the fetcher.
    """
    for partition, odd in unreadable(messages).items():
        problem: object = "no longer in the log, or it took too long"
        try:
            replace_headers(
                odd,
                await ask(
                    ReadHeaders(*partition, frozenset(each.offset() for each in odd), shares.caller.get())
                ),
            )
        except PixyError as error:
            problem = error
        _report(partition, unreadable(odd).get(partition, []), problem)


def _report(partition: TopicPartition, left: list[Any], problem: object) -> None:
    if left:
        logger.warning(
            "%s/%d: delivering %d messages, from offset %d on, without their headers, whose names are not UTF-8: %s",
            *partition,
            len(left),
            left[0].offset(),
            problem,
        )


__all__ = ["read_headers"]
