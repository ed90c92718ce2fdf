"""The checker of ``make chaos``: it accepts a clean history, and finds each defect that is planted into one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.kit.checker.commits import sparse
from tests.chaos.kit.kinds import kinds_of
from tests.chaos.kit.plan import Group, Plan, Topic
from tests.chaos.kit.record import Recorder
from tests.chaos.kit.schedule import STORM, draw
from tests.chaos.kit.snapshot import _offset
from tests.chaos.made_history import START, MadeHistory

COUNT = 40


class History(MadeHistory):
    """A clean history of one group with one partition: a message a second, delivered, acknowledged, committed."""

    def __init__(self, mode: str = "ack") -> None:
        super().__init__(mode, healed=COUNT + 60)
        self.log = list(range(COUNT))
        self.final = COUNT
        self.low = 0
        for offset in range(COUNT):
            t = START + offset
            about = {"topic": "t", "d": 1}
            place = {"group": "g", **about, "partition": 0, "offset": offset}
            self.produced.append(
                {"t0": t, "t1": t + 0.1, **about, "ids": [f"m.{offset}"], "at": [[0, offset]]}
            )
            self.deliver(t + 0.2, offset)
            self.acks.append({"t0": t + 0.3, "t1": t + 0.4, **place, "result": "ok"})
            self.commit(t + 0.5, offset + 1)

    def deliver(self, t: float, offset: int, **other: Any) -> None:
        """A delivery that took 50 ms."""
        about = {"group": "g", "topic": "t", "d": 1, "reader": "r", **other}
        self.delivered.append({"t0": t, "t1": t + 0.05, **about, "records": [[0, offset, f"m.{offset}"]]})

    def commit(self, t: float, offset: int, metadata: str = "") -> None:
        """A commit."""
        about = {"group": "g", "topic": "t", "partition": 0}
        self.commits.append({"t": t, **about, "offset": offset, "metadata": metadata})

    def fault(self, kind: str, t0: float, t1: float) -> None:
        """A fault of daemon 1."""
        self.faults.append({"kind": kind, "daemon": 1, "t0": START + t0, "t1": START + t1, "note": ""})

    def shift(self, since: int, seconds: float) -> None:
        """Let everything that the group did from an offset on happen later."""
        for events in (self.delivered, self.acks, self.commits):
            for event in events[since:]:
                for key in ("t0", "t1", "t"):
                    if key in event:
                        event[key] += seconds

    def write_plan_and_logs(self, records: Recorder) -> None:
        topic = Topic("t", 1, (Group("g", self.mode, "grpc"),))
        records.write("plan", **Plan(7, 1.0, "kafka", (), (topic,), 10.0).document())
        offsets = self.log
        records.write(
            "log",
            topic="t",
            partition=0,
            low=self.low,
            high=COUNT,
            offsets=offsets,
            ids=[f"m.{offset}" for offset in offsets],
            times=[START + offset for offset in offsets],
        )


@pytest.mark.parametrize("mode", ["ack", "auto", "instance"])
def test_a_clean_history_has_no_findings(tmp_path: Path, mode: str) -> None:
    outcome = History(mode).check(tmp_path)
    assert not outcome.findings, outcome.lines()
    assert outcome.figures["produced"] == outcome.figures["delivered"] == COUNT
    assert "lost 0, stalls 0" in "\n".join(outcome.lines())


def never_delivered(history: History) -> None:
    del history.delivered[5]


def not_in_kafka(history: History) -> None:
    history.log.remove(5)
    del history.delivered[5]


def other_content(history: History) -> None:
    history.produced[5]["ids"] = ["m.other"]


def delivered_but_not_in_kafka(history: History) -> None:
    history.delivered[5]["records"] = [[0, 5, "aborted.1"]]
    history.deliver(START + 5.2, 5)


def late_first_delivery(history: History) -> None:
    history.delivered[5].update(t0=START + 5.6, t1=START + 5.65)
    history.delivered[6].update(t0=START + 5.5, t1=START + 5.55)
    history.acks[5].update(t0=START + 5.7, t1=START + 5.8)
    history.commits[5]["t"] = START + 5.9


def committed_before_the_ack(history: History) -> None:
    history.commit(START + 5.35, 7)


def committed_without_an_ack(history: History) -> None:
    del history.acks[5]


def range_without_an_ack(history: History) -> None:
    history.commit(START + 5.45, 6, "BB")  # 7 is done


def silence(history: History) -> None:
    history.shift(20, 30.0)


def again_after_an_accepted_ack(history: History) -> None:
    history.deliver(START + 9, 5)


def again_without_a_reason(history: History) -> None:
    history.deliver(START + 5.26, 5)


def ended(history: History) -> None:
    history.events.append({"t": START + 3, "what": "daemon ended", "d": 1, "by": "itself", "code": 4})


PLANTED: list[tuple[Callable[[History], None], str]] = [
    (never_delivered, "loss"),
    (not_in_kafka, "loss"),
    (other_content, "loss"),
    (delivered_but_not_in_kafka, "loss"),
    (late_first_delivery, "order"),
    (committed_before_the_ack, "commits"),
    (committed_without_an_ack, "commits"),
    (range_without_an_ack, "commits"),
    (silence, "progress"),
    (again_after_an_accepted_ack, "duplicates"),
    (again_without_a_reason, "duplicates"),
    (ended, "daemons"),
]


@pytest.mark.parametrize(("plant", "rule"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_a_planted_defect_is_found(tmp_path: Path, plant: Callable[[History], None], rule: str) -> None:
    history = History()
    plant(history)
    outcome = history.check(tmp_path)
    assert outcome.rules == [rule], outcome.lines()
    assert "make chaos MINUTES=1 SEED=7 MEMBERSHIP=kafka" in outcome.lines()[-1]


@pytest.mark.parametrize("mode", ["ack", "instance"])
def test_a_forgotten_acknowledgement_is_explained_by_a_fault_at_its_time(tmp_path: Path, mode: str) -> None:
    history = History(mode)
    again_after_an_accepted_ack(history)
    history.fault("daemon-kill", 5.5, 6.0)
    outcome = history.check(tmp_path)
    assert not outcome.findings, outcome.lines()
    assert outcome.repeated == {"daemon-kill, acknowledged": 1}


def test_a_graceful_restart_does_not_explain_a_forgotten_acknowledgement(tmp_path: Path) -> None:
    history = History()
    again_after_an_accepted_ack(history)
    history.fault("daemon-restart", 5.5, 6.0)
    assert history.check(tmp_path).rules == ["duplicates"]


def test_a_fault_of_another_daemon_explains_nothing(tmp_path: Path) -> None:
    history = History()
    again_after_an_accepted_ack(history)
    history.fault("daemon-kill", 5.5, 6.0)
    history.faults[0]["daemon"] = 2
    assert history.check(tmp_path).rules == ["duplicates"]


def test_a_message_that_was_not_acknowledged_comes_again_after_the_timeout(tmp_path: Path) -> None:
    history = History()
    history.acks[5].update(t0=START + 20, t1=START + 20.1)
    for commit in history.commits[5:]:
        commit["t"] += 20
    history.deliver(START + 5.3 + 8.0, 5)
    outcome = history.check(tmp_path)
    assert not outcome.findings, outcome.lines()
    assert outcome.repeated == {"ack timeout": 1}


def test_a_lost_answer_explains_a_message_out_of_order_and_one_that_auto_ack_loses(tmp_path: Path) -> None:
    history = History()
    late_first_delivery(history)
    lost = {"t0": START + 5.1, "t1": START + 5.2, "group": "g", "d": 1, "topic": "t"}
    history.polls.append({**lost, "result": "unknown"})
    assert not history.check(tmp_path / "order").findings
    history = History("auto")
    never_delivered(history)
    history.polls.append({**lost, "result": "unknown"})
    outcome = history.check(tmp_path / "auto")
    assert not outcome.findings, outcome.lines()
    assert outcome.given_up == {"auto-ack, and the answer was lost": 1}


def test_silence_during_a_fault_does_not_count(tmp_path: Path) -> None:
    history = History()
    silence(history)
    history.fault("broker-kill", 19, 45)
    assert not history.check(tmp_path).findings


def test_a_group_that_is_behind_is_not_silent_though_the_records_are_deleted_meanwhile(
    tmp_path: Path,
) -> None:
    history = History()
    history.shift(0, 30)
    del history.log[:25]
    history.low = 25
    history.events.append({"t": START + 65, "what": "records deleted", "topic": "t", "below": [[0, 25]]})
    assert [each.rule for each in history.check(tmp_path).findings] == []


@pytest.mark.parametrize(("rounds", "pause", "shown"), [
    (4, 0.0, "silent for 10.5 s, one message 4 times"),
    (1, 125.0, "silent for 124.6 s, one message 1 times"),
])  # fmt: skip
def test_nothing_new_for_long_is_found_and_told_from_silence(
    tmp_path: Path, rounds: int, pause: float, shown: str
) -> None:
    """Offset 20 comes 200 s late, behind the ten messages before it, which come again and again."""
    history = History()
    history.shift(20, 200)
    history.fault("daemon-kill", 5, 250)  # explains what comes twice
    step = (200 - pause) / (10 * rounds + 1)
    for number in range(10 * rounds):
        history.deliver(START + 19.5 + pause + number * step, 10 + number % 10)
    [found] = [each for each in history.check(tmp_path).findings if each.rule == "progress"]
    assert "nothing new was delivered for 200" in found.text, found.text
    assert shown in found.text, found.text


def test_the_seed_decides_about_the_faults() -> None:
    kinds = kinds_of("kafka")
    one = draw(7, 30, kinds)
    assert one == draw(7, 30, kinds) and one != draw(8, 30, kinds)
    assert {planned.kind for planned in one} == set(kinds)
    assert len(one) >= 200, "half an hour has at least 200 faults"
    assert all(planned.at % 60 <= STORM + 8 for planned in one)
    with pytest.raises(ValueError, match="no such fault: nonsense"):
        draw(7, 30, ("nonsense",))


def test_metadata_and_offsets_are_decoded() -> None:
    assert sparse(10, "BBCB") == [(11, 12), (14, 15)]
    assert sparse(10, "not sparse acks") == []
    version3 = b"\x00\x03" + (5).to_bytes(8, "big") + b"\xff\xff\xff\xff" + b"\x00\x02BB" + bytes(8)
    version4 = b"\x00\x04" + (5).to_bytes(8, "big") + b"\xff\xff\xff\xff" + b"\x03BB" + bytes(9)
    assert _offset(version3) == _offset(version4) == (5, "BB")


@pytest.mark.parametrize(("known", "late", "cut", "lost"), [
    (True, 3.0, False, False),
    (True, 30.0, False, True),
    (True, 30.0, True, False),
    (False, 3.0, False, True),
])  # fmt: skip
def test_a_message_of_a_topic_s_earlier_life_may_come_late_where_nobody_could_know_better(
    tmp_path: Path, known: bool, late: float, cut: bool, lost: bool
) -> None:
    """``known``: it was produced before the topic was deleted; ``cut``: the daemon reaches no broker."""
    history = History()
    again = START + COUNT + 5
    history.events.append({"t": again, "what": "topic made again", "topic": "t"})
    if known:
        about = {"topic": "t", "d": 1, "ids": ["old.1"], "at": [[0, 7]]}
        history.produced.append({"t0": START + COUNT, "t1": START + COUNT + 0.1, **about})
    about = {"group": "g", "topic": "t", "d": 1, "reader": "r", "records": [[0, 7, "old.1"]]}
    history.delivered.append({"t0": again + late, "t1": again + late + 0.05, **about})
    if cut:
        history.fault("cut-brokers", COUNT, COUNT + 50)
    outcome = history.check(tmp_path)
    assert ("loss" in outcome.rules) is lost, outcome.lines()


def reset(history: History, at: float, old: int, new: int) -> None:
    """Somebody sets the group's offset back."""
    about = {"what": "offsets reset", "group": "g", "topic": "t", "moves": [[0, old, new]]}
    history.events.append({"t": START + at + 0.1, "t0": START + at, **about})


