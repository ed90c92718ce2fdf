"""What only Kafka knows of the groups that are served here: lag, owners, leaders. Asked while somebody looks, in rounds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from pixy.console.history import Rates, Since
from pixy.engine.inspector import Inspector
from pixy.errors import PixyError

logger = logging.getLogger("pixy.console")

EVERY: Final = 10.0
"""Seconds between two rounds."""
MOST: Final = 100
"""Pairs of group and topic in one round; of more, the next ones follow in the next round."""
RATE_WINDOW: Final = 120.0

Pair = tuple[str, str, str]
"""Cluster, group and topic."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What Kafka said about a pair.

    Attributes:
        lags: by partition, of the committed offsets.
        rates: messages a second by which they grow, as far as known.
        leaderless: partitions without a leader.
        unowned: partitions that no member owns, and ``unowned_for`` seconds so far.
    """

    lags: dict[int, int] = field(default_factory=dict)
    rates: dict[int, float] = field(default_factory=dict)
    leaderless: tuple[int, ...] = ()
    unowned: tuple[int, ...] | None = None
    unowned_for: float = 0.0


class KafkaFacts:
    """Keeps what Kafka said last.

    Args:
        inspector: asks it.
        now: seconds.
    """

    def __init__(self, inspector: Inspector, now: Callable[[], float]) -> None:
        self._inspector = inspector
        self._now = now
        self._known: dict[Pair, Facts] = {}
        self._rates: Rates[tuple[str, str, str, int]] = Rates(RATE_WINDOW)
        self._unowned: Since[Pair] = Since()
        self._asked_at = float("-inf")
        self._next = 0
        self._round: asyncio.Task[None] | None = None

    def of(self, pair: Pair) -> Facts | None:
        """Return what is known of a pair."""
        return self._known.get(pair)

    def want(self, owned: dict[Pair, set[int]]) -> None:
        """Begin a round if the last one is old enough. It goes on beside the caller.

        Args:
            owned: the pairs that count now, with the partitions that this daemon owns. Others are forgotten.
        """
        for gone in self._known.keys() - owned.keys():
            del self._known[gone]
        if self._now() - self._asked_at < EVERY or (self._round is not None and not self._round.done()):
            return
        self._asked_at = self._now()
        pairs = sorted(owned)
        begin = self._next % max(1, len(pairs))
        chosen = (pairs[begin:] + pairs[:begin])[:MOST]
        self._next = begin + len(chosen)
        self._round = asyncio.create_task(self._ask([(pair, owned[pair]) for pair in chosen]))

    async def close(self) -> None:
        """End a round that is under way."""
        if self._round is not None:
            self._round.cancel()
            await asyncio.wait((self._round,))

    async def _ask(self, pairs: Sequence[tuple[Pair, set[int]]]) -> None:
        for pair, owned in pairs:  # one after another: nobody waits for it, and Kafka has other things to do
            try:
                self._known[pair] = await self._facts(pair, owned)
            except PixyError as error:
                logger.debug("%s: %s", pair, error)

    async def _facts(self, pair: Pair, owned: set[int]) -> Facts:
        cluster, group, topic = pair
        offsets = await self._inspector.offsets(cluster, topic, group)
        partitions = await self._inspector.partitions(cluster, topic)
        now = self._now()
        lags = {each.partition: max(0, each.lag) for each in offsets}
        for number, lag in lags.items():
            self._rates.note((*pair, number), lag, now)
        rates = {number: self._rates.rate((*pair, number)) for number in lags}
        all_owned = set(owned)
        if len(all_owned) < len(partitions):
            all_owned |= await self._inspector.owned(cluster, topic, group)
        unowned = tuple(each.partition for each in partitions if each.partition not in all_owned)
        unowned_for = self._unowned.same(pair, bool(unowned), now)
        return Facts(
            lags,
            {number: rate for number, rate in rates.items() if rate is not None},
            tuple(each.partition for each in partitions if each.leader < 0),
            unowned,
            unowned_for if unowned else 0.0,
        )


__all__ = ["EVERY", "Facts", "KafkaFacts", "Pair"]
