"""The calls of API handlers when an actor's mailbox is full."""

from __future__ import annotations

from typing import Any

import pytest

from actors import Future, MailboxFull
from pixy.config.model import Proxy
from pixy.engine.client import ClusterClient
from pixy.errors import TooManyRequests


class Full:
    """A reference to an actor whose mailbox is full."""

    def ask(self, _message: Any, *, block: bool, urgent: bool = False) -> Future[Any]:
        reply: Future[Any] = Future()
        reply.try_fail(MailboxFull("full"))
        return reply

    def is_alive(self) -> bool:
        return True


def client() -> ClusterClient:
    full: Any = Full()
    return ClusterClient(full, Proxy(), lambda: False)


async def test_a_full_mailbox_without_a_configuration_key_names_none() -> None:
    made = client()
    with pytest.raises(TooManyRequests) as refused:
        await made.consume("t", "g")
    assert str(refused.value) == "Too many requests, try again"
    made._groups["g"] = Full()  # type: ignore[assignment]
    with pytest.raises(TooManyRequests) as refused:
        await made.ack("t", "g", 0, 0)
    assert str(refused.value) == "Too many requests, try again"


async def test_a_group_with_too_many_requests_answers_with_the_original_s_text() -> None:
    made = client()
    made._groups["g"] = Full()  # type: ignore[assignment]
    with pytest.raises(TooManyRequests, match=r"Consider increasing `consumer\.channel_buffer_size`"):
        await made.consume("t", "g")
