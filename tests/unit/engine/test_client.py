"""The calls of API handlers when an actor's mailbox is full, or the actor ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from actors import ActorDeadError, Future, MailboxFull, NoAnswer
from pixy.config.model import Proxy
from pixy.engine.actor_refs import ATTEMPTS
from pixy.engine.client import ClusterClient
from pixy.engine.cluster import Cluster
from pixy.engine.cluster_admin import ClusterAdmin
from pixy.engine.cluster_messages import GetAdmin
from pixy.errors import TooManyRequests, Unavailable
from pixy.kafka.topic_changes import NewTopic


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


class Ending:
    """A reference to a cluster, and to its admin, which ends with each request that it has begun with."""

    def __init__(self, error: Exception | None = None) -> None:
        self.begun: list[Any] = []
        self.error = error or NoAnswer("ended")

    def ask(self, message: Any, *, block: bool, urgent: bool = False) -> Future[Any]:
        reply: Future[Any] = Future()
        if isinstance(message, GetAdmin):
            reply.try_set(self)
        else:
            self.begun.append(message)
            reply.try_fail(self.error)
        return reply

    def is_alive(self) -> bool:
        return True


async def test_a_change_is_not_asked_for_again_when_the_admin_ends() -> None:
    """It may have been made. A second delete would answer 404, or delete a topic that somebody has made again."""
    changes: list[Callable[[ClusterAdmin], Awaitable[None]]] = [
        lambda admin: admin.create_topic(NewTopic("t")),
        lambda admin: admin.alter_topic("t", {}, partitions=2),
        lambda admin: admin.delete_topic("t"),
        lambda admin: admin.delete_group("g"),
    ]
    for change in changes:
        ending: Any = Ending()
        with pytest.raises(Unavailable, match="the change may or may not have been made"):
            await change(ClusterClient(ending, Proxy(), lambda: False).admin)
        assert len(ending.begun) == 1
    ending = Ending()
    with pytest.raises(Unavailable, match="try again"):
        await ClusterClient(ending, Proxy(), lambda: False).brokers()
    assert len(ending.begun) == ATTEMPTS, "what changes nothing is asked for again"


@pytest.mark.parametrize("error", [NoAnswer("ended"), ActorDeadError("gone"), MailboxFull("full")])
async def test_an_admin_that_fails_is_no_failure_of_a_member_in_zookeeper(error: Exception) -> None:
    """Its groups try again after an error of Kafka's; any other ends their membership."""
    cluster: Any = SimpleNamespace(
        _admin=Ending(error), _proxy=Proxy(), _lookups=SimpleNamespace(partitions=None)
    )
    outlook = Cluster._use_zookeeper(cluster)._outlook
    with pytest.raises(Unavailable, match=str(error)):
        await outlook.has_commits("g", "t")
    with pytest.raises(Unavailable, match=str(error)):
        await outlook.has_kafka_members("g")
