"""``/tail``: the newest messages of a topic, for a page that asks again and again. Outside any group: nothing is consumed by it."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from pixy.api.admin.access import error
from pixy.api.admin.queries import Wrong, in_words, number, text
from pixy.api.rest.responses import status_of
from pixy.auth.rules import Access
from pixy.engine.consume.long_polls import Message
from pixy.engine.engine import Engine
from pixy.engine.guarded import AnyCluster
from pixy.engine.life.story import shown
from pixy.errors import OffsetOutOfRange, PixyError
from pixy.kafka.fetcher import Read

MOST: Final = 50
"""Messages of one partition in one answer; what came before them meanwhile is skipped, and counted."""
READS: Final = 4
"""Partitions that are read for one answer, those with the most news first; the others have their turn in the next."""
PARTITIONS: Final = 500
"""Partitions that are watched."""
_BYTES: Final = 262_144
"""Bytes of one partition in one answer; its first message may have more."""
_TRIES: Final = 4
"""Reads of one partition for one answer."""
_WAIT: Final = 1.0
"""Seconds that a read may wait for messages that the log should have."""
_AFTER: Final = re.compile(r"[0-9]{1,10}:[0-9]{1,19}(,[0-9]{1,10}:[0-9]{1,19})*")
_LONGEST: Final = 32 * PARTITIONS


class Tail:
    """The handler.

    Args:
        engine: reads, as the caller's Kafka identity if he has one.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._inspector = engine.inspector()

    async def tail(self, request: web.Request) -> web.Response:
        """Answer what has come to ``topic`` (or one ``partition``) since ``after``, which is the former answer's; without it the last messages.

        It needs ``consume`` on the topic.
        """
        cluster, topic = self._engine.config.cluster_name(text(request, "cluster")), text(request, "topic")
        try:
            return web.json_response(await self._tail(request, cluster, topic))
        except PixyError as problem:
            return error(status_of(problem), in_words(problem, cluster, topic))

    async def _tail(self, request: web.Request, cluster: str, topic: str) -> dict[str, Any]:
        engine = self._engine
        client = engine.cluster(cluster)
        only = number(request, "partition", 0, 0, 2**31 - 1) if "partition" in request.query else None
        after = _after(request)
        if engine.guard is not None:
            with engine.guard.begin(engine.guard.caller(), Access("consume", cluster, topic)):
                ends = await self._inspector.at_time(cluster, topic, -1)
        else:
            ends = await self._inspector.at_time(cluster, topic, -1)
        if only is not None and only not in ends:
            raise Wrong(f"{topic} has no partition {only}")
        watched = [only] if only is not None else sorted(ends)[:PARTITIONS]
        begins: Mapping[int, int] = {}
        if not after.keys() >= set(watched):
            begins = await self._inspector.at_time(cluster, topic, -2)
        # A topic that was made again ends below what was read of the former one.
        at = {
            each: min(after.get(each, max(begins.get(each, 0), ends[each] - MOST)), ends[each])
            for each in watched
        }
        rows: list[dict[str, Any]] = []
        skipped = 0
        for each in sorted(watched, key=lambda each: at[each] - ends[each])[:READS]:
            if at[each] < ends[each]:
                start = max(at[each], ends[each] - MOST)
                found = await _read(client, topic, each, start, ends[each])
                skipped += start - at[each]
                rows += map(_row, found)
                # Nothing: there are only markers of transactions, or retention was faster.
                at[each] = (found[-1].offset() or 0) + 1 if found else ends[each]
        rows.sort(key=lambda row: (row["timestamp"] or 0.0, row["partition"], row["offset"]))
        return {
            "at": time.time(),
            "cluster": cluster,
            "topic": topic,
            "partitions": len(watched),
            "hidden": len(ends) - len(watched) if only is None else 0,
            "skipped": skipped,
            "after": ",".join(f"{each}:{offset}" for each, offset in at.items()),
            "rows": rows,
        }


async def _read(client: AnyCluster, topic: str, partition: int, start: int, end: int) -> list[Message]:
    """Read messages of a partition up to an offset. A read returns what is there at once, so it takes several."""
    found: list[Message] = []
    try:
        for _ in range(_TRIES):
            part = await client.fetch(
                Read(topic, partition, start, None, MOST - len(found), _BYTES // _TRIES, _WAIT)
            )
            found += part
            start = start if not part else (part[-1].offset() or 0) + 1
            if not part or start >= end or len(found) >= MOST:
                break
    except OffsetOutOfRange:
        pass
    return found


def _row(message: Message) -> dict[str, Any]:
    kind, stamp = message.timestamp()
    value: bytes | None = message.value()
    return {
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": stamp / 1000 if kind and stamp >= 0 else None,
        "key": shown(message.key()),
        "value": shown(value),
        "value_size": None if value is None else len(value),
    }


def _after(request: web.Request) -> dict[int, int]:
    given = request.query.get("after", "")
    if not given:
        return {}
    if len(given) > _LONGEST or not _AFTER.fullmatch(given):
        raise Wrong("after must be what the former answer has")
    pairs = (each.split(":") for each in given.split(","))
    return {int(partition): int(offset) for partition, offset in pairs}


__all__ = ["MOST", "PARTITIONS", "READS", "Tail"]
