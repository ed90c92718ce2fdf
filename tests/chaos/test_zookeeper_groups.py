"""The kit's look at groups in ZooKeeper."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kazoo.client import KazooClient

from tests.chaos.kit.record import Recorder, read
from tests.chaos.kit.zookeeper_groups import ZookeeperGroups
from tests.kafka.cluster import Cluster
from tests.support import eventually


async def test_changes_of_members_and_claims_are_written_down(
    old_kafka: Cluster, name: str, tmp_path: Path
) -> None:
    records, going = Recorder(tmp_path), True
    watch = asyncio.ensure_future(
        ZookeeperGroups(old_kafka.zookeeper, [name, "other"], records).run(lambda: going)
    )

    async def changes() -> list[str]:
        if watch.done():
            watch.result()
        records.flush()
        return [each["group"] for each in read(tmp_path, "groups")]

    member = KazooClient(old_kafka.zookeeper)
    await asyncio.to_thread(member.start)
    path = f"/consumers/{name}"
    for number, change in enumerate(
        (
            lambda: member.create(f"{path}/ids/one", b"{}", ephemeral=True, makepath=True),
            lambda: member.create(f"{path}/owners/t/0", b"one", ephemeral=True, makepath=True),
            lambda: member.set(f"{path}/owners/t/0", b"two"),
            lambda: member.delete(f"{path}/ids/one"),
        ),
        1,
    ):
        await asyncio.to_thread(change)
        await eventually(changes, lambda found, wanted=number: found == [name] * wanted)
    await asyncio.to_thread(member.stop)
    await eventually(changes, lambda found: len(found) == 5)
    going = False
    await watch
    records.close()
