"""Consumer instances of one group, and a topic that is made again while only one of them has its partition."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka.admin import NewTopic

from tests.integration.restv1.consumers import Instance, fill
from tests.kafka.cluster import Cluster
from tests.support import Daemon, eventually, make_config, serving


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_topic_that_is_made_again_before_its_partition_comes_here_is_read_from_its_beginning(
    kafka: Cluster, name: str, protocol: str
) -> None:
    """Its owner leaves while the topic does not exist: librdkafka may never see that it is back."""
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap(), group_protocol=protocol)
    found: list[bytes] = []

    async def keep_reading(instance: Instance) -> None:
        while True:
            found.extend(await instance.values("?timeout=500"))

    async with serving(config) as daemon, asyncio.TaskGroup() as tasks:
        instances = [await member(daemon, name, each) for each in ("a", "b")]
        reading = {each: tasks.create_task(keep_reading(each)) for each in instances}
        owner = await eventually(lambda: only_owner(instances), within=60)
        other = next(each for each in instances if each is not owner)
        await fill(daemon, name, *[b"%d" % at for at in range(10)])
        await eventually(lambda: count(found, 10))
        await asyncio.sleep(6)  # the other one has met the topic, which it asks for every 5 s
        await asyncio.to_thread(lambda: kafka.admin().delete_topics([name])[name].result(30))
        found.clear()
        reading[owner].cancel()
        await asyncio.wait([reading[owner]])
        assert (await owner.at("DELETE", "")).status == 204
        await eventually(lambda: asyncio.to_thread(kafka.made, NewTopic(name, 1, 1)))
        await eventually(lambda: writable(daemon, name))
        await fill(daemon, name, *[b"%d" % at for at in range(1, 20)])
        await eventually(lambda: count(found, 20), within=60)
        assert found == [b"%d" % at for at in range(20)]
        reading[other].cancel()


async def member(daemon: Daemon, name: str, instance: str) -> Instance:
    found = Instance(daemon, name, instance)
    await found.create(auto_offset_reset="latest")
    await found.subscribe(name)
    return found


async def only_owner(instances: list[Instance]) -> Instance | None:
    """The instance that has the partition, once both are members and one has it."""
    owners = [each for each in instances if (await each.at("GET", "/assignments")).json["partitions"]]
    return owners[0] if len(owners) == 1 else None


async def count(found: list[bytes], wanted: int) -> bool:
    return len(found) >= wanted


async def writable(daemon: Daemon, topic: str) -> bool:
    """Write the first record, once the daemon's producer knows the topic."""
    try:
        await fill(daemon, topic, b"0")
    except AssertionError:
        return False
    return True
