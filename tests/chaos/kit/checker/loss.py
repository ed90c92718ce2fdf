"""Loss: acknowledged to a producer and not in Kafka, or in Kafka and never delivered to a group."""

from __future__ import annotations

from typing import Any

from tests.chaos.kit.checker.evidence import NEVER, Delivery, Evidence, GroupView
from tests.chaos.kit.checker.lives import Life
from tests.chaos.kit.checker.outcome import Outcome

_COMPARES = 10.0
"""Seconds within which a daemon that reaches the brokers finds out that a topic was made again, on a busy machine."""


def check(evidence: Evidence, outcome: Outcome) -> None:
    """Add what is lost, and what a rule gives up."""
    _check_log(evidence, outcome)
    _check_twice(evidence, outcome)
    for group in evidence.groups.values():
        _check_group(evidence, group, outcome)
        _check_strays(evidence, group, outcome)
    for group in evidence.views:
        if group.life.until < NEVER:
            _check_late(evidence, group, outcome)
    _check_daemons(evidence, outcome)


def _check_log(evidence: Evidence, outcome: Outcome) -> None:
    trimmed, newest = _trimmed(evidence), _newest(evidence)
    deleted = {
        name: max(evidence.times_of("topic made again", name), default=0.0) for name in evidence.topics
    }
    for each in evidence.produced():
        topic = each["topic"]
        outcome.figures["produced"] += len(each["ids"])
        for name, (partition, offset) in zip(each["ids"], each["at"], strict=True):
            log = evidence.logs.get((topic, partition))
            index = None if log is None else log.index(offset)
            if any(life.has(partition, offset, name) for life in evidence.lives[topic]):
                continue
            if each["t0"] < deleted[topic]:
                _check_earlier(evidence, each, name, (partition, offset), outcome)
            elif index is None and offset < trimmed.get((topic, partition), 0):
                outcome.given_up["its record was deleted"] += 1
            elif index is None and log is not None and offset < log.low and _expires(evidence, each):
                outcome.given_up["its record has expired"] += 1
            elif index is None and offset < newest.get((topic, partition, each.get("key", "")), 0):
                outcome.given_up["its record was compacted away"] += 1
            else:
                instead = "nothing" if log is None or index is None else log.ids[index]
                text = f"{topic}/{partition} {offset}: {name} was acknowledged by d{each['d']}, Kafka has {instead}"
                outcome.find("loss", text, each["t1"], each["t0"])


def _check_earlier(
    evidence: Evidence, each: dict[str, Any], name: str, at: tuple[int, int], outcome: Outcome
) -> None:
    """Check a message of a topic that was deleted: it was there before, if it was acknowledged before somebody looked."""
    life = _life_with(evidence, each["topic"], each["t0"], each["t1"])
    if life is None:
        outcome.given_up["its topic was deleted"] += 1
    else:
        text = f"{each['topic']}/{at[0]} {at[1]}: {name} was acknowledged by d{each['d']} in life {life.number} of its topic"
        outcome.find("loss", f"{text}, which did not have it", each["t1"], each["t0"])


def _life_with(evidence: Evidence, topic: str, t0: float, t1: float) -> Life | None:
    """Return the life of a topic that must have what was written between these times; None if it was deleted unseen."""
    for life in evidence.lives[topic]:
        if life.since <= t0 and t1 <= life.seen:
            return life
    return None


def _trimmed(evidence: Evidence) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}
    for each in evidence.events:
        if each["what"] == "records deleted":
            for partition, offset in each["below"]:
                key = (each["topic"], partition)
                found[key] = max(found.get(key, 0), offset)
    return found


def _newest(evidence: Evidence) -> dict[tuple[str, int, str], int]:
    """Return for each key of compacted topics the greatest offset that may have a later record of that key."""
    found: dict[tuple[str, int, str], int] = {}
    for each in evidence.produced():
        if evidence.compacted(each["topic"]):
            ((partition, offset),) = each["at"]
            key = (each["topic"], partition, each["key"])
            found[key] = max(found.get(key, 0), offset)
    for each in evidence.unproduced():
        # Nobody knows where it went; if it is in Kafka, it made the earlier ones superfluous.
        for (topic, partition), log in evidence.logs.items():
            if topic == each["topic"] and evidence.compacted(topic) and each["ids"][0] in log.ids:
                at = log.offsets[log.ids.index(each["ids"][0])]
                key = (topic, partition, each["key"])
                found[key] = max(found.get(key, 0), at)
    return found


def _expires(evidence: Evidence, each: dict[str, Any]) -> bool:
    """Return whether a message was older at the end than its topic keeps messages."""
    retention = evidence.topics[each["topic"]]["config"].get("retention.ms")
    return retention is not None and each["t0"] < evidence.ended - int(retention) / 1000


