"""Commits of an instance's session, in its thread: which it holds back, and what it still commits after it has failed."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from pixy.errors import KafkaError
from pixy.kafka.consumer import Commit, Committed
from pixy.membership.instances import Assigned, Done, Revoked, SessionFailed
from pixy.membership.kafka import instance
from pixy.membership.kafka.instance import KafkaInstance
from tests.support import make_config
from tests.unit.engine.records import TOPIC

PARTITION = (TOPIC, 0)
TEN, TWELVE = (Commit(TOPIC, 0, 10, ""),), (Commit(TOPIC, 0, 12, ""),)


class Client:
    """The part of :class:`pixy.kafka.instance_consumer.InstanceConsumer` that a member calls which fetches nothing."""

    unanswered_heartbeats = 0

    def __init__(self, _settings: object, *, assign: Any, revoke: Any, **_callbacks: object) -> None:
        self.assigned, self.revoked = assign, revoke
        self.in_poll: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        """What happens inside the next polls."""
        self.commits: list[tuple[Commit, ...]] = []

    def poll(self, timeout: float) -> None:
        try:
            act = self.in_poll.get(timeout=timeout) if timeout else self.in_poll.get_nowait()
        except queue.Empty:
            return
        act()

    def committed(self, partitions: Iterable[Any], _timeout: float) -> dict[Any, Committed]:
        return {each: Committed(10, "") for each in partitions}

    def commit(self, commits: tuple[Commit, ...], **_options: object) -> None:
        self.commits.append(commits)

    def topic_ids(self, *_: object) -> dict[str, Any]:
        return {}

    def nothing(self, *_: object) -> None:
        pass

    subscribe_or_raise = assign = resume = close = nothing


class Lookups:
    """Replaces StartLookups: it looks nothing up."""

    running = 0

    def __init__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        pass


class Case:
    """A session that has been assigned a partition, and what happens to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made: list[Client] = []

        def client(*arguments: Any, **options: Any) -> Client:
            made.append(Client(*arguments, **options))
            return made[0]

        monkeypatch.setattr(instance, "InstanceConsumer", client)
        monkeypatch.setattr(instance, "StartLookups", Lookups)
        proxy = make_config(["127.0.0.1:1"]).proxies["default"]
        self._made = made
        self._events: asyncio.Queue[Any] = asyncio.Queue()
        self.on_revoked: Callable[[Revoked], None] = lambda _revoked: None
        self.session = KafkaInstance(proxy, "g", "c", "earliest", "read_committed", True, {}, self._post)

    def _post(self, event: Any) -> None:
        if isinstance(event, Revoked):
            self.on_revoked(event)
        self._events.put_nowait(event)

    @property
    def client(self) -> Client:
        return self._made[0]

    async def event(self, wanted: Callable[[Any], bool]) -> Any:
        while not wanted(event := await asyncio.wait_for(self._events.get(), 30)):
            pass
        return event

    async def result(self, token: int) -> Any:
        return (await self.event(lambda event: isinstance(event, Done) and event.token == token)).value

    async def assigned(self) -> Case:
        self.session.subscribe(1, (TOPIC,))
        self.session.want(1, 1000)
        await self.result(1)
        self.client.in_poll.put(lambda: self.client.assigned([PARTITION]))
        await self.event(lambda event: isinstance(event, Assigned))
        return self


@pytest.mark.parametrize("comes_back", [False, True])
async def test_a_position_that_runs_after_its_partition_was_given_back_is_left_out(
    monkeypatch: pytest.MonkeyPatch, comes_back: bool
) -> None:
    """The next owner may have committed more. What a client has named is committed as it said."""
    case = await Case(monkeypatch).assigned()
    session = case.session

    def revoked(event: Revoked) -> None:
        session.commit(2, TEN, assigned_only=True)
        session.commit(3, TEN)
        session.release(event, TWELVE)

    def rebalance() -> None:
        case.client.revoked([PARTITION])
        if comes_back:
            case.client.assigned([PARTITION])

    case.on_revoked = revoked
    case.client.in_poll.put(rebalance)
    assert await case.result(2) == ()
    assert await case.result(3) == TEN
    assert case.client.commits == [TWELVE, TEN]
    session.commit(4, TWELVE, assigned_only=True)
    assert await case.result(4) == (TWELVE if comes_back else ())
    await session.close((), 10)


async def test_a_position_is_committed_and_its_repetition_does_not_undo_a_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = await Case(monkeypatch).assigned()
    for token, commits, made in ((3, TWELVE, TWELVE), (2, TEN, ()), (4, TEN, TEN)):
        case.session.commit(token, commits, assigned_only=True)
        assert await case.result(token) == made
    assert case.client.commits == [TWELVE, TEN]
    await case.session.close((), 10)


async def test_a_failed_session_commits_the_last_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    case = await Case(monkeypatch).assigned()

    def fail() -> None:
        raise KafkaError("x", -1, "X")

    case.client.in_poll.put(fail)
    await case.event(lambda event: isinstance(event, SessionFailed))
    await case.session.close(TWELVE, 10)
    assert case.client.commits == [TWELVE]
