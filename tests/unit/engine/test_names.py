"""Names of groups that Kafka's client library can take."""

from __future__ import annotations

import pytest

from pixy.engine.client import check_group
from pixy.errors import InvalidParameter


@pytest.mark.parametrize("group", ["", " ", "\n", " a", "a\t", "a\x00b", "x" * 40_000])
def test_a_group_that_would_be_another_one_or_end_the_process_is_refused(group: str) -> None:
    with pytest.raises(InvalidParameter, match="bad group"):
        check_group(group)


@pytest.mark.parametrize("group", ["g", "a b", "früh.stück", "."])
def test_other_groups_are_taken(group: str) -> None:
    check_group(group)
