"""Accepted messages: what an asynchronous request handed to a daemon is written, or given up by a rule.

Nobody is told what became of such a message, so Kafka alone says it. docs/delivery.md has the rules: the daemon
died, or Kafka was away for as long as the daemon waits. A topic that is made again is no such rule, with
however many partitions: what was accepted for it afterwards must be there.
"""

from __future__ import annotations

import itertools
from typing import Any

from tests.chaos.kit.checker.evidence import Evidence
from tests.chaos.kit.checker.outcome import Outcome

WAITS = 20.0
"""Seconds after which a daemon gives a message up: ``retry_max`` times ``retry_backoff``, plus ``timeout``."""
PROMPT = 2.0
"""Seconds within which a message is written if nothing is in the way."""
AWAY = 5.0
"""Seconds of other faults that are long enough to keep a message of a topic made again from being written in time."""
_CRASHES = ("crash-producer", "crash-cluster")


def check(evidence: Evidence, outcome: Outcome) -> None:
    """Add each accepted message that is not in Kafka, and that no rule gives up."""
    written = {
        topic: {name for life in lives for log in life.logs.values() for name in log.ids}
        for topic, lives in evidence.lives.items()
    }
    for each in evidence.accepted():
        topic = each["topic"]
        for name in each["ids"]:
            outcome.figures["accepted"] += 1
            if name in written[topic]:
                continue
            if why := _explain(evidence, each):
                outcome.given_up[f"accepted, and {why}"] += 1
            else:
                text = f"{topic}: {name} was accepted by d{each['d']}, and is not in Kafka"
                outcome.find("loss", text, each["t1"], each["t0"])


def _explain(evidence: Evidence, each: dict[str, Any]) -> str:
    """Return the rule that gives a message up; empty for none."""
    topic, d, t0 = each["topic"], each["d"], each["t0"]
    disturbed = evidence.windows.any(t0, t0 + PROMPT, topic, daemons=(d,), others=True)
    latest = t0 + (PROMPT if disturbed is None else WAITS)
    for life, after in itertools.pairwise(evidence.lives[topic]):
        # It may have been written after somebody looked what the topic held, and before its deletion.
        if t0 < after.since and latest >= (life.seen or life.since):
            return "its topic was deleted"
    for t, of in evidence.deaths:
        if of == d and t0 <= t <= t0 + WAITS:
            return "its daemon died"
    for fault in evidence.faults:
        if fault.kind in _CRASHES and fault.daemon == d and fault.t0 <= t0 + WAITS and t0 <= fault.t1:
            return fault.kind
    if evidence.windows.troubled(t0, t0 + WAITS, topic, d) >= AWAY:
        return "Kafka was away"
    return ""
