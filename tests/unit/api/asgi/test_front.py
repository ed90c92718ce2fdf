"""The ASGI application bounds what waits for it."""

from __future__ import annotations

import asyncio
from typing import Any

from pixy.api.asgi import front as module
from pixy.api.asgi.front import Front
from tests.unit.api.asgi.fake import Exchange


async def test_requests_of_one_address_that_have_not_begun_are_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "_MOST_WAITING", 2)
    served: list[str] = []

    async def serve(scope: Any, _receive: Any, send: Any) -> None:
        served.append(scope["client"][0])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    front = Front(lambda: None, lambda _tls: None)
    opened = asyncio.ensure_future(front.address("rest", serve))
    await asyncio.sleep(0)
    front.opened({"rest": "127.0.0.1:80"})
    await opened
    front.serve({"rest": "127.0.0.1:80"})

    async def ask(flood: int) -> list[Exchange]:
        """Let requests of one address arrive at once, a call last, and then one of another address."""
        asked = [Exchange("/topics") for _ in range(flood)]
        asked.append(Exchange("/KafkaPixy/Produce", ((b"content-type", b"application/grpc"),)))
        asked.append(Exchange("/topics"))
        asked[-1].scope["client"] = ("10.0.0.1", 4000)
        await asyncio.gather(*[each.serve(front) for each in asked])
        return asked

    for _ in range(2):  # those that have begun count no more
        asked = await ask(3)
        answers = [each.answer() for each in asked]
        assert [answer[0] for answer in answers] == [200, 200, 503, 200, 200]
        assert answers[3][2][b"grpc-status"] == b"8"
        assert served == ["127.0.0.1", "127.0.0.1", "10.0.0.1"]
        served.clear()
    for _ in range(3):
        gone = Exchange("/topics").serve(front)
        gone.cancel()  # its client has gone before it has begun
        await asyncio.wait([gone])
    assert not front._waiting
