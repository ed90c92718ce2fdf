"""Subscriptions find their topics."""

from __future__ import annotations

import pytest

from pixy.pipeline.archive.subscription import Subscription, check_job_name
from pixy.pipeline.errors import SourceError, UsageError


def test_subscriptions() -> None:
    topics = {"a": 2, "b": 1, "ab": 1}
    assert Subscription(("b", "a")).find(topics) == ["b", "a"]
    assert Subscription(pattern="a.*").find(topics) == ["a", "ab"]
    assert Subscription(("a", "c")).find(topics) == ["a"]
    assert Subscription(("a", "c")).names(topics) == ["a", "c"]
    with pytest.raises(SourceError, match=r"topic c, d does not exist"):
        Subscription(("c", "d")).find(topics)
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
