"""Findings: rules that name the cause of trouble, its evidence, since when, and what to do. Pure.

A :class:`Snapshot` goes in, a list of :class:`Finding` comes out. :mod:`pixy.console` makes snapshots of a running daemon;
tests make them by hand. A rule is a function of a snapshot; its thresholds are constants beside it, with the reason.
"""

from __future__ import annotations

import logging
from typing import Final

from pixy.findings import consuming, daemon
from pixy.findings.finding import Finding
from pixy.findings.snapshot import Snapshot

logger = logging.getLogger("pixy.findings")

RULES: Final = (*daemon.RULES, *consuming.RULES)
MOST: Final = 200
"""Findings of one rule; a thousand partitions of one stuck consumer need no thousand lines."""
NAMES: Final = (
    "behind-one-message", "blocked-loop", "broker-slow", "commits-failing", "crowded-mailbox", "group-failing", "journal-dropping",
    "kafka-unreachable", "leaderless", "never-acked", "partition-without-owner", "paused", "paused-and-forgotten",
    "poison-message", "quota-reached", "rebalance-storm", "short-of-processor", "subscription-expired", "unknown-topic",
)  # fmt: skip
"""The names of all findings: values of a metric's label."""


def find(snapshot: Snapshot) -> list[Finding]:
    """Apply all rules: errors first, then the oldest first. A rule that fails is logged, and the others count."""
    found: list[Finding] = []
    for rule in RULES:
        try:
            found += [each for each, _ in zip(rule(snapshot), range(MOST), strict=False)]
        except Exception:
            logger.exception("rule %s has failed", rule.__name__)
    return sorted(found, key=lambda each: (each.severity != "error", -each.age))


__all__ = ["MOST", "NAMES", "RULES", "Finding", "Snapshot", "find"]
