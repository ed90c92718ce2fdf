"""Consumer instances as clients use them, and a look at what they wait for."""

from __future__ import annotations

import base64
from typing import Any

from tests.contract import check_answer
from tests.integration.restv1.support import BINARY_V1, BINARY_V2, V1, V2, ask
from tests.support import Answer, Daemon, eventually


class Instance:
    """An instance, used through v2 by default. Every answer is checked against the contract."""

    def __init__(self, daemon: Daemon, group: str, name: str = "c") -> None:
        self.daemon, self.group, self.name = daemon, group, name
        self.base = f"/consumers/{group}/instances/{name}"

    async def create(self, v1: bool = False, **options: Any) -> Answer:
        accept = V1 if v1 else V2
        body = {"name": self.name, "auto.offset.reset": "earliest"}
        body.update({key.replace("_", "."): value for key, value in options.items()})
        answer = await self.call("POST", f"/consumers/{self.group}", body, accept)
        assert answer.status == 200, answer
        return answer

    async def call(self, method: str, path: str, body: Any = None, accept: str = V2) -> Answer:
        """Make a request."""
        kind = V1 if accept in (V1, BINARY_V1) else V2
        answer = await ask(self.daemon, method, path, body, accept=accept, content_type=kind)
        document = answer.json if answer.body else None
        check_answer(
            method, path.partition("?")[0], answer.status, answer.headers.get("Content-Type", ""), document
        )
        return answer

    async def at(self, method: str, path: str, body: Any = None, accept: str = V2) -> Answer:
        """A request below the instance's own path."""
        return await self.call(method, self.base + path, body, accept)

    async def subscribe(self, *topics: str) -> None:
        answer = await self.at("POST", "/subscription", {"topics": list(topics)})
        assert answer.status == 204, answer

    async def records(self, query: str = "", accept: str = BINARY_V2) -> list[dict[str, Any]]:
        answer = await self.at("GET", f"/records{query}", accept=accept)
        assert answer.status == 200, answer
        found: list[dict[str, Any]] = answer.json
        return found

    async def values(self, query: str = "") -> list[bytes]:
        return [base64.b64decode(record["value"]) for record in await self.records(query)]

    async def committed(self, topic: str, partitions: int = 1) -> dict[int, int]:
        wanted = [{"topic": topic, "partition": number} for number in range(partitions)]
        answer = await self.at("GET", "/offsets", {"partitions": wanted})
        assert answer.status == 200, answer
        return {each["partition"]: each["offset"] for each in answer.json["offsets"]}

    async def reads_wait(self, count: int) -> None:
        """Wait until this many reads wait for records; reads whose client has gone do not count."""
        ref = await self.daemon.engine.cluster().instances.find(self.group, self.name)

        async def waiting() -> int:
            return sum(not read.reply.done() for read in ref._cell.actor._reads._waiting)

        await eventually(waiting, lambda found: found == count)

    async def has_fetched_ahead(self) -> None:
        """Wait until the Kafka client holds records that no read has asked for."""
        ref = await self.daemon.engine.cluster().instances.find(self.group, self.name)

        async def ahead() -> bool:
            return bool(ref._cell.actor._context.session._reads.ahead)

        await eventually(ahead)

    async def delete(self) -> Answer:
        return await self.call("DELETE", self.base)


async def fill(daemon: Daemon, topic: str, *values: bytes, partition: int = 0) -> None:
    """Produce values to one partition."""
    records = [{"value": base64.b64encode(value).decode(), "partition": partition} for value in values]
    answer = await ask(daemon, "POST", f"/topics/{topic}", {"records": records}, content_type=BINARY_V2)
    assert answer.status == 200 and all(each["error"] is None for each in answer.json["offsets"]), answer
