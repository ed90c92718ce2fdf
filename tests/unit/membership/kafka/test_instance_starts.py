"""Where the partitions of a restarted instance begin."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest

from pixy.kafka.group_offsets import Committed
from pixy.membership.instances import EarlierPosition
from pixy.membership.kafka.instance_starts import StartOffsets
from tests.unit.engine.records import TOPIC

PARTITION = (TOPIC, 0)


class Client:
    """The part of :class:`pixy.kafka.instance_consumer.InstanceConsumer` that finds committed offsets."""

    def __init__(self, offset: int | None) -> None:
        self._offset = offset

    def committed(self, partitions: Iterable[Any], _timeout: float) -> dict[Any, Committed]:
        return {each: Committed(self._offset, "") for each in partitions}

    def layout(self, topics: Collection[str]) -> dict[str, dict[int, bool]]:
        return {topic: {0: True} for topic in topics}


def starts() -> StartOffsets:
    earlier = EarlierPosition(10, frozenset({0, 7}))
    return StartOffsets("i", oldest=True, commits=True, resume={PARTITION: earlier})


@pytest.mark.parametrize(
    ("committed", "begins"),
    [(None, 10), (0, 10), (7, 10), (500, 500), (9, 9)],
    ids=["nothing", "before the last commit", "the last commit", "another member's", "set back"],
)
def test_a_member_continues_where_its_reader_was_unless_another_has_committed_since(
    committed: int | None, begins: int
) -> None:
    client: Any = Client(committed)
    made = starts()
    assert made.of_member(client, [PARTITION], set()).starts == {PARTITION: begins}
    client = Client(600)
    assert made.of_member(client, [PARTITION], set()).starts == {PARTITION: 600}, "that was for once"


def test_in_chosen_partitions_the_reader_always_continues() -> None:
    """Nobody else takes them over, though others may commit for the same group."""
    client: Any = Client(500)
    assert starts().of_assignment(client, [PARTITION], {}).starts == {PARTITION: 10}
    assert starts().of_assignment(client, [PARTITION], {PARTITION: 20}).starts == {PARTITION: 20}
