"""A group that was away while an unclean election gave its offsets to other messages (KIP-320)."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka.admin import NewTopic

from pixy.wire.client import GroupClient
from tests.integration.test_historic_bugs import consume_all, quick
from tests.kafka.cluster import Cluster
from tests.support import Daemon, eventually, serving


async def write(daemon: Daemon, topic: str, values: range) -> None:
    for at in values:
        await eventually(lambda at=at: _written(daemon, topic, at), within=60)


async def _written(daemon: Daemon, topic: str, at: int) -> bool:
    return (await daemon.post(f"/topics/{topic}/messages?sync", f"{at}")).status == 200


def wanted(values: range) -> set[bytes]:
    return {b"%d" % at for at in values}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_messages_that_have_taken_committed_offsets_are_delivered(
    kafka3: Cluster, name: str, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    topic = NewTopic(name, 1, replica_assignment=[[1, 2]], config=config)
    await asyncio.to_thread(kafka3.admin().create_topics([topic])[name].result, 30)
    app = quick(kafka3, group_protocol=protocol)
    async with serving(app) as daemon:
        await write(daemon, name, range(20))
        kafka3.kill(2)  # node 1 stays the leader; what it writes from here on it alone has
        await write(daemon, name, range(20, 60))
        await consume_all(daemon, name, wanted(range(60)))
    with GroupClient(kafka3.bootstrap()[:1], "g") as group:
        found = await asyncio.to_thread(group.fetch_offset, name, 0)
    assert found.offset == 60
    assert found.leader_epoch >= 0, "the commit names no leader epoch"

    kafka3.kill(1)
    kafka3.start(2)
    async with serving(app) as daemon:
        await write(daemon, name, range(100, 160))
        assert (await daemon.offsets(name, "g"))[0].end == 20 + 60, "beyond the committed offset"
        kafka3.start(1)
        await asyncio.to_thread(kafka3.wait_ready)
        await consume_all(daemon, name, wanted(range(100, 160)))
    assert f"{name}/0 was truncated at 20, below the committed offset 60" in caplog.text
