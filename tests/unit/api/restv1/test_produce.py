"""The answer to a request that writes records."""

from __future__ import annotations

import json
from typing import Any

from pixy.api.restv1 import produce
from pixy.kafka.producer_messages import NO_OFFSET


class Call:
    """The part of :class:`pixy.api.restv1.call.Call` that takes an answer."""

    async def answer(self, body: bytes, _status: int = 200) -> Any:
        return json.loads(body)


async def test_an_offset_that_nobody_knows_is_null() -> None:
    """With ``required_acks: no_response``."""
    call: Any = Call()
    answer: Any = await produce._answer(call, [(1, 7), (0, NO_OFFSET)])
    assert [(each["partition"], each["offset"]) for each in answer["offsets"]] == [(1, 7), (0, None)]
