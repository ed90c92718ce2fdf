"""Sets offsets of a sandbox's group that has had members: from then on librdkafka's mock cluster takes commits of members alone.

So this becomes one for a moment. After the last member has left, the mock waits for others as long as that one's session would have
lasted, and answers no one who joins meanwhile: the wait is at most the session timeout, which all members have in common.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException

from pixy.errors import GroupActive, KafkaError, Unavailable
from pixy.kafka.errors import translate
from pixy.kafka.group_offsets import Commit, GroupOffsets, parse_member
from pixy.kafka.settings import Settings
from pixy.wire.types import TopicPartition

_MARGIN: Final = 15.0
"""Seconds beyond the session timeout for joining: the mock lets a group's first member wait for three, too."""
_SESSION: Final = 45_000
"""Milliseconds of a session with KIP-848, which is the cluster's to choose: no shorter than the mock's."""
_LOOK: Final = 0.2
"""Seconds between two looks whether the daemon stops."""


def set_offsets(
    settings: Settings, group: str, commits: Sequence[Commit], stopped: Callable[[], bool]
) -> dict[TopicPartition, KafkaError]:
    """Commit as a member that joins for this alone; return the errors by partition. Blocking.

    Args:
        settings: of the group's consumers.
        group: its id.
        commits: all of one topic; negative offsets are stored as they are.
        stopped: whether the daemon stops.

    Raises:
        GroupActive: another member has partitions of the topic.
        KafkaError: the coordinator refused everything.
        Unavailable: the group did not take this member in time, or the daemon stops.
    """
    topic = commits[0].topic
    assigned: list[int] = []
    joined: list[bool] = []

    def on_assign(consumer: Any, partitions: Any) -> None:
        joined.append(True)
        assigned.extend(each.partition for each in partitions)
        consumer.incremental_assign([])  # nothing is read

    consumer = Consumer({each: value for each, value in settings.items() if each != "group.instance.id"})
    try:
        consumer.subscribe([topic], on_assign=on_assign)
        until = time.monotonic() + settings.get("session.timeout.ms", _SESSION) / 1000 + _MARGIN
        while not joined:
            consumer.poll(_LOOK)
            if stopped() or time.monotonic() > until:
                raise Unavailable(f"the sandbox did not let go of group {group}: try again")
        if len(assigned) < len(consumer.list_topics(topic, timeout=10).topics[topic].partitions):
            raise GroupActive(group)
        offsets = GroupOffsets(settings, group)
        try:
            return offsets.commit(commits, parse_member(consumer.consumer_group_metadata()))
        finally:
            offsets.close()
    except KafkaException as error:
        raise translate(error) from error
    finally:
        consumer.close()


__all__ = ["set_offsets"]
