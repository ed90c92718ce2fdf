"""Looks at actors that end meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from actors import Actor, ActorSystem
from pixy.engine.consume.views import ViewPartition
from pixy.engine.inspector import Inspector
from pixy.errors import Unavailable


async def test_a_group_that_has_ended_is_left_out_and_no_error_of_ours() -> None:
    async with ActorSystem() as system:
        ref: Any = system.spawn(Actor)
        await ref.stop(block=False)
        inspector = Inspector({"main": ref}, {})
        assert await inspector.views({"g": ref}) == {}
        assert await inspector.offers(ref, [("t", 0)]) == {}
        assert await inspector.messages({"g": ref}, "t", 0, 0) == {}
        for look in (inspector.page(ref, ViewPartition("t", 0)), inspector.cluster("main")):
            with pytest.raises(Unavailable):
                await look
