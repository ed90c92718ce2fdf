"""The entrance: what is refused before the rules and limits are asked, and what is remembered of it."""

from __future__ import annotations

import pytest

from pixy.auth.principal import Caller, Principal
from pixy.auth.rules import Access, Rules
from pixy.config.model import App, Proxy
from pixy.config.security import Limit, Rule
from pixy.engine.guard import LONGEST, Guard
from pixy.errors import Forbidden, InvalidParameter, Limited

CALLER = Caller(Principal("key:a"))


@pytest.fixture
def guard() -> Guard:
    app = App(proxies={"c": Proxy()})
    app.auth.enabled = app.auth.anonymous = True
    app.rules = [Rule(["key:a"], ["*"], topics=["*"], groups=["g*"])]
    app.limits = [Limit(["*"], groups=1, new_topics_per_minute=1)]
    return Guard(app)


def consume(guard: Guard, group: str, topic: str = "t") -> None:
    with guard.begin(CALLER, Access("consume", "c", topic, group)):
        pass


@pytest.mark.parametrize("at", ["topic", "group", "cluster", "second"])
def test_names_that_kafka_takes_in_no_request_reach_no_pattern(
    guard: Guard, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    long = "g" * (LONGEST + 1)
    fine, wrong = Access("consume", "c", "t", "g"), Access("consume", "c", "t", long)
    monkeypatch.setattr(Rules, "allows", lambda *_args: pytest.fail("a rule was asked"))
    with pytest.raises(InvalidParameter, match="longer than 32767 characters"):
        if at == "cluster":
            guard.admit(CALLER, long)
        elif at == "second":
            guard.begin(CALLER, fine, wrong)
        else:
            guard.begin(CALLER, wrong if at == "group" else Access("describe", "c", long))


def test_the_name_of_a_cluster_is_escaped(guard: Guard) -> None:
    guard.rules = Rules([Rule(["key:b"], ["*"], topics=["*"])], {})
    with pytest.raises(Forbidden, match=r"^key:a may not use cluster x\\u202e$"):
        guard.admit(CALLER, "x\u202e")


def test_what_is_refused_takes_no_place_among_groups_and_topics(guard: Guard) -> None:
    for number in range(5):
        with pytest.raises(Forbidden):
            consume(guard, f"x{number}", f"t{number}")
    consume(guard, "g1")
    with pytest.raises(Limited):
        consume(guard, "g2")
    consume(guard, "g1")
    assert guard.limiter.active == 0


def test_a_reload_of_anybodys_limits_gives_nobody_anything_anew(guard: Guard) -> None:
    consume(guard, "g1")
    poll = guard.begin(CALLER, Access("consume", "c", "t", "g1"), polls=True)
    app = App(proxies={"c": Proxy()})
    app.auth.enabled = app.auth.anonymous = True
    app.rules = [Rule(["key:a"], ["*"], topics=["*"], groups=["g*"])]
    app.limits = [
        Limit(["key:b"], groups=5),
        Limit(["*"], groups=1, new_topics_per_minute=1, waiting_polls=1),
    ]
    guard.reload(app)
    with pytest.raises(Limited, match="1 groups"):
        consume(guard, "g2")
    with pytest.raises(Limited, match="1 new topics"):
        consume(guard, "g1", "t2")
    with pytest.raises(Limited, match="1 waiting polls"):
        guard.begin(CALLER, Access("consume", "c", "t", "g1"), polls=True)
    with poll:
        pass
    with guard.begin(CALLER, Access("consume", "c", "t", "g1"), polls=True):
        assert guard.limiter.active == 1
