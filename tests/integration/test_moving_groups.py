"""Groups in ZooKeeper on Kafka 3.9, through the daemon: sharing, expiry, and the move to Kafka's own groups."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from kazoo.client import KazooClient

from pixy.config import App
from pixy.config.model import ZooKeeper
from pixy.membership.zookeeper import groups
from pixy.membership.zookeeper.connection import Connection
from pixy.wire.client import GroupClient
from tests.kafka.cluster import Cluster
from tests.support import Daemon, eventually, make_config, serving, status_of

ROOT = "/some/root"


def config(cluster: Cluster, membership: str, name: str = "", **consumer: Any) -> App:
    options = {"drain_timeout": 0.2, "long_polling_timeout": 1.0, "offsets_commit_interval": 0.1, **consumer}
    made = make_config(cluster.bootstrap(), membership=membership, heartbeat_interval=0.2, **options)
    proxy = made.proxies["default"]
    proxy.client_id = name or f"member-{uuid.uuid4().hex[:6]}"
    proxy.zoo_keeper.seed_peers = [cluster.zookeeper]
    proxy.zoo_keeper.chroot = ROOT
    proxy.zoo_keeper.session_timeout = 6.0  # type: ignore[assignment]
    return made


@pytest.fixture
async def zookeeper(old_kafka: Cluster) -> AsyncIterator[KazooClient]:
    client = KazooClient(old_kafka.zookeeper)
    await asyncio.to_thread(client.start)
    yield client
    await asyncio.to_thread(client.stop)
    client.close()


async def consume(daemon: Daemon, topic: str, group: str) -> Any:
    """A message, not acknowledged; None if there is none."""
    try:
        return await daemon.consume(topic, group, no_ack=True)
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.NOT_FOUND, error
        return None


async def drain(daemon: Daemon, topic: str, group: str, count: int) -> list[int]:
    """Consume and acknowledge so many messages; return their offsets."""
    offsets: list[int] = []
    async with asyncio.timeout(60):
        while len(offsets) < count:
            message = await consume(daemon, topic, group)
            if message is not None:
                await daemon.ack(topic, group, message)
                offsets.append(message.offset)
    assert await consume(daemon, topic, group) is None
    return offsets


async def test_a_group_moves_to_kafka_and_back_without_loss(old_kafka: Cluster, name: str) -> None:
    old_kafka.create_topic(name)
    async with serving(config(old_kafka, "zookeeper")) as before:
        for number in range(10):
            await before.produce(name, b"%d" % number)
        got = []
        async with asyncio.timeout(60):
            while len(got) < 6:
                message = await consume(before, name, "g-" + name)
                if message is not None:
                    got.append(message)
        assert [message.offset for message in got] == [0, 1, 2, 3, 4, 5]
        for offset in (0, 1, 3, 5):
            await before.ack(name, "g-" + name, got[offset])
    async with serving(config(old_kafka, "kafka")) as after:
        offsets = (await after.offsets(name, "g-" + name))[0]
        assert (offsets.offset, offsets.sparse_acks) == (2, "1-2,3-4")
        assert sorted(await drain(after, name, "g-" + name, 6)) == [2, 4, 6, 7, 8, 9]
        for number in (10, 11):
            await after.produce(name, b"%d" % number)
        last = [await consume(after, name, "g-" + name) for _ in range(2)]
        await after.ack(name, "g-" + name, last[1])
    async with serving(config(old_kafka, "zookeeper")) as back:
        assert await drain(back, name, "g-" + name, 1) == [10]
        assert await eventually(lambda: back.offsets(name, "g-" + name), lambda found: found[0].offset == 12)


async def test_members_in_kafka_win_over_members_in_zookeeper(
    old_kafka: Cluster, zookeeper: KazooClient, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    old_kafka.create_topic(name)
    ours, theirs = (
        config(old_kafka, kind, subscription_timeout=2.0, ack_timeout=2.0) for kind in ("zookeeper", "kafka")
    )
    claim = f"{ROOT}/consumers/{name}/owners/{name}/0"
    async with serving(ours) as old:
        for number in range(4):
            await old.produce(name, b"%d" % number)
        first = await eventually(lambda: consume(old, name, name))
        assert zookeeper.get(claim)[0].decode() == ours.proxies["default"].client_id
        async with serving(theirs) as new:
            message = await eventually(lambda: consume(new, name, name))
            assert message.offset == 0, "nothing was committed beyond the beginning"
            await old.ack(name, name, first)  # its commit is refused

            async def claimed() -> bool:
                return zookeeper.exists(claim) is not None

            await eventually(claimed, lambda found: not found)
            assert "it has members in Kafka's own group protocol" in caplog.text
            await new.ack(name, name, message)
            assert sorted(await drain(new, name, name, 3)) == [1, 2, 3]
            await old.produce(name, b"4")
            assert await consume(old, name, name) is None
            assert await drain(new, name, name, 1) == [4]
        await old.produce(name, b"5")
        assert await drain(old, name, name, 1) == [5]


async def test_claims_are_listed_as_consumers_and_removed_at_the_end(
    old_kafka: Cluster, zookeeper: KazooClient, name: str
) -> None:
    old_kafka.create_topic(name, 3)
    a, b = (config(old_kafka, "zookeeper", f"{kind}-{name}", subscription_timeout=60.0) for kind in "ab")
    async with serving(b) as one:
        answer = await one.get(f"/topics/{name}/consumers?group={name}")
        assert (answer.status, answer.error) == (400, f"unknown consumer group {name}")
        await consume(one, name, name)
        async with serving(a) as other:
            answer = await other.call("DELETE", f"/groups/{name}")
            assert answer.status == 409 and "has members" in answer.error, "those of another daemon"
            await consume(other, name, name)
            wanted = {name: {f"a-{name}": [0, 1], f"b-{name}": [2]}}
            for daemon in (one, other):
                for query in ("", f"?group={name}"):

                    async def listed(daemon: Daemon = daemon, query: str = query) -> Any:
                        return (await daemon.get(f"/topics/{name}/consumers{query}")).json

                    await eventually(listed, lambda found: found == wanted)
            data = zookeeper.get(f"{ROOT}/consumers/{name}/ids/a-{name}")[0]
            record = json.loads(data)
            assert record.pop("timestamp") > 1e9
            assert record == {"subscription": {name: 1}, "pattern": "static", "version": 1}
            answer = await one.get(f"/topics/other/consumers?group={name}")
            assert (answer.status, answer.error) == (400, f"topic other is not consumed by {name}")
            answer = await one.post(f"/topics/{name}/offsets?group={name}", "[]")
            assert answer.status == 409
        await eventually(listed_by(one, name), lambda found: found == {name: {f"b-{name}": [0, 1, 2]}})
    assert not zookeeper.exists(f"{ROOT}/consumers/{name}")


def listed_by(daemon: Daemon, topic: str) -> Any:
    async def listed() -> Any:
        return (await daemon.get(f"/topics/{topic}/consumers")).json

    return listed


async def test_an_expired_session_joins_again(
    old_kafka: Cluster, zookeeper: KazooClient, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Connection] = []

    class Noted(Connection):
        def __init__(self, conf: ZooKeeper) -> None:
            super().__init__(conf)
            opened.append(self)

    monkeypatch.setattr(groups, "Connection", Noted)
    old_kafka.create_topic(name)
    claim = f"{ROOT}/consumers/{name}/owners/{name}/0"
    async with serving(config(old_kafka, "zookeeper", subscription_timeout=60.0)) as daemon:
        await daemon.produce(name, b"0")
        assert await drain(daemon, name, name, 1) == [0]
        session = zookeeper.get(claim)[1].ephemeralOwner
        # The server ends a session when a client with its id and password closes it.
        thief = KazooClient(old_kafka.zookeeper, client_id=opened[0]._client.client_id)
        await asyncio.to_thread(thief.start)
        await asyncio.to_thread(thief.stop)
        thief.close()

        async def owner() -> int:
            found = zookeeper.exists(claim)
            return 0 if found is None else int(found.ephemeralOwner)

        await eventually(owner, lambda found: found not in (0, session))
        await daemon.produce(name, b"1")
        assert await drain(daemon, name, name, 1) == [1]


@pytest.mark.parametrize("group", ["a/b", ".."])
async def test_a_group_that_cannot_be_a_znode_is_refused(old_kafka: Cluster, name: str, group: str) -> None:
    async with serving(config(old_kafka, "zookeeper")) as daemon:
        code, text = await status_of(daemon.consume(name, group))
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert text == "bad group: ZooKeeper does not allow '/' or control characters in its name"


async def test_offsets_of_idle_partitions_are_committed_again(old_kafka: Cluster, name: str) -> None:
    """Kafka deletes them after offsets.retention.minutes, because the group has no members in its view. Here a tool does."""
    old_kafka.create_topic(name)
    async with serving(config(old_kafka, "zookeeper", offsets_refresh_interval=0.5)) as daemon:
        for number in range(6):
            await daemon.produce(name, b"%d" % number)
        got = [await consume(daemon, name, name) for _ in range(6)]
        for message in (*got[:3], got[4]):
            await daemon.ack(name, name, message)

        async def committed() -> tuple[int, str]:
            found = (await daemon.offsets(name, name))[0]
            return found.offset, found.sparse_acks

        for _ in range(2):
            await eventually(committed, lambda found: found == (3, "1-2"))
            await asyncio.to_thread(_delete_offsets, old_kafka, name)
        await eventually(committed, lambda found: found == (3, "1-2"))


def _delete_offsets(cluster: Cluster, group: str) -> None:
    with GroupClient(cluster.bootstrap(), group) as client:
        answer = client.call("DeleteGroups", {"GroupsNames": [group]})
    assert not answer["Results"][0]["ErrorCode"], answer
