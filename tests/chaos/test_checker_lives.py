"""The checker of ``make chaos`` on topics that are made again with other numbers of partitions: what it allows, and what it finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.kit.checker.placement import _hashed
from tests.chaos.kit.plan import Group, Plan, Topic
from tests.chaos.kit.record import Recorder
from tests.chaos.kit.remade_faults import MOST_PARTITIONS, another
from tests.chaos.made_history import START, MadeHistory

LIFE = 100.0
"""Seconds from one life of the topic to the next."""
COUNTS = (3, 2, 4)
"""Partitions in each life."""
EACH = 60
"""Messages of a life, one a second."""


class Lives(MadeHistory):
    """A clean history of one group whose topic has three lives, each read by the kit before the topic was deleted.

    A life begins with the topic; 30 s later a message a second, to each partition in turn; a second for all of it.
    """

    def __init__(self, mode: str = "ack") -> None:
        super().__init__(mode, healed=3 * LIFE + 60)
        self.logs: list[dict[int, dict[str, list[Any]]]] = []
        for life in range(len(COUNTS)):
            self._live(life)

    def _live(self, life: int) -> None:
        count, made = COUNTS[life], START + life * LIFE
        if life:
            t0 = made - 2
            self.faults.append({"kind": "recreate-topic", "daemon": 0, "t0": t0, "t1": made, "note": ""})
            self.events += [
                {"t": t0 + 0.5, "t0": t0, "what": "topic deleted", "topic": "recreated"},
                {"t": made, "what": "topic made again", "topic": "recreated", "partitions": count},
            ]
        self.logs.append({number: {"offsets": [], "ids": [], "times": []} for number in range(count)})
        for number in range(EACH):
            self._message(life, number, made + 30 + number)

    def _message(self, life: int, number: int, t: float) -> None:
        partition, offset = number % COUNTS[life], number // COUNTS[life]
        key = next(str(key) for key in range(100) if _hashed(b"%d" % key, COUNTS[life]) == partition)
        log, name = self.logs[life][partition], f"m{life}.{number}"
        for column, value in (("offsets", offset), ("ids", name), ("times", t)):
            log[column].append(value)
        about: dict[str, Any] = {"topic": "recreated", "d": 1}
        place = {"group": "g", **about, "partition": partition}
        self.produced.append(
            {"t0": t, "t1": t + 0.1, **about, "ids": [name], "at": [[partition, offset]], "key": key}
        )
        self.accepted.append({"t0": t, "t1": t + 0.01, **about, "ids": [name]})
        self.delivered.append(
            {
                "t0": t + 0.2,
                "t1": t + 0.25,
                "group": "g",
                **about,
                "reader": "r",
                "records": [[partition, offset, name]],
            }
        )
        self.acks.append({"t0": t + 0.3, "t1": t + 0.4, **place, "offset": offset, "result": "ok"})
        self.commits.append({"t": t + 0.5, **place, "offset": offset + 1, "metadata": ""})

    def at(self, life: int, number: int) -> int:
        """The index of a message in the lists."""
        return life * EACH + number

    def unwrite(self, life: int, number: int) -> None:
        """Take a message, and what came of it, out of its log."""
        log, at = self.logs[life][number % COUNTS[life]], number // COUNTS[life]
        for column in log.values():
            del column[at]
        index = self.at(life, number)
        del self.delivered[index], self.acks[index]

    def write_plan_and_logs(self, records: Recorder) -> None:
        topic = Topic("recreated", COUNTS[0], (Group("g", self.mode, "grpc"),))
        records.write("plan", **Plan(7, 5.0, "kafka", (), (topic,), 10.0).document())
        for life, partitions in enumerate(self.logs):
            for number, log in partitions.items():
                about = {"topic": "recreated", "partition": number, "low": 0, "high": EACH, **log}
                if life == len(self.logs) - 1:
                    records.write("log", **about)
                else:
                    records.write("lives", t=START + (life + 1) * LIFE - 3, **about)


@pytest.mark.parametrize("mode", ["ack", "auto", "instance"])
def test_three_clean_lives_have_no_findings(tmp_path: Path, mode: str) -> None:
    """Keys move to other partitions, offsets begin at 0 again, partitions go and come back."""
    outcome = Lives(mode).check(tmp_path)
    assert not outcome.findings, outcome.lines()
    assert outcome.figures["produced"] == outcome.figures["accepted"] == 3 * EACH
    assert outcome.figures["commits"] == 3 * EACH


def acknowledged_and_not_there(lives: Lives) -> None:
    lives.unwrite(1, 20)
    del lives.accepted[lives.at(1, 20)]


def acknowledged_in_the_last_and_not_there(lives: Lives) -> None:
    lives.unwrite(2, 20)
    del lives.accepted[lives.at(2, 20)]


def acknowledged_in_a_partition_that_is_gone(lives: Lives) -> None:
    """A producer that goes on with the old number of partitions."""
    lives.unwrite(1, 20)
    del lives.accepted[lives.at(1, 20)]
    lives.produced[lives.at(1, 20)].update(at=[[2, 25]], key=None)


def accepted_and_nowhere(lives: Lives) -> None:
    lives.accepted[lives.at(1, 20)]["ids"] = ["m.lost"]


def accepted_in_the_last_and_nowhere(lives: Lives) -> None:
    lives.accepted[lives.at(2, 20)]["ids"] = ["m.lost"]


def accepted_and_nowhere_though_a_fault_was_short(lives: Lives) -> None:
    """The faults of the topic itself are no reason either: the message was accepted when it had been made again."""
    t0 = START + 2 * LIFE + 3
    lives.accepted[lives.at(2, 0)].update(ids=["m.lost"], t0=t0, t1=t0 + 0.1)
    lives.faults.append({"kind": "crash-admin", "daemon": 1, "t0": t0, "t1": t0 + 0.5, "note": ""})


def accepted_and_nowhere_though_another_daemon_died(lives: Lives) -> None:
    lives.accepted[lives.at(2, 20)]["ids"] = ["m.lost"]
    t = lives.accepted[lives.at(2, 20)]["t1"] + 1
    lives.faults.append({"kind": "daemon-kill", "daemon": 2, "t0": t, "t1": t + 2, "note": ""})
    lives.events.append({"t": t, "what": "daemon ended", "d": 2, "code": -9, "by": "daemon-kill"})


def delivered_long_after_the_topic_was_made_again(lives: Lives) -> None:
    last, t = lives.at(1, EACH - 1), START + 2 * LIFE + 40
    lives.delivered[last].update(t0=t, t1=t + 0.1)
    del lives.acks[last], lives.commits[last]


def never_delivered_in_the_last(lives: Lives) -> None:
    del lives.delivered[lives.at(2, 20)]


def skipped(lives: Lives) -> None:
    """What comes behind it was delivered and committed."""
    del lives.delivered[lives.at(1, 20)], lives.acks[lives.at(1, 20)]


def committed_too_early(lives: Lives) -> None:
    lives.acks[lives.at(0, 20)].update(t0=START + 80, t1=START + 80.1)


def out_of_order(lives: Lives) -> None:
    """It comes a moment after the one behind it, and before what was to be committed behind that."""
    t = lives.delivered[lives.at(1, 22)]["t1"]
    late = lives.at(1, 20)
    lives.delivered[late].update(t0=t + 0.01, t1=t + 0.02)
    lives.acks[late].update(t0=t + 0.03, t1=t + 0.04)
    lives.commits[late]["t"] = t + 0.05


def silent_until_the_deletion(lives: Lives) -> None:
    """One partition of a life is not read any more: its readers chose it, and their instance forgot it."""
    for number in range(EACH - 1, 10, -1):
        if number % COUNTS[1] == 1:
            at = lives.at(1, number)
            del lives.delivered[at], lives.acks[at], lives.commits[at]


def refused(lives: Lives) -> None:
    t = START + LIFE + 60
    about = {"topic": "recreated", "d": 2, "ids": ["m.refused"], "error": "NOT_FOUND: unknown partition"}
    lives.unproduced.append({"t0": t, "t1": t + 0.1, **about})


def refused_a_partition_that_exists(lives: Lives) -> None:
    refused(lives)
    lives.unproduced[-1]["asked"] = 1


def key_elsewhere(lives: Lives) -> None:
    """The key goes where it would with as many partitions as before."""
    lives.produced[lives.at(1, 20)]["key"] = "0" if _hashed(b"0", COUNTS[1]) else "1"


def asked_and_elsewhere(lives: Lives) -> None:
    lives.produced[lives.at(1, 20)].update(key=None, asked=1)


PLANTED: list[tuple[Callable[[Lives], None], str]] = [
    (acknowledged_and_not_there, "loss"),
    (acknowledged_in_the_last_and_not_there, "loss"),
    (acknowledged_in_a_partition_that_is_gone, "loss"),
    (accepted_and_nowhere, "loss"),
    (accepted_in_the_last_and_nowhere, "loss"),
    (accepted_and_nowhere_though_a_fault_was_short, "loss"),
    (accepted_and_nowhere_though_another_daemon_died, "loss"),
    (delivered_long_after_the_topic_was_made_again, "loss"),
    (never_delivered_in_the_last, "loss"),
    (skipped, "commits"),
    (committed_too_early, "commits"),
    (out_of_order, "order"),
    (silent_until_the_deletion, "progress"),
    (refused, "refusals"),
    (refused_a_partition_that_exists, "refusals"),
    (key_elsewhere, "placement"),
    (asked_and_elsewhere, "placement"),
]


@pytest.mark.parametrize(("plant", "rule"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_a_planted_defect_is_found(tmp_path: Path, plant: Callable[[Lives], None], rule: str) -> None:
    lives = Lives()
    plant(lives)
    outcome = lives.check(tmp_path)
    assert outcome.rules == [rule], outcome.lines()


def test_a_request_for_a_partition_that_is_gone_may_be_refused(tmp_path: Path) -> None:
    lives = Lives()
    refused(lives)
    lives.unproduced[-1]["asked"] = 2
    outcome = lives.check(tmp_path)
    assert not outcome.findings, outcome.lines()
    assert outcome.figures["refused: the partition is gone"] == 1


def test_a_message_that_is_accepted_right_after_its_topic_was_made_again_must_be_written(
    tmp_path: Path,
) -> None:
    lives = Lives()
    t = START + 2 * LIFE + 0.1
    lives.accepted.append({"t0": t, "t1": t, "topic": "recreated", "d": 1, "ids": ["m.refused"]})
    assert lives.check(tmp_path).rules == ["loss"]


@pytest.mark.parametrize("at", [-5.0, 5.0])
def test_a_refusal_while_the_topic_is_made_again_has_a_reason(tmp_path: Path, at: float) -> None:
    lives = Lives()
    refused(lives)
    lives.unproduced[-1].update(t0=START + LIFE + at, t1=START + LIFE + 6)
    assert not lives.check(tmp_path).findings


def test_what_an_asynchronous_request_handed_over_may_be_lost_with_its_topic_or_in_a_fault(
    tmp_path: Path,
) -> None:
    lives = Lives()
    about = {"topic": "recreated", "d": 1}
    deleted, faulty = START + LIFE - 5, START + 2 * LIFE + 50
    lives.accepted.append({"t0": deleted, "t1": deleted, **about, "ids": ["m.deleted"]})
    lives.accepted.append({"t0": faulty, "t1": faulty, **about, "ids": ["m.killed"]})
    lives.faults.append({"kind": "daemon-kill", "daemon": 1, "t0": faulty + 1, "t1": faulty + 2, "note": ""})
    outcome = lives.check(tmp_path)
    assert not outcome.findings, outcome.lines()
    assert sum(outcome.given_up.values()) == 2


@pytest.mark.parametrize(("t1", "found"), [(1.0, []), (-3.5, [])])
def test_an_acknowledgement_on_a_long_poll_counts_though_its_answer_comes_in_the_next_life(
    tmp_path: Path, t1: float, found: list[str]
) -> None:
    lives = Lives()
    last = lives.at(0, EACH - 1)
    lives.acks[last].update(t1=START + LIFE + t1, result="sent")
    assert lives.check(tmp_path).rules == found


def test_a_life_that_nobody_read_gives_its_messages_up(tmp_path: Path) -> None:
    """Without a picture nothing is known of it, and its commits concern no other life."""
    lives = Lives()
    acknowledged_and_not_there(lives)
    lives.logs[1] = {}
    outcome = lives.check(tmp_path)
    assert not outcome.findings, outcome.lines()
    assert outcome.given_up["its topic was deleted"] == EACH


def test_the_dice_decide_about_the_partitions_of_a_topic_made_again() -> None:
    rolled = [(count, another(count, dice / 100)) for count in range(1, 13) for dice in range(100)]
    assert all(1 <= after <= MOST_PARTITIONS for _, after in rolled)
    assert {8: 6, 3: 8}.items() <= {
        before: after for before, after in rolled if (before, after) in ((8, 6), (3, 8))
    }.items()
    assert (8, 3) in rolled and (8, 8) in rolled
    for count in range(2, MOST_PARTITIONS):
        changes = {(after > before) - (after < before) for before, after in rolled if before == count}
        assert changes == {-1, 0, 1}
