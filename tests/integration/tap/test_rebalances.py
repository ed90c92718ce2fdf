"""The tap follows the rebalances of real clients, and shows the same assignment as the broker."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pixy.tap.config import TapConfig
from pixy.tap.service import TapService
from tests.conftest import KIP_848
from tests.integration.tap.support import (
    Member,
    broker_table,
    members,
    start_member,
    tap_group,
    tap_table,
)
from tests.kafka.cluster import Cluster
from tests.support import eventually

PARTITIONS = 6

CASES = [
    # client, group protocol, software, source of the protocol type
    ("confluent", "classic", "confluent-kafka-python", "learnt"),
    ("aiokafka", "classic", "unknown", "learnt"),
    ("kafka_python", "classic", "kafka-python", "stateless"),
    ("java", "classic", "apache-kafka-java", "stateless"),
    ("confluent", "consumer", "confluent-kafka-python", "heartbeat"),
    ("java", "consumer", "apache-kafka-java", "heartbeat"),
]


def config(kafka: Cluster, **fields: Any) -> TapConfig:
    return TapConfig(
        (("localhost", kafka.ports[1]["PLAINTEXT"]),),
        ("127.0.0.1", 0),
        rewrite=True,
        session_timeout=KIP_848["group.consumer.session.timeout.ms"] / 1000,
        **fields,
    )


def how_gone(group: dict[str, Any], client_id: str) -> str | None:
    """Tell how a client's last member has gone; another client may have gone and come back since."""
    return next((each["how"] for each in reversed(group["gone"]) if each["client_id"] == client_id), None)


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("client", "protocol", "software", "path"), CASES, ids=[f"{c[0]}-{c[1]}" for c in CASES]
)
async def test_the_tap_shows_the_brokers_assignment(
    kafka: Cluster,
    name: str,
    tmp_path: Path,
    client: str,
    protocol: str,
    software: str,
    path: str,
) -> None:
    kafka.create_topic(name, PARTITIONS)
    events: list[dict[str, Any]] = []
    service = TapService(config(kafka))
    service.add_output(events.append)
    async with service as tap:
        (host, port), _ = tap.listening[0]
        started: list[Member] = []

        async def compare(size: int) -> bool | dict[str, Any]:
            found = await tap_group(tap, name)
            state, table = await asyncio.to_thread(broker_table, kafka, name, protocol)
            equal = (
                found.get("state") == state == "Stable"
                and len(table) == size
                and tap_table(found) == table
                and {p for owned in table.values() for p in owned} == {(name, p) for p in range(PARTITIONS)}
                and not found["anomalies"]
            )
            return (
                found
                if equal
                else {"not yet": [found.get("state"), tap_table(found), state, table, found.get("anomalies")]}
            )

        def agree(found: Any) -> bool:
            return "not yet" not in found

        with members(started):
            for i in range(3):
                started.append(
                    await asyncio.to_thread(
                        start_member,
                        client,
                        f"{host}:{port}",
                        name,
                        name,
                        f"{client}-{i}",
                        protocol,
                        tmp_path / f"{i}.log",
                    )
                )
                found = await eventually(lambda size=i + 1: compare(size), agree, within=90)
            assert {each["path"] for each in found["members"]} == {path}
            assert all(each["software"].startswith(software) for each in found["members"]), found["members"]
            assert {each["status"] for each in found["members"]} == {"stable"}
            assert found["protocol_type"] == "consumer" and found["kind"] == protocol

            await asyncio.to_thread(started[1].leave)
            found = await eventually(lambda: compare(2), agree, within=60)
            assert how_gone(found, f"{client}-1") == "left"

            await asyncio.to_thread(started[2].die)
            await eventually(
                lambda: tap_group(tap, name),
                lambda group: (
                    any(
                        each["client_id"] == f"{client}-2" and each["status"] == "disconnected"
                        for each in group["members"]
                    )
                    or any(each["client_id"] == f"{client}-2" for each in group["gone"])
                ),
                within=30,
            )
            found = await eventually(lambda: compare(1), agree, within=60)
            assert how_gone(found, f"{client}-2") in {"probably timed out", "not in the next generation"}
        timeline = await tap.ask("timeline", name)
        counts = (await tap.ask())["counts"]
    triggers = [each["trigger"] for each in timeline]
    assert triggers.count("new member") >= 3, timeline
    expired = "session expired" if protocol == "consumer" else "heartbeat expiration"
    assert {"leave", expired} <= set(triggers), timeline
    joined = [event["client_id"] for event in events if event["event"] == "member.joined"]
    assert {f"{client}-{i}" for i in range(3)} <= set(joined), joined
    assert (
        not {"undecodable", "unmatched", "lost_sync", "defects", "lost_events", "rewrite_failed"}
        & counts.keys()
    ), counts
    assert counts["rewritten"] > 0
