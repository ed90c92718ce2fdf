"""The figures of librdkafka that matter: how fast each broker answers, and what waits to be sent.

librdkafka hands over all its statistics as one JSON text every :data:`INTERVAL` (see its STATISTICS.md). A few fields are
decoded, in the client's own thread; the rest is skipped, not built.
"""

from __future__ import annotations

import time
from typing import Any, Final

import msgspec

INTERVAL: Final = 5.0
"""Seconds. Making the text takes librdkafka some 50 microseconds for a cluster of three brokers."""


class _Window(msgspec.Struct):
    cnt: int = 0
    p99: int = 0


class _Broker(msgspec.Struct):
    name: str = ""
    nodeid: int = -1
    state: str = ""
    outbuf_cnt: int = 0
    rtt: _Window = msgspec.field(default_factory=_Window)


class _All(msgspec.Struct):
    msg_cnt: int = 0
    msg_size: int = 0
    brokers: dict[str, _Broker] = msgspec.field(default_factory=dict)


class BrokerFigures(msgspec.Struct, frozen=True):
    """A broker as a client sees it.

    Attributes:
        name: host and port.
        up: whether it is connected.
        queued: requests that wait to be sent.
        rtt: the 99th percentile of the time of its answers within the last interval, in seconds; None: it had none to give.
    """

    name: str
    up: bool
    queued: int
    rtt: float | None


class Statistics:
    """The latest statistics of one client. Its thread writes them, and any thread may read."""

    def __init__(self) -> None:
        self.at = 0.0
        """When they came (``time.monotonic``); 0: they have not."""
        self.messages = 0
        """Messages that wait to be sent or to be acknowledged by a broker."""
        self.bytes = 0
        self.brokers: tuple[BrokerFigures, ...] = ()
        self._decode = msgspec.json.Decoder(_All).decode

    def settings(self) -> dict[str, Any]:
        """Return the client's settings that bring the statistics here."""
        return {"statistics.interval.ms": round(INTERVAL * 1000), "stats_cb": self.take}

    def take(self, text: str) -> None:
        """Take what librdkafka says; a text that cannot be read leaves the earlier figures."""
        try:
            found = self._decode(text)
        except msgspec.DecodeError:
            return
        self.messages, self.bytes = found.msg_cnt, found.msg_size
        self.brokers = tuple(
            BrokerFigures(
                each.name.partition("/")[0],
                each.state == "UP",
                each.outbuf_cnt,
                each.rtt.p99 / 1e6 if each.rtt.cnt else None,
            )
            for each in found.brokers.values()
            if each.nodeid >= 0
        )
        self.at = time.monotonic()


__all__ = ["INTERVAL", "BrokerFigures", "Statistics"]
