"""Keeps positions of a topic that was deleted and made again out of the group's commits. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from pixy.kafka.group_offsets import Commit
from pixy.kafka.topics import differ
from pixy.wire.types import TopicPartition


def recreated(
    known: Mapping[TopicPartition, uuid.UUID], ids: Mapping[str, uuid.UUID]
) -> dict[TopicPartition, uuid.UUID]:
    """Return the partitions whose topic is another one now, with the ids that they had.

    Args:
        known: the ids of the topics when the partitions were assigned.
        ids: the topics' ids now; a topic that does not exist is left out.
    """
    return {
        partition: was
        for partition, was in known.items()
        if partition[0] in ids and differ(was, ids[partition[0]])
    }


def begin_anew(
    commits: Iterable[Commit], partitions: Mapping[TopicPartition, uuid.UUID]
) -> tuple[Commit, ...]:
    """Replace the positions in logs that are gone by the beginning of the new ones.

    The group has consumed nothing of a new log. Without a commit, its next session would count as new to the
    topic, and with ``initial_offset: newest`` it would skip what has been written meanwhile.

    Args:
        commits: positions.
        partitions: those that :func:`recreated` has returned.
    """
    return tuple(
        Commit(each.topic, each.partition, 0, "") if (each.topic, each.partition) in partitions else each
        for each in commits
    )
