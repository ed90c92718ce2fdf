"""What the audit log tells of operations whose callers go before the answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pixy.auth.audit import AuditLog
from pixy.auth.principal import Caller, Principal
from pixy.auth.rules import Access, Rules
from pixy.config.model import App, Proxy
from pixy.config.security import Audit, Rule
from pixy.engine.guard import Guard
from pixy.engine.guarded import GuardedCluster
from pixy.engine.instances.messages import GetAssignment, Unsubscribe
from pixy.errors import TopicExists
from pixy.kafka.topic_changes import NewTopic

ALICE = Caller(Principal("jwt:alice"))


class World:
    """A cluster behind a guard, whose operations end when a test lets them."""

    def __init__(self, folder: Path) -> None:
        app = App(proxies={"c": Proxy()})
        app.auth.anonymous = True
        self.path = folder / "audit"
        self.guard = Guard(app)
        self.guard.rules = Rules([Rule(["*"], ["*"], topics=["*"], groups=["*"])], {})
        self.guard.audit = AuditLog(Audit(str(self.path), verbs=["*"]))
        self.guard.audit.start()
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.error: Exception | None = None
        self.made: list[str] = []
        instances = SimpleNamespace(find=self._operation("find", wait=False), ask=self._operation("ask"))
        client: Any = SimpleNamespace(admin=SimpleNamespace(), instances=instances)
        for name in ("produce", "produce_many", "consume", "ack", "set_offsets"):
            setattr(client, name, self._operation(name))
        for name in ("create_topic", "delete_topic"):
            setattr(client.admin, name, self._operation(name))
        self.cluster = GuardedCluster(client, self.guard, ALICE, "c")

    def _operation(self, name: str, *, wait: bool = True) -> Callable[..., Coroutine[Any, Any, None]]:
        async def operation(*_args: Any, **_named: Any) -> None:
            if wait:
                self.begun.set()
                await self.go_on.wait()
                if self.error is not None:
                    raise self.error
                self.made.append(name)

        return operation

    async def leave(self, asked: Coroutine[Any, Any, Any]) -> None:
        """Begin an operation, and have its caller go."""
        self.begun.clear()
        task = asyncio.create_task(asked)
        await self.begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def lines(self) -> list[dict[str, Any]]:
        await self.guard.stop()
        return [json.loads(line) for line in self.path.read_text().splitlines()]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    yield made
    assert made.guard.limiter.active == 0


CHANGES: dict[str, Callable[[GuardedCluster], Coroutine[Any, Any, Any]]] = {
    "create_topic": lambda cluster: cluster.admin.create_topic(NewTopic("t", 1, 1, {})),
    "delete_topic": lambda cluster: cluster.admin.delete_topic("t"),
    "set_offsets": lambda cluster: cluster.set_offsets("t", "g", ()),
    "produce": lambda cluster: cluster.produce("t", b"x"),
    "produce_many": lambda cluster: cluster.produce_many("t", ()),
    "ack": lambda cluster: cluster.ack("t", "g", 0, 0),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_whose_caller_goes_is_made_and_its_record_tells_what_came_of_it(
    world: World, name: str
) -> None:
    await world.leave(CHANGES[name](world.cluster))
    assert world.guard.limiter.active == 1, "it counts as its caller's until it ends"
    world.go_on.set()
    (line,) = await world.lines()
    assert (line["result"], line["answered"], world.made) == ("ok", False, [name])


async def test_the_record_of_a_change_that_fails_without_its_caller_has_the_error(world: World) -> None:
    world.error = TopicExists("t")
    await world.leave(CHANGES["create_topic"](world.cluster))
    world.go_on.set()
    (line,) = await world.lines()
    assert (line["result"], line["answered"], line["error"]) == ("TopicExists", False, str(world.error))


async def test_a_change_whose_caller_waits_has_no_remark(world: World) -> None:
    world.go_on.set()
    await CHANGES["create_topic"](world.cluster)
    (line,) = await world.lines()
    assert line["result"] == "ok" and "answered" not in line


async def test_what_the_end_of_the_daemon_cuts_off_is_unknown(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pixy.engine.unanswered._GRACE", 0.01)
    await world.leave(CHANGES["create_topic"](world.cluster))
    (line,) = await world.lines()
    assert (line["result"], line["answered"]) == ("unknown", False)


async def test_what_has_not_begun_or_changes_nothing_is_cancelled(world: World) -> None:
    async def build() -> list[Any]:
        world.begun.set()
        await asyncio.Event().wait()
        return []

    await world.leave(world.cluster.produce_built("t", build))
    await world.leave(world.cluster.consume("t", "g"))
    await world.leave(world.cluster.consume("t", "g", ack=(0, 0)))
    for request in (GetAssignment(), Unsubscribe()):
        await world.leave(world.cluster.instances.ask("g", "i", request))
    assert [(line["verb"], line["result"]) for line in await world.lines()] == [
        ("produce", "cancelled"),
        ("consume", "cancelled"),
        ("consume", "unknown"),
        ("consume", "cancelled"),
        ("consume", "unknown"),
    ]
    assert world.made == []


async def test_an_operator_s_action_goes_on_as_well(world: World) -> None:
    access = Access("admin", "c", "t", "g")

    async def act() -> None:
        with world.guard.act(ALICE, access, "pause"):
            world.begun.set()
            await world.go_on.wait()

    await world.leave(world.guard.unanswered.carry_out(act()))
    world.go_on.set()
    (line,) = await world.lines()
    assert (line["action"], line["result"], line["answered"]) == ("pause", "ok", False)
