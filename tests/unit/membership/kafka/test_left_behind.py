"""A member whose assignment got lost: how often the coordinator is asked, and what counts as evidence."""

from __future__ import annotations

from pixy.membership.kafka.left_behind import LOOK_EVERY, LOOK_FOR, PATIENCE, LeftBehind


def test_nobody_is_asked_while_every_heartbeat_is_answered() -> None:
    watch = LeftBehind(lambda: 0.0)
    assert not any(watch.due(0, float(now)) for now in range(1000))


def test_the_coordinator_is_asked_for_a_while_after_a_heartbeat_without_an_answer() -> None:
    watch = LeftBehind(lambda: 1.0)
    looks = [now / 10 for now in range(1000) if watch.due(1 if now >= 100 else 0, now / 10)]
    assert looks[0] == 10.0 + 2 * LOOK_EVERY and looks[-1] < 10.0 + LOOK_FOR + 2 * LOOK_EVERY
    assert len(looks) == round(LOOK_FOR / (2 * LOOK_EVERY))
    assert watch.due(2, 200.0) is False and watch.due(2, 205.0) is True, "the next one begins again"


def test_a_member_that_stays_behind_is_found_and_one_that_catches_up_is_not() -> None:
    watch = LeftBehind(lambda: 0.0)
    watch.looked(1, 0.0)
    watch.looked(1, PATIENCE)
    watch.looked(None, PATIENCE + 1)
    watch.looked(1, PATIENCE + 2)
    assert watch.unnoticed == 0.0
    watch.looked(1, 2 * PATIENCE + 3)
    assert watch.unnoticed == PATIENCE + 1


def test_a_rebalance_is_an_assignment_that_was_heard() -> None:
    watch = LeftBehind(lambda: 0.0)
    watch.looked(1, 0.0)
    watch.rebalanced()
    watch.looked(1, PATIENCE + 1)
    assert watch.unnoticed == 0.0


def test_a_member_that_is_behind_is_watched_to_the_end() -> None:
    watch = LeftBehind(lambda: 0.0)
    looks = 0
    for now in range(200):
        if watch.due(1, float(now)):
            looks += 1
            watch.looked(1 if now > LOOK_FOR - 2 else None, float(now))
        if watch.unnoticed:
            break
    assert watch.unnoticed and looks > LOOK_FOR / LOOK_EVERY


def test_a_look_that_failed_is_repeated_while_the_member_was_last_seen_behind() -> None:
    watch = LeftBehind(lambda: 0.0)
    assert watch.due(1, 0.0) is False and watch.due(1, LOOK_FOR + 1) is True
    watch.looked(1, LOOK_FOR + 1)
    looks = [now for now in range(40, 60) if watch.due(1, float(now))]
    assert len(looks) > 5, "none of them was answered"


def test_a_member_whose_epoch_grows_goes_with_its_group() -> None:
    """If slowly: members that join raise the group's epoch every few seconds, and it takes each over at its next heartbeat."""
    watch = LeftBehind()
    for epoch in range(5, 10):
        watch.looked(epoch, epoch * PATIENCE)
    assert not watch.unnoticed
    watch.looked(9, 10 * PATIENCE + 1)
    assert watch.unnoticed
