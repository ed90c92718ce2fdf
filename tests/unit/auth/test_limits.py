"""Limits: what each principal may use, and that no one takes it from another."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from pixy.auth import limits as module, use as use_module
from pixy.auth.buckets import TokenBucket
from pixy.auth.limits import GROUP_KEPT, Limiter, Use, whole_seconds
from pixy.auth.principal import Principal
from pixy.auth.rules import Access
from pixy.config.security import Limit
from pixy.errors import ConfigError, Limited, TooManyRequests

A, B = Principal("key:a"), Principal("key:b")
DESCRIBE = Access("describe", "c", "t")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def limiter(clock: Clock, *limits: Limit, most: int = 1000) -> Limiter:
    return Limiter(limits, {}, most, clock)


def once(limiter: Limiter, principal: Principal = A, access: Access = DESCRIBE) -> None:
    limiter.end(limiter.begin(principal, (access,), polls=False), polls=False)


def refused(
    limiter: Limiter, principal: Principal = A, access: Access = DESCRIBE, polls: bool = False
) -> Limited:
    with pytest.raises(Limited) as caught:
        limiter.begin(principal, (access,), polls=polls)
    return caught.value


@given(
    st.floats(0.1, 100),
    st.floats(1, 50),
    st.lists(st.tuples(st.floats(0, 5), st.floats(0.1, 10)), max_size=60),
)
def test_a_bucket_never_allows_more_than_its_rate_and_one_bucketful(
    rate: float, size: float, steps: list[tuple[float, float]]
) -> None:
    bucket, now, spent = TokenBucket(rate, size, 0.0), 0.0, 0.0
    for pause, wanted in steps:
        now += pause
        wanted = min(wanted, size)
        wait = bucket.wait(wanted, now)
        if wait:
            now += wait * 1.000001 + 1e-9  # then, and not before, there are enough
            assert bucket.wait(wanted, now) == pytest.approx(0, abs=1e-6)
        bucket.spend(wanted, now)
        spent += wanted
        assert spent <= size + rate * now + 1e-6


def test_a_clock_that_steps_back_gives_nothing_away() -> None:
    bucket = TokenBucket(1, 1, 100.0)
    bucket.spend(1, 100.0)
    assert bucket.wait(1, 50.0) == 1.0
    assert bucket.wait(1, 100.5) == 0.5


def test_requests_a_second(clock: Clock) -> None:
    found = limiter(clock, Limit(["key:a"], requests_per_second=2, burst=5.0))  # type: ignore[arg-type]
    for _ in range(10):
        once(found)
    error = refused(found)
    assert str(error) == "Too many requests: key:a may have 2 requests a second (`limits`)"
    assert isinstance(error, TooManyRequests) and whole_seconds(error) == "1"
    once(found, B)
    clock.now = 0.5
    once(found)
    refused(found)


def test_bytes_are_counted_after_the_fact_and_have_to_be_made_up_for(clock: Clock) -> None:
    found = limiter(clock, Limit(["*"], bytes_per_second=100))
    use = found.begin(A, (DESCRIBE,), polls=False)
    found.spend(use, lambda: 1100)
    found.end(use, polls=False)
    assert refused(found).retry_after == pytest.approx(10.01)
    clock.now = 10.02
    once(found)
    once(found, B)


def test_bytes_that_nobody_limits_are_not_even_added_up(clock: Clock) -> None:
    found = limiter(clock)
    found.spend(found.begin(A, (DESCRIBE,), polls=False), lambda: pytest.fail("added up"))


def test_waiting_polls(clock: Clock) -> None:
    found = limiter(clock, Limit(["*"], waiting_polls=2))
    uses = [found.begin(A, (DESCRIBE,), polls=True) for _ in range(2)]
    assert "2 waiting polls" in str(refused(found, polls=True))
    once(found)
    found.begin(B, (DESCRIBE,), polls=True)
    found.end(uses[0], polls=True)
    found.begin(A, (DESCRIBE,), polls=True)


def test_groups(clock: Clock) -> None:
    found = limiter(clock, Limit(["*"], groups=2))
    for name in ("g1", "g2", "g1"):
        once(found, access=Access("consume", "c", "t", name))
    error = refused(found, access=Access("consume", "c", "t", "g3"))
    assert "2 groups" in str(error) and 0 < error.retry_after <= GROUP_KEPT
    once(found, access=Access("describe", "c", "t", "g3"))
    once(found, B, Access("consume", "c", "t", "g3"))
    clock.now = GROUP_KEPT
    once(found, access=Access("consume", "c", "t", "g3"))


def test_new_topics(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(use_module, "MAX_TOPICS", 5)
    found = limiter(clock, Limit(["*"], new_topics_per_minute=3))
    for topic in ("t1", "t2", "t3", "t1", "t2"):
        once(found, access=Access("produce", "c", topic))
    assert "3 new topics a minute" in str(refused(found, access=Access("consume", "c", "t4", "g")))
    once(found, access=Access("describe", "c", "t4"))
    clock.now = 20.0
    once(found, access=Access("produce", "c", "t4"))
    for number in range(5, 20):
        clock.now += 20
        once(found, access=Access("produce", "c", f"t{number}"))
    assert len(found._uses[A.name, 0]._topics) == 5


def test_what_is_created_counts_like_what_is_used(clock: Clock) -> None:
    """Creating topics and setting offsets of groups went on without any bound, whatever producing and consuming had."""
    found = limiter(clock, Limit(["*"], new_topics_per_minute=2, groups=2))

    def create(access: Access) -> None:
        found.end(found.begin(A, (access,), polls=False, creates=True), polls=False)

    once(found, access=Access("produce", "c", "t1"))
    for topic in ("t1", "t2", "t2"):
        create(Access("admin", "c", topic))
    with pytest.raises(Limited, match="2 new topics a minute"):
        create(Access("admin", "c", "t3"))
    once(found, access=Access("admin", "c", "t3"))  # a change, or a deletion
    once(found, access=Access("consume", "c", "t1", "g1"))
    for group in ("g1", "g2"):
        create(Access("admin", "c", "t4", group))
    with pytest.raises(Limited, match="2 groups"):
        create(Access("admin", "c", "t4", "g3"))
    once(found, access=Access("admin", "c", None, "g3"))


def test_the_first_element_that_names_a_principal_counts(clock: Clock) -> None:
    found = limiter(clock, Limit(["key:a"], groups=1), Limit(["key:*"], groups=2))
    assert [found.limit_of(each).groups for each in (A, B, Principal("jwt:a"))] == [1, 2, 0]
    with pytest.raises(ConfigError, match=r"^limits\[0\]: bad pattern"):
        limiter(clock, Limit(["a*b"]))


def test_a_reload_that_changes_another_limit_changes_nothing(clock: Clock) -> None:
    mine = Limit(
        ["key:a"], requests_per_second=2, burst=5.0, waiting_polls=2, groups=1, new_topics_per_minute=1
    )  # type: ignore[arg-type]
    found = limiter(clock, mine, Limit(["key:b"], waiting_polls=2))
    polls = [found.begin(A, (Access("consume", "c", "t", "g"),), polls=True) for _ in range(2)]
    for burst in range(10):
        # Also two reloads without a request in between, and another place of the element.
        for _ in range(burst % 3):
            found = Limiter([Limit(["key:b"], waiting_polls=9), mine], {}, 1000, clock, earlier=found)
        if burst < 8:
            assert "2 waiting polls" in str(refused(found, polls=True))
    assert "2 requests a second" in str(refused(found))
    assert found.active == 2
    clock.now = 30.0
    assert "1 groups" in str(refused(found, access=Access("consume", "c", "t", "g2")))
    assert "1 new topics" in str(refused(found, access=Access("consume", "c", "t2", "g")))
    found.end(polls.pop(), polls=True)
    found.begin(A, (DESCRIBE,), polls=True)
    assert "2 waiting polls" in str(refused(found, polls=True))


def test_a_limit_that_changes_gives_back_nothing_that_is_used(clock: Clock) -> None:
    def limits(rate: float, polls: int) -> list[Limit]:
        return [Limit(["*"], requests_per_second=rate, burst=10.0, waiting_polls=polls)]  # type: ignore[arg-type]

    found = Limiter(limits(1, 3), {}, 1000, clock)
    held = [found.begin(A, (DESCRIBE,), polls=True) for _ in range(3)]
    for _ in range(7):
        once(found)
    refused(found)
    before = found
    found = Limiter(limits(2, 4), {}, 1000, clock, earlier=found)
    assert refused(found).retry_after == 0.5, "what was empty is empty"
    clock.now = 10.0
    held.append(found.begin(A, (DESCRIBE,), polls=True))
    assert "4 waiting polls" in str(refused(found, polls=True))
    before.end(held.pop(0), polls=True)  # its operation has the limiter of its begin
    found.begin(A, (DESCRIBE,), polls=True)
    found = Limiter([Limit(["key:b"])], {}, 1000, clock, earlier=found)
    found = Limiter(limits(2, 4), {}, 1000, clock, earlier=found)
    assert "4 waiting polls" in str(refused(found, polls=True)), "they were held while nothing limited them"
    once(found, B)


def test_two_limits_of_one_name_that_become_one_count_together(clock: Clock) -> None:
    ops, rest = Principal("jwt:a", frozenset({"ops"})), Principal("jwt:a")
    both = [Limit(["group:ops"], waiting_polls=2), Limit(["*"], waiting_polls=2)]
    found = Limiter(both, {}, 1000, clock)
    uses = [found.begin(each, (DESCRIBE,), polls=True) for each in (ops, rest)]
    for _ in range(3):
        found = Limiter(both[1:], {}, 1000, clock, earlier=found)
        for each in (ops, rest):
            assert "2 waiting polls" in str(refused(found, each, polls=True))
    for use in uses:
        found.end(use, polls=True)
    assert found.active == 0
    for each in (ops, rest):
        found.begin(each, (DESCRIBE,), polls=True)
    refused(found, ops, polls=True)


def test_whoever_called_last_is_not_forgotten_first(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PRINCIPALS", 2)
    found = limiter(clock, Limit(["*"], requests_per_second=1.0))
    once(found, A)
    once(found, B)
    for _ in range(2):
        refused(found, A)
    once(found, Principal("key:c"))
    refused(found, A)
    once(found, B)


def test_the_groups_that_a_token_names_make_no_second_caller(clock: Clock) -> None:
    """A token may name any of his groups: each subset would have a rate and a share of its own."""
    found = limiter(clock, Limit(["group:ops"], waiting_polls=3), Limit(["*"], waiting_polls=2), most=100)

    def polls(*groups: str) -> bool:
        try:
            found.begin(Principal("jwt:a", frozenset(groups)), (DESCRIBE,), polls=True)
        except Limited:
            return False
        return True

    assert [polls("a"), polls("b"), polls("a", "b"), polls()] == [True, True, False, False]
    assert [polls("ops"), polls("ops", "a"), polls("ops", "b"), polls("ops")] == [True, True, True, False]
    assert polls() is False and len(found._uses) == 2


def test_whoever_takes_all_he_can_leaves_room_for_all_others(clock: Clock) -> None:
    most = 1000
    found = limiter(clock, most=most)

    def fill(principal: Principal) -> int:
        uses: list[Use] = []
        try:
            while True:
                uses.append(found.begin(principal, (DESCRIBE,), polls=True))
        except Limited:
            return len(uses)

    assert fill(A) == 800
    assert fill(B) == 160
    for number in range(3):
        assert fill(Principal(f"key:{number}")) >= 1
    assert found.active <= most


@given(st.lists(st.sampled_from("aaaaaaaaaab-"), max_size=300))
def test_a_hostile_principal_at_ten_times_its_share_costs_another_nothing(moves: str) -> None:
    """The other keeps at most a tenth of all requests under way, and each of his is let in."""
    clock = Clock()
    found = Limiter([Limit(["*"], requests_per_second=100)], {}, 100, clock)
    under_way: dict[str, list[Use]] = {"a": [], "b": []}
    for move in moves:
        clock.now += 0.01
        principal = B if move == "b" else A
        if move == "-":
            for uses in under_way.values():
                if uses:
                    found.end(uses.pop(), polls=False)
            continue
        if move == "b" and len(under_way["b"]) >= 10:
            found.end(under_way["b"].pop(0), polls=False)
        try:
            under_way[move].append(found.begin(principal, (DESCRIBE,), polls=False))
        except Limited:
            assert move == "a", "the other is refused"


def test_principals_are_forgotten_but_not_while_they_have_requests(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_PRINCIPALS", 3)
    found = limiter(clock)
    kept = found.begin(A, (DESCRIBE,), polls=False)
    for number in range(20):
        once(found, Principal(f"jwt:{number}"))
    assert len(found._uses) == 3 and found._uses[A.name, -1] is kept
