"""Requests to the REST v1/v2 API as clients make them."""

from __future__ import annotations

import base64
import json
from typing import Any

from tests.support import Answer, Daemon, eventually

V1, V2 = "application/vnd.kafka.v1+json", "application/vnd.kafka.v2+json"
BINARY_V1, JSON_V1 = "application/vnd.kafka.binary.v1+json", "application/vnd.kafka.json.v1+json"
BINARY_V2, JSON_V2 = "application/vnd.kafka.binary.v2+json", "application/vnd.kafka.json.v2+json"


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


async def ask(
    daemon: Daemon,
    method: str,
    path: str,
    body: Any = None,
    *,
    accept: str | None = V2,
    content_type: str | None = None,
    **headers: str,
) -> Answer:
    """Make a request with exactly these headers. A body that is not bytes is encoded as JSON."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if accept is not None:
        sent["Accept"] = accept
    if content_type is not None:
        sent["Content-Type"] = content_type
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    skipped = [name for name in ("Accept", "Content-Type", "Accept-Encoding") if name not in sent]
    return await daemon.call(method, path, data=data, headers=sent, skip_auto_headers=skipped)


async def produce(daemon: Daemon, topic: str, records: Any, content_type: str = BINARY_V2) -> Answer:
    return await ask(daemon, "POST", f"/topics/{topic}", {"records": records}, content_type=content_type)


async def fetch(
    daemon: Daemon, topic: str, partition: int, offset: int, accept: str = BINARY_V2, query: str = ""
) -> Any:
    path = f"/topics/{topic}/partitions/{partition}/records?offset={offset}{query}"
    answer = await ask(daemon, "GET", path, accept=accept)
    assert answer.status == 200, answer
    return answer.json


def error(answer: Answer) -> tuple[int, int, str]:
    """The status, code and message of an error, whose document has exactly two keys."""
    found = answer.json
    assert set(found) == {"error_code", "message"}, found
    return answer.status, found["error_code"], found["message"]


async def under_way(daemon: Daemon, count: int) -> None:
    """Wait until the REST listener is answering this many requests."""
    listener: Any = next(ref for ref in daemon.engine._service._cell.children.values() if ref.name == "rest")

    async def active() -> int:
        found: int = listener.actor._shares.held
        return found

    await eventually(active, lambda found: found == count)