def _check_twice(evidence: Evidence, outcome: Outcome) -> None:
    """Check messages that are in Kafka twice: one is sent again if its answer was lost, or the actor that waited for it crashed."""
    seen: dict[tuple[str, str], tuple[int, int]] = {}
    for (topic, partition), log in evidence.logs.items():
        for name, offset, t in zip(log.ids, log.offsets, log.times, strict=True):
            before = seen.setdefault((topic, name), (partition, offset))
            if before == (partition, offset):
                continue
            fault = evidence.windows.ungraceful(t, t, topic, ())
            if fault is not None:
                outcome.repeated[f"{fault.kind}, written twice"] += 1
            else:
                text = f"{topic}: {name} is in Kafka twice, at {before} and {(partition, offset)}"
                outcome.find("duplicates", text, t)


def _check_group(evidence: Evidence, group: GroupView, outcome: Outcome) -> None:
    lost_answers = len(group.unknown)
    for partition, consumed in sorted(group.partitions.items()):
        log = consumed.log
        for index, deliveries in enumerate(consumed.deliveries):
            if deliveries is not None:
                outcome.figures["delivered"] += 1
                continue
            offset = log.offsets[index]
            if any(number == partition and old <= offset < new for _, number, old, new in group.resets):
                outcome.given_up["the group's offset was set beyond it"] += 1
            elif group.mode == "auto" and lost_answers > 0:
                lost_answers -= 1
                outcome.given_up["auto-ack, and the answer was lost"] += 1
            else:
                text = (
                    f"{group.name} {group.topic}/{partition} {offset}: {log.ids[index]} was never delivered"
                )
                outcome.find("loss", text, evidence.ended, log.times[index])


def _check_strays(evidence: Evidence, group: GroupView, outcome: Outcome) -> None:
    remade = max(evidence.times_of("topic made again", group.topic), default=0.0)
    earlier = _produced_before(evidence, group.topic, remade) if remade and group.strays else set()
    for stray in group.strays:
        consumed = group.partitions.get(stray.partition)
        if consumed is not None and stray.offset < consumed.log.low:
            continue  # deleted since, or expired
        if (
            evidence.compacted(group.topic)
            and consumed is not None
            and consumed.log.index(stray.offset) is None
        ):
            continue  # compacted away since
        if stray.delivery.t0 < remade:
            continue  # of the topic's earlier life
        if stray.name in earlier and _could_not_know(evidence, group.topic, remade, stray.delivery):
            # Fetched before the topic was deleted.
            outcome.figures["delivered after their topic was made again"] += 1
            continue
        text = (
            f"{group.name} {group.topic}/{stray.partition} {stray.offset}: {stray.name} was delivered by "
            f"d{stray.delivery.d}, and is not in Kafka"
        )
        outcome.find("loss", text, stray.delivery.t1)


def _check_late(evidence: Evidence, group: GroupView, outcome: Outcome) -> None:
    """Find what was delivered of an earlier life of the topic by a daemon that could know that it was made again."""
    remade = evidence.lives[group.topic][group.life.number + 1].since
    for partition, consumed in group.partitions.items():
        for index, deliveries in enumerate(consumed.deliveries):
            for each in deliveries or ():
                if each.t0 < remade:
                    continue
                if _could_not_know(evidence, group.topic, remade, each):
                    outcome.figures["delivered after their topic was made again"] += 1
                    continue
                text = (
                    f"{group.name} {group.topic}/{partition} {consumed.log.offsets[index]}: {consumed.log.ids[index]} was "
                    f"delivered by d{each.d} {each.t0 - remade:.1f} s after its topic had been made again"
                )
                outcome.find("loss", text, each.t1)


def _could_not_know(evidence: Evidence, topic: str, remade: float, each: Delivery) -> bool:
    """Return whether a daemon that delivered this could not know yet that the topic was made again, also for a fault."""
    fault = evidence.windows.ungraceful(each.t0, each.t0, topic, (each.d,))
    return each.t0 < remade + _COMPARES or fault is not None


def _produced_before(evidence: Evidence, topic: str, t: float) -> set[str]:
    sent = [*evidence.produced(), *evidence.unproduced(), *evidence.accepted()]
    return {name for each in sent if each["topic"] == topic and each["t0"] < t for name in each["ids"]}


def _check_daemons(evidence: Evidence, outcome: Outcome) -> None:
    for each in evidence.events:
        if each["what"] == "daemon ended" and (each["by"] == "itself" or "not ended in" in each["by"]):
            # A daemon that reaches no broker when it starts says so and ends.
            start = each["code"] == 1 and evidence.windows.ungraceful(each["t"], each["t"], "", (each["d"],))
            if start:
                outcome.figures[f"starts that failed: {start.kind}"] += 1
                continue
            text = f"d{each['d']} ended by {each['by']}, with code {each['code']}"
            outcome.find("daemons", text, each["t"])
        elif each["what"] == "drained" and each["left"]:
            outcome.find("progress", each["left"], each["t"], each["t"] - each["seconds"])
