"""Compare what clients were told with what Kafka holds. Offline: it reads the records of a run and nothing else.

It proves, or finds the contrary of:

- **loss**: each message that was acknowledged to its producer is in Kafka, and each message in Kafka was
  delivered to each group, or given up by a named rule;
- **order**: within a partition, first deliveries follow the offsets;
- **commits**: no offset was committed before everything below it had been acknowledged;
- **progress**: no partition with messages was silent for longer than a bound;
- **refusals**: no message was refused without a reason;
- **placement**: messages went to the partition that they asked for, or that the hash of their key names;
- **duplicates**: each repeated delivery has an event that explains it.
"""

from __future__ import annotations

from pathlib import Path

from tests.chaos.kit.checker import accepted, commits, duplicates, loss, order, placement, progress
from tests.chaos.kit.checker.evidence import Evidence
from tests.chaos.kit.checker.outcome import Outcome


def check(folder: Path) -> Outcome:
    """Check the records in a folder."""
    evidence = Evidence(folder)
    outcome = Outcome(evidence)
    for rule in (loss, accepted, order, commits, progress, placement, duplicates):
        rule.check(evidence, outcome)
    return outcome


__all__ = ["Outcome", "check"]
