"""The likely cause of each kind of finding, and the commands that a person runs next.

The commands are complete: names are the audit's own, quoted for a shell.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pixy.pipeline.audit.request import AuditRequest

MAX_REPLAYED: Final = 20
"""Partitions that one proposed replay names."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The findings that advice is about: one kind, topic and group.

    Attributes:
        why: the evidence of the first finding.
        partitions: by partition, the lowest of the offsets and the one after the highest.
    """

    request: AuditRequest
    topic: str
    group: str
    why: str
    partitions: tuple[tuple[int, int, int], ...] = ()

    @property
    def config(self) -> str:
        """The options that name the cluster."""
        words = ["--config", self.request.config or "pixy.yaml"]
        if self.request.cluster:
            words += ["--cluster", self.request.cluster]
        return shlex.join(words)

    @property
    def lake(self) -> str:
        """The lake, quoted."""
        return shlex.quote(self.request.lake or "LAKE")


@dataclass(frozen=True, slots=True)
class Advice:
    """A likely cause and the commands to run next, each with a remark."""

    cause: str
    commands: tuple[tuple[str, str], ...] = ()


def _command(words: Sequence[str], remark: str) -> tuple[str, str]:
    return " ".join(words), remark


def _verify(on: Subject) -> tuple[str, str]:
    words = ("kafka-pixy pipeline verify --lake", on.lake, "--topic", shlex.quote(on.topic))
    return _command(words, "is a file damaged or gone, or were the rows never written?")


def _describe_topic(on: Subject) -> tuple[str, str]:
    return _command(("kafka-pixy topic describe", shlex.quote(on.topic)), "replicas in sync, and settings")


def _describe_group(on: Subject) -> tuple[str, str]:
    return _command(("kafka-pixy group describe", shlex.quote(on.group)), "state, members, and lag")


def _replay(on: Subject) -> tuple[str, str]:
    words = ["kafka-pixy pipeline replay", on.config, "--lake", on.lake, "--topic", shlex.quote(on.topic)]
    words += ["--to", shlex.quote(f"{on.topic}-again"), "--create"]
    words += [
        f"--offsets {partition}:{start}-{end}" for partition, start, end in on.partitions[:MAX_REPLAYED]
    ]
    return _command(words, "the records once more, to a topic that the group reads in addition")


def _missing_in_lake(on: Subject) -> Advice:
    if "broker still has" in on.why:
        words = ("kafka-pixy pipeline archive", on.config, "--topics", shlex.quote(on.topic))
        rescue = shlex.quote(f"{on.request.lake}-rescue")
        return Advice(
            "Rows were lost between Kafka and the lake: a data file was removed or replaced, or executors wrote to "
            "another folder than the driver's. Kafka still has the records, until its retention deletes them.",
            (
                _command((*words, "--lake", rescue), "first: a copy of all that Kafka still has"),
                _verify(on),
            ),
        )
    if "beyond the end" in on.why:
        return Advice(
            "The lake has offsets above the log's end: the topic was created again, or an unclean election "
            "truncated the log.",
            (_describe_topic(on), _verify(on)),
        )
    return Advice(
        "Neither the lake nor Kafka has the records, and no rule of the topic removed them: a replica lost its disk, "
        "or an unclean election truncated the log before the archive came to it.",
        (_describe_topic(on), _verify(on)),
    )


def _log_lost(on: Subject) -> Advice:
    config = _command(
        ("kafka-pixy topic config", shlex.quote(on.topic)),
        "min.insync.replicas of 2 and no unclean.leader.election.enable keep confirmed records",
    )
    return Advice(
        "A producer has Kafka's confirmation, and the log lacks the record: an unclean election or a lost disk "
        "removed what only one replica had.",
        (_describe_topic(on), config),
    )


def _lost_to_group(on: Subject) -> Advice:
    cause = (
        "The group's committed offset passed these messages and nobody acknowledged them: the offset was committed or "
        "reset by another program, or a member acknowledged on behalf of the group without a journal. The records "
        "themselves are not lost."
    )
    if on.request.lake:
        return Advice(cause, (_replay(on), _describe_group(on)))
    resets = tuple(
        _command(
            (
                "kafka-pixy group reset",
                shlex.quote(on.group),
                shlex.quote(on.topic),
                f"--partition {partition} --to {start} --dry-run",
            ),
            "to read from there once more; what follows is delivered again, too",
        )
        for partition, start, _ in on.partitions[:3]
    )
    return Advice(cause, (*resets, _describe_group(on)))


def _group_behind(on: Subject) -> Advice:
    return Advice(
        "The group reads slower than producers write, its members have stopped, or one of them holds messages that "
        "it does not acknowledge.",
        (_describe_group(on),),
    )


def _archive_behind(on: Subject) -> Advice:
    words = ("kafka-pixy pipeline archive", on.config, "--topics", shlex.quote(on.topic), "--lake", on.lake)
    return Advice(
        "The archive does not run, runs too seldom for the bound, or is slower than producers: it reads a partition "
        "with one task.",
        (_command(words, "archive now; --trigger 30s keeps it running"),),
    )


def _expired(on: Subject) -> Advice:
    words = ("kafka-pixy topic config", shlex.quote(on.topic), "--set retention.ms=604800000")
    return Advice(
        "Retention deleted the records before they were read: the reader was down or slower than retention allows.",
        (_command(words, "a week, for example, to have time"), *((_describe_group(on),) if on.group else ())),
    )


def _archived_twice(on: Subject) -> Advice:
    return Advice(
        "Two rows of the lake have the same offset: two jobs archived the same range, or a file was changed.",
        (_verify(on),),
    )


def _offered(on: Subject) -> Advice:
    return Advice(
        "Within one assignment a daemon made the same offer twice, or offers in another order than the log's. "
        "That is a fault of the daemon: please report it with the journal of that time.",
        (_describe_group(on),),
    )


def _unknown_ack(on: Subject) -> Advice:
    return Advice(
        "The journal has a hole after these messages, so it cannot tell whether they were acknowledged.",
        (_describe_group(on),),
    )


def _hole(_on: Subject) -> Advice:
    return Advice(
        "A daemon was killed, was cut off from Kafka, or had more events than journal.buffer_events. The audit "
        "cannot judge what happened in that time."
    )


def _sequence(on: Subject) -> Advice:
    words = ("kafka-pixy pipeline scan", on.config, "--topics", shlex.quote(on.topic))
    return Advice(
        "An idempotent producer numbered records that the log lacks or has twice: its delivery timed out and it went "
        "on with the next number, or the log was truncated. Its own log has the reason.",
        (_command(words, "are the batches that are there sound?"),),
    )


def _written_twice(on: Subject) -> Advice:
    partitions = " ".join(f"-p {partition}" for partition, _, _ in on.partitions[:3])
    words = (
        "kafka-pixy consume",
        shlex.quote(on.topic),
        partitions,
        "--until-end --format '%p %o %T %k: %s\\n'",
    )
    return Advice(
        "A producer without idempotence repeated a request whose answer it had missed, or an application sent a "
        "message twice. enable.idempotence prevents the former.",
        (_command(words, "look at them"),),
    )


def _gap(on: Subject) -> Advice:
    return Advice(
        "Offsets are missing in the lake, and nobody was asked why. Give --config, so that the audit can ask the broker.",
        (_verify(on),),
    )


_BY_KIND: Final[dict[str, Callable[[Subject], Advice]]] = {
    "missing in the lake": _missing_in_lake,
    "gap in the lake": _gap,
    "archived ranges overlap": _archived_twice,
    "archived twice": _archived_twice,
    "archived out of order": _archived_twice,
    "archived late": _archive_behind,
    "not archived yet": _archive_behind,
    "confirmed to a producer and lost": _log_lost,
    "lost to the group": _lost_to_group,
    "acknowledgement unknown": _unknown_ack,
    "group behind": _group_behind,
    "expired before the group read it": _expired,
    "expired before the archive read it": _expired,
    "offered twice": _offered,
    "offered out of order": _offered,
    "hole in the journal": _hole,
    "sequence missing": _sequence,
    "sequence repeated": _sequence,
    "written twice": _written_twice,
}


def advise(kind: str, on: Subject) -> Advice:
    """Return the likely cause of findings, and what to do.

    Args:
        kind: of :class:`pixy.pipeline.audit.findings.Finding`; an unknown one gets no advice.
        on: the findings.
    """
    found = _BY_KIND.get(kind)
    return Advice("") if found is None else found(on)


__all__ = ["Advice", "Subject", "advise"]
