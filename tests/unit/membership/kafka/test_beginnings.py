"""What is known of topics goes from one session of a group to the next, and is bounded."""

from __future__ import annotations

from typing import Any

from pixy.config.model import Consumer
from pixy.membership.kafka.beginnings import Beginnings, Memory

NO_LOOKUPS: Any = None


def test_topics_of_earlier_sessions_are_forgotten_above_the_bound_the_oldest_first() -> None:
    """Clients choose the names, and a group comes and goes."""
    conf, memory = Consumer(max_topics=3), Memory()
    for number in range(10):
        Beginnings(conf, NO_LOOKUPS, memory).subscribed({f"t{number}": 1})
    assert memory.counts == {"t7": 1, "t8": 1, "t9": 1}
    session = Beginnings(conf, NO_LOOKUPS, memory)
    assert session.subscribed({"t7": 5, "new": 2}) == []
    assert memory.counts == {"t7": 1, "t9": 1, "new": 2}, "t7 has four more by now"
    assert session.subscribed({"new": 2}) == ["t7"] and memory.counts == {"t9": 1, "new": 2}
