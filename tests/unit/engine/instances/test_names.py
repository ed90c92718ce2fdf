"""Names of groups that Kafka's client library can take."""

from __future__ import annotations

import pytest

from pixy.errors import InvalidParameter
from pixy.kafka.settings import group_id


@pytest.mark.parametrize("group", ["", " ", "\n", " a", "a\t", "a\x00b", "x" * 40_000])
def test_a_group_that_would_be_another_one_or_end_the_process_is_refused(group: str) -> None:
    with pytest.raises(InvalidParameter, match="bad group"):
        group_id(group)


@pytest.mark.parametrize("group", ["g", "a b", "früh.stück", "."])
def test_other_groups_are_taken(group: str) -> None:
    group_id(group)
