"""Patterns of topics: what they match, and what is refused because it costs too much."""

from __future__ import annotations

import resource
import time

import pytest

from pixy.engine.instances.topic_patterns import MAX_LENGTH, MAX_TIME, TopicPattern
from pixy.errors import InvalidParameter

NAMES = ["orders", "orders-1", "ORDERS", "x.orders", "__consumer_offsets", "__transaction_state"]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("orders", ["orders"]),
        ("orders.*", ["orders", "orders-1"]),
        (r"orders(?:-\d)?", ["orders", "orders-1"]),
        ("(?i)orders", ["ORDERS", "orders"]),
        (r"[\w\-.]+?orders|a{1,2}?b", ["x.orders"]),
        ("__.*", []),
        ("|orders", ["orders"]),
    ],
)
def test_a_pattern_matches_whole_names_but_no_internal_topic(pattern: str, names: list[str]) -> None:
    assert TopicPattern(pattern).matching(NAMES) == tuple(names)


@pytest.mark.parametrize(
    "pattern", ["(", "[", "a(?=b)", "(?!a)b", "(?<!a)b", r"(a)\1", "a*+", "x" * (MAX_LENGTH + 1)]
)
def test_what_is_not_understood_is_refused_with_the_reason(pattern: str) -> None:
    with pytest.raises(InvalidParameter, match=r"^topic_pattern: [a-z]"):
        TopicPattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "((((a{0,30}){0,30}){0,30}){0,30}){0,30}x",  # 4.8 GB in librdkafka
        "((((a{1,9}){1,9}){1,9}){1,9}){1,9}x",
        "x{0,1000}" * 100,
        r"\p{L}{1,1000}" * 70,
    ],
)
def test_a_costly_pattern_is_refused_before_it_costs(pattern: str) -> None:
    before, memory = time.thread_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InvalidParameter):
        TopicPattern(pattern)
    assert time.thread_time() - before < 1.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 64 << 10, "KiB"


def test_backtracking_is_not_to_be_had() -> None:
    pattern = TopicPattern("(a|a)*(a|a)*(a|a)*(a|a)*b")
    before = time.thread_time()
    assert pattern.matching(["a" * 249] * 100) == ()
    assert time.thread_time() - before < 1.0


def test_matching_ends_in_time() -> None:
    ticks = iter([0.0, 0.5, MAX_TIME + 0.1])
    with pytest.raises(InvalidParameter, match="too costly"):
        TopicPattern("a").matching(["a"] * 10, lambda: next(ticks))
