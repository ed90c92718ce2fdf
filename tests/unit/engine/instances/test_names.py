"""Group ids that librdkafka accepts unchanged."""

from __future__ import annotations

import pytest

from pixy.errors import InvalidParameter
from pixy.kafka.settings import group_id


@pytest.mark.parametrize("group", ["", " ", "\n", " a", "a\t", "a\x00b", "x" * 40_000])
def test_a_group_id_that_librdkafka_would_change_or_abort_on_is_refused(group: str) -> None:
    with pytest.raises(InvalidParameter, match="bad group"):
        group_id(group)


@pytest.mark.parametrize("group", ["g", "a b", "früh.stück", "."])
def test_other_group_ids_are_accepted(group: str) -> None:
    group_id(group)
