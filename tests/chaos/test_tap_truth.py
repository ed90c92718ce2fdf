"""The checker of ``make tap-truth`` finds what it is for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chaos.tap_truth.checker import Answer, History, Truth


@pytest.mark.parametrize(
    ("value", "told", "wrong"),
    [
        (10, 105.0, False),  # as the broker said
        (15, 150.0, False),  # between the answers
        (10, 199.0, True),  # fresh by its age, though the broker was further before
        (10, 120.0, False),  # old, and says so
        (25, 150.0, True),  # beyond what the broker said later
        (25, 300.0, False),  # nothing is known of that time
        (10, 151.0, False),  # the response may have passed late
    ],
)
def test_a_claim_must_fit_the_answers_before_and_after(value: int, told: float, wrong: bool) -> None:
    history = History()
    history.answers += [Answer(100, 101, 10), Answer(149, 150, 12), Answer(200, 201, 20)]
    assert bool(history.wrong(value, told)) is wrong
    history.reset(250)
    assert not history.wrong(value, min(told, 250)), "told before it was set from outside"


def test_an_anomaly_is_false_if_the_brokers_assignment_was_whole_for_a_while() -> None:
    truth, table = Truth(), {"app": {("orders", 0)}}
    group: dict[str, Any] = {"group": "g", "anomalies": [{"kind": "unowned partitions", "detail": "0"}]}
    assert not truth.anomalies(group, table, 100, 100)
    assert not truth.anomalies(group, table, 103, 103)
    assert truth.anomalies(group, table, 106, 106)
    assert not truth.anomalies(group, None, 107, 107), "a rebalance"
    assert not truth.anomalies(group, table, 108, 108)
