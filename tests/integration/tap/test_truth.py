"""Real clients through the tap: what it says of lag, KIP-848 states and share groups, compared with what the broker says."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from pixy.tap.config import TapConfig
from pixy.tap.service import TapService
from pixy.wire import client as wire_client
from tests.conftest import KIP_848
from tests.integration.tap.support import Member, java_command, members, tap_group
from tests.kafka.cluster import Cluster
from tests.support import eventually


def config(kafka: Cluster, **fields: Any) -> TapConfig:
    return TapConfig(
        (("localhost", kafka.ports[1]["PLAINTEXT"]),),
        ("127.0.0.1", 0),
        rewrite=True,
        session_timeout=KIP_848["group.consumer.session.timeout.ms"] / 1000,
        **fields,
    )


def produce(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for i in range(count):
        producer.produce(topic, b"record-%d" % i)
    assert producer.flush(30) == 0


def consume(bootstrap: str, group: str, topic: str, count: int) -> None:
    """Consume as a member, commit, and leave the group for good."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    found = 0
    while found < count:
        found += len(consumer.consume(count - found, 1.0))
    consumer.commit(asynchronous=False)
    consumer.close()


def transact(bootstrap: str, group: str, topic: str, offset: int, *, commits: bool) -> None:
    """Commit an offset in a transaction, or abort it."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"tx-{group}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.send_offsets_to_transaction(
        [TopicPartition(topic, 0, offset)], consumer.consumer_group_metadata(), 30
    )
    if commits:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)
    consumer.close()


def committed(bootstrap: str, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    found = consumer.committed([TopicPartition(topic, 0)], 30)[0].offset
    consumer.close()
    return int(found)


@pytest.mark.timeout(200)
async def test_lag_is_what_the_broker_says_while_nobody_reads(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    direct = kafka.bootstrap()[0]
    async with TapService(config(kafka)) as tap:
        (host, port), _ = tap.listening[0]
        here = f"{host}:{port}"

        async def lag() -> tuple[Any, ...]:
            found = await tap_group(tap, name)
            if not found.get("offsets"):
                return (None, None)
            return found["lag"], found["offsets"][0]["committed_from"]

        await asyncio.to_thread(produce, here, name, 10)
        await asyncio.to_thread(consume, here, name, name, 10)
        await eventually(lag, lambda found: found == (0, "commit"))
        await asyncio.to_thread(produce, here, name, 1000)  # nobody reads them
        await eventually(lag, lambda found: found == (1000, "commit"))

        await asyncio.to_thread(transact, direct, name, name, 300, commits=True)  # elsewhere
        assert await asyncio.to_thread(committed, here, name, name) == 300  # and read back through the tap
        await eventually(lag, lambda found: found == (710, "fetch"))

        await asyncio.to_thread(transact, here, name, name, 900, commits=False)
        assert await lag() == (710, "fetch")
        await asyncio.to_thread(transact, here, name, name, 500, commits=True)
        await eventually(lag, lambda found: found == (510, "transaction"))

        def delete() -> dict[str, Any]:
            with wire_client.GroupClient(here, name) as group:
                answer: dict[str, Any] = group.call("DeleteGroups", {"GroupsNames": [name]})
                return answer

        assert (await asyncio.to_thread(delete))["Results"][0]["ErrorCode"] == 0
        await eventually(lambda: tap_group(tap, name), lambda found: found == {})
        assert f'group="{name}"' not in await tap.ask("metrics")
        counts = (await tap.ask())["counts"]
        assert not {"undecodable", "unmatched", "defects", "lost_events"} & counts.keys(), counts


@pytest.mark.timeout(200)
async def test_the_tap_asks_the_broker_for_what_bypasses_it(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    direct = kafka.bootstrap()[0]
    async with TapService(config(kafka, verify=0.5)) as tap:
        (host, port), _ = tap.listening[0]
        here = f"{host}:{port}"
        await asyncio.to_thread(produce, here, name, 10)
        await asyncio.to_thread(consume, here, name, name, 10)

        async def seen() -> tuple[Any, Any]:
            found = await tap_group(tap, name)
            return found.get("lag"), [each["committed"] for each in found.get("offsets", ())]

        await eventually(seen, lambda found: found == (0, [10]))
        await asyncio.to_thread(produce, direct, name, 7)
        await eventually(seen, lambda found: found == (7, [10]))
        await asyncio.to_thread(transact, direct, name, name, 4, commits=True)
        await eventually(seen, lambda found: found == (13, [4]))
        group = await tap_group(tap, name)
        assert (group["offsets"][0]["committed_from"], group["offsets"][0]["end_from"]) == (
            "verify",
            "verify",
        )
        counts = (await tap.ask())["counts"]
        assert counts["corrected_commits"] >= 1, counts
        assert not counts.get("verify_failed") and not counts.get("defects"), counts


def enable_share_groups(kafka: Cluster, topic: str) -> None:
    """Raise share.version, which is 0 in Kafka 4.1: share groups were a preview there."""
    with wire_client.PartitionClient(kafka.bootstrap(), topic, 0) as any_broker:
        update = {"Feature": "share.version", "MaxVersionLevel": 1, "UpgradeType": 1}
        answer = any_broker.call("UpdateFeatures", {"timeoutMs": 20_000, "FeatureUpdates": [update]})
    assert not answer["ErrorCode"], answer


@pytest.mark.timeout(200)
async def test_the_members_and_records_of_a_share_group(kafka: Cluster, name: str, tmp_path: Path) -> None:
    kafka.create_topic(name, 2)
    await asyncio.to_thread(enable_share_groups, kafka, name)
    async with TapService(config(kafka)) as tap:
        (host, port), _ = tap.listening[0]
        command = java_command("org.apache.kafka.tools.consumer.ConsoleShareConsumer")
        command += ["--bootstrap-server", f"{host}:{port}", "--group", name, "--topic", name]
        command += ["--consumer-property", f"client.id={name}"]
        member = Member(command, tmp_path / "share.log")
        with members([member]):

            async def found() -> dict[str, Any]:
                group = await tap_group(tap, name)
                return group["members"][0] if group.get("members") else {}

            await eventually(found, lambda one: (one.get("partitions") or {}).get(name) == [0, 1], within=60)
            group = await tap_group(tap, name)
            assert (group["kind"], group["type"], group["state"]) == ("share", "share", "Stable")
            # A share group begins at the end of a partition, which its coordinator looks up when a member fetches first.
            sent = 0

            async def acknowledged() -> int:
                nonlocal sent
                await asyncio.to_thread(produce, f"{host}:{port}", name, 10)
                sent += 10
                return int((await found()).get("acknowledged", {}).get("accepted", 0))

            await eventually(acknowledged, lambda count: count >= 20, within=60)
            one = await found()
            assert one["acquired"] >= 20 and one["client_id"] == name and one["redelivered"] == 0
            assert one["acquired"] <= sent
            await asyncio.to_thread(member.leave)
            await eventually(
                lambda: tap_group(tap, name),
                lambda group: not group["members"] and group["gone"][-1]["how"] == "left",
                within=30,
            )
        counts = (await tap.ask())["counts"]
        assert not {"undecodable", "unmatched", "defects", "lost_events"} & counts.keys(), counts