@pytest.mark.parametrize(("offset", "found"), [(20, False), (33, False), (5, True)])
def test_a_reset_forgets_the_acknowledgements_from_its_offset_on(
    tmp_path: Path, offset: int, found: bool
) -> None:
    """Also those beyond the old offset: they stood in the metadata that the reset replaces."""
    history = History()
    reset(history, COUNT + 1, 30, 10)
    history.deliver(START + COUNT + 3, offset)
    history.deliver(START + COUNT + 13, offset)  # its time for the acknowledgement is over
    outcome = history.check(tmp_path)
    assert ("duplicates" in outcome.rules) is found, outcome.lines()


@pytest.mark.parametrize(("made", "frozen", "later", "found"), [
    (-0.3, None, 0.0, []),
    (-0.3, None, 20.0, ["commits"]),
    (-6.0, None, 0.0, ["commits"]),
    (-6.0, (-7.0, -0.2), 0.0, []),
    (-6.0, (-7.0, -0.2), 20.0, ["commits"]),
    (-6.0, (-7.0, -2.0), 0.0, ["commits"]),
    (-6.0, (-5.0, -0.2), 0.0, ["commits"]),
])  # fmt: skip
def test_a_commit_that_a_topic_made_again_overtook_is_to_be_replaced_soon(
    tmp_path: Path, made: float, frozen: tuple[float, float] | None, later: float, found: list[str]
) -> None:
    """``frozen``: its daemon, with the commit on its way."""
    history = History()
    history.shift(0, later)
    history.events.append({"t": START + made, "what": "topic made again", "topic": "t"})
    if frozen is not None:
        history.fault("session-expiry", *frozen)
    history.commits.insert(0, {**history.commits[0], "t": START - 0.1, "offset": COUNT})
    outcome = history.check(tmp_path)
    assert [each for each in outcome.rules if each != "progress"] == found


def test_a_group_that_is_behind_and_reads_what_is_deleted_later_is_not_silent(tmp_path: Path) -> None:
    """Offset 20 is delivered 150 s after it was written, because the group was behind; what came before is deleted since."""
    history = History()
    history.shift(0, 150)
    for offset in range(20):
        history.delivered[offset]["t0"] = history.delivered[offset]["t1"] = START + 100 + 3 * offset
    behind = history.check(tmp_path / "all")
    history.log, history.low = list(range(20, COUNT)), 20
    history.events.append({"t": START + 210, "what": "records deleted", "topic": "t", "below": [[0, 20]]})
    assert "progress" in behind.rules
    outcome = history.check(tmp_path / "trimmed")
    assert not [each for each in outcome.findings if each.rule == "progress" and "at 20" in each.text]
