"""Subscriptions find their partitions; offsets that Kafka lacks are refused."""

from __future__ import annotations

import pytest

from pixy.pipeline.archive.subscription import Subscription, check_job_name, check_offsets
from pixy.pipeline.errors import SourceError, UsageError


def test_subscriptions() -> None:
    topics = {"a": 2, "b": 1, "ab": 1}
    assert Subscription(("b", "a")).find(topics) == [("b", 0), ("a", 0), ("a", 1)]
    assert Subscription(pattern="a.*").find(topics) == [("a", 0), ("a", 1), ("ab", 0)]
    with pytest.raises(SourceError, match=r"topic c, d does not exist"):
        Subscription(("a", "c", "d")).find(topics)
    with pytest.raises(SourceError, match=r"no topic matches the pattern 'x'"):
        Subscription(pattern="x").find(topics)
    for bad in ({"topics": ("a/b",)}, {"pattern": "("}, {}, {"topics": ("a",), "pattern": "a"}):
        with pytest.raises(UsageError):
            Subscription(**bad)  # type: ignore[arg-type]
    names = {
        Subscription(("a", "b")).job_name("c"),
        Subscription(("a",)).job_name("c"),
        Subscription(pattern="a").job_name("c"),
    }
    assert len(names) == 3
    assert all(check_job_name(name) == name for name in names)
    with pytest.raises(UsageError, match=r"--job"):
        check_job_name("../x")


def test_missing_offsets_are_named() -> None:
    check_offsets({("t", 0): 5}, {("t", 0): (5, 5), ("t", 1): (0, 9)})
    with pytest.raises(SourceError, match=r"offsets 5 to 7 of t/0 are out of range"):
        check_offsets({("t", 0): 5}, {("t", 0): (8, 9)})
    with pytest.raises(SourceError, match=r"t/0 ends at offset 4, but it was archived up to 5"):
        check_offsets({("t", 0): 5}, {("t", 0): (0, 4)})
    with pytest.raises(SourceError, match=r"partitions of topic t are gone"):
        check_offsets({("t", 0): 5}, {("u", 0): (0, 4)})
