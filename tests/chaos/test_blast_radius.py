"""What a failing session takes with it, on real Kafka: its group, for a while, and nothing else."""

from __future__ import annotations

import asyncio
import itertools

import grpc
import pytest
from confluent_kafka import KafkaError, KafkaException

from actors import Backoff
from pixy.engine.consume import rejoining
from pixy.kafka.consumer import ConsumerClient
from tests.kafka.cluster import Cluster
from tests.support import Daemon, eventually, make_config, serving


class Failures:
    """Makes the consumer of one group fail in its next poll."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, group: str) -> None:
        self.wanted = False
        self.count = 0
        made, poll = ConsumerClient.__init__, ConsumerClient.poll
        hit: set[int] = set()

        def init(client, settings, **callbacks):  # type: ignore[no-untyped-def]
            if settings["group.id"] == group:
                hit.add(id(client))
            made(client, settings, **callbacks)

        def failing(client, timeout):  # type: ignore[no-untyped-def]
            if self.wanted and id(client) in hit:
                self.wanted = False
                self.count += 1
                raise KafkaException(KafkaError(KafkaError._FATAL, "on purpose"))
            return poll(client, timeout)

        monkeypatch.setattr(ConsumerClient, "__init__", init)
        monkeypatch.setattr(ConsumerClient, "poll", failing)

    async def fail(self) -> None:
        """Make the session fail, and wait until it has."""
        before = self.count
        self.wanted = True
        await eventually(lambda: asyncio.sleep(0, self.count), lambda count: count > before)


async def answers(daemon: Daemon, topic: str, group: str) -> bytes | None:
    """Consume with auto-ack; None if there was no message or the group has no session."""
    try:
        return (await daemon.consume(topic, group, auto_ack=True)).message
    except grpc.RpcError as error:
        assert error.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAVAILABLE), error
        return None


async def test_a_session_that_fails_again_and_again_repeats_no_auto_acknowledged_message(
    kafka: Cluster, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the commit of the failing group itself can have saved the ack: the periodic one is a minute away."""
    kafka.create_topic(name)
    failures = Failures(monkeypatch, "g")
    config = make_config(kafka.bootstrap(), offsets_commit_interval=60.0, long_polling_timeout=1.0)
    async with serving(config) as daemon:
        found: list[bytes] = []
        for number in range(4):
            await daemon.produce(name, b"%d" % number)
            while len(found) <= number:
                message = await answers(daemon, name, "g")
                found += [] if message is None else [message]
            await failures.fail()
        assert found == [b"0", b"1", b"2", b"3"]
        await eventually(lambda: daemon.offsets(name, "g"), lambda offsets: offsets[0].offset == 4)
    assert not [line for line in caplog.messages if "restart" in line], "nothing but the session has failed"


async def test_a_failing_group_leaves_other_groups_alone(
    kafka: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.create_topic(name)
    monkeypatch.setattr(rejoining, "BACKOFF", Backoff(first=0.05, most=0.05))
    failures = Failures(monkeypatch, "sick")
    config = make_config(kafka.bootstrap(), long_polling_timeout=5.0)
    async with serving(config) as daemon:
        await daemon.produce(name, b"0")
        assert await answers(daemon, name, "sick") == await answers(daemon, name, "well") == b"0"
        for number in range(1, 8):  # more failures than a supervisor's default allows
            await answers(daemon, name, "sick")
            await failures.fail()
            await daemon.produce(name, b"%d" % number)
            assert await answers(daemon, name, "well") == b"%d" % number, "at the first attempt"


async def test_a_static_member_that_is_fenced_joins_again(kafka: Cluster, name: str) -> None:
    """Two daemons with one group_instance_id by mistake: Kafka ends the earlier member's session for good."""
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap(), group_instance_id="the-same", long_polling_timeout=1.0)
    numbers = itertools.count()
    async with serving(config) as first:

        async def consumed(daemon: Daemon, group: str) -> bytes | None:
            await daemon.produce(name, b"%d" % next(numbers))
            return await answers(daemon, name, group)

        await eventually(lambda: consumed(first, "g"))
        await eventually(lambda: consumed(first, "own"))
        async with serving(config) as second:
            await eventually(lambda: consumed(second, "g"))
            for _ in range(5):
                assert await consumed(first, "own") is not None, "the other group is not fenced"
        await eventually(lambda: consumed(first, "g"), within=60)
