"""Changes of topics that no client may make."""

from __future__ import annotations

from typing import Any

import pytest

from pixy.engine.cluster_admin import ClusterAdmin
from pixy.errors import InvalidParameter
from pixy.kafka.topic_changes import NewTopic


@pytest.mark.parametrize("change", ["create", "alter", "delete"])
async def test_the_journals_topic_is_the_daemons(change: str) -> None:
    """Also before there is one: whoever creates it decides how long it keeps what it is told."""
    asked: list[Any] = []

    async def ask(request: Any) -> Any:
        asked.append(request)

    for topic, refused in (("journal", True), ("journal2", False)):
        admin = ClusterAdmin(ask, "journal")
        made = {
            "create": lambda: admin.create_topic(NewTopic(topic)),  # noqa: B023
            "alter": lambda: admin.alter_topic(topic, {"retention.ms": "1"}),  # noqa: B023
            "delete": lambda: admin.delete_topic(topic),  # noqa: B023
        }
        if refused:
            with pytest.raises(InvalidParameter, match="is the journal of this daemon"):
                await made[change]()
        else:
            await made[change]()
    assert len(asked) == 1
