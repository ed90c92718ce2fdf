"""When a member counts as removed without having noticed."""

from __future__ import annotations

import pytest

from pixy.errors import KafkaError
from pixy.membership.kafka.removed import LEAST_PATIENCE, Removed

GONE = KafkaError("gone", 25, "UNKNOWN_MEMBER_ID")
FENCED = KafkaError("fenced", 110, "FENCED_MEMBER_EPOCH")
NO_GROUP = KafkaError("deleted from outside", 69, "GROUP_ID_NOT_FOUND")
STALE = KafkaError("stale", 113, "STALE_MEMBER_EPOCH")


@pytest.mark.parametrize("error", [GONE, FENCED, NO_GROUP])
def test_refusals_for_longer_than_the_patience(error: KafkaError) -> None:
    member = Removed(0.5)
    for now in (0.0, 4.0, LEAST_PATIENCE):
        member.answered([error], now)
        assert not member.unnoticed
    member.answered([error], LEAST_PATIENCE + 1)
    assert member.unnoticed == LEAST_PATIENCE + 1


def test_two_heartbeats_are_left_to_notice_it() -> None:
    member = Removed(4.0)
    for now in (0.0, 4.0, 8.0):
        member.answered([GONE], now)
        assert not member.unnoticed
    member.answered([GONE], 8.1)
    assert member.unnoticed


def test_a_commit_that_is_taken_or_a_rebalance_ends_it() -> None:
    member = Removed(0.5)
    for end in (lambda: member.answered([], 5.0), member.rebalanced):
        member.answered([GONE], 0.0)
        member.answered([GONE], 4.0)
        end()
        member.answered([GONE], 8.0)
        assert not member.unnoticed
        member.rebalanced()


def test_other_errors_are_no_evidence_and_no_excuse() -> None:
    member = Removed(0.5)
    for now in range(20):
        member.answered([STALE], now)
    assert not member.unnoticed
    member.answered([GONE], 20.0)
    member.answered([STALE], 23.0)
    member.answered([STALE, GONE], 24.0)
    member.answered([GONE], 26.0)
    assert member.unnoticed == 6.0


def test_single_refusals_far_apart_are_none() -> None:
    member = Removed(0.5)
    for now in range(0, 100, 10):
        member.answered([GONE], now)
    assert not member.unnoticed
