"""The observer apart from groups: lag, software, limits, the event queue, metrics, the table."""

from __future__ import annotations

import re
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from pixy.tap import events
from pixy.tap.config import Bounds
from pixy.tap.event_queue import MAX_BATCH, EventBatch, EventQueue
from pixy.tap.inventory import breaks
from pixy.tap.lru import LruDict
from pixy.tap.metrics import exposition
from pixy.tap.table import partitions, render
from pixy.wire import messages
from tests.unit.tap.stage import Client, Joiner, Stage, assignment, settle


def commit(client: Client, version: int, offsets: dict[int, int], error: int = 0, **fields: Any) -> None:
    client.call(
        "OffsetCommit",
        version,
        {
            "GroupId": "g",
            **fields,
            "Topics": [
                {
                    "Name": "t",
                    "Partitions": [{"PartitionIndex": p, "CommittedOffset": o} for p, o in offsets.items()],
                }
            ],
        },
        {
            "Topics": [
                {"Name": "t", "Partitions": [{"PartitionIndex": p, "ErrorCode": error} for p in offsets]}
            ]
        },
    )


def fetched(client: Client, ends: dict[int, int]) -> None:
    client.call(
        "Fetch",
        11,
        {"Topics": []},
        {
            "Responses": [
                {
                    "Topic": "t",
                    "Partitions": [
                        {"PartitionIndex": p, "HighWatermark": end, "AbortedTransactions": [], "Records": b""}
                        for p, end in ends.items()
                    ],
                }
            ]
        },
    )


@pytest.mark.parametrize("version", range(10))
def test_lag_is_high_watermark_minus_commit(version: int) -> None:
    stage = Stage()
    client = stage.client()
    commit(client, version, {0: 90, 1: 5, 2: 7})
    fetched(client, {0: 100, 1: 3})
    group = stage.group()
    assert [
        (each["partition"], each["committed"], each["end"], each["lag"]) for each in group["offsets"]
    ] == [
        (0, 90, 100, 10),
        (1, 5, 3, 0),
        (2, 7, None, None),
    ]
    assert group["lag"] == 10 and group["kind"] == "offsets"


def test_a_refused_commit_does_not_count() -> None:
    stage = Stage()
    client = stage.client()
    commit(client, 5, {0: 90}, error=22)
    assert stage.group()["offsets"] == []


def test_commits_and_ends_by_topic_id() -> None:
    import uuid

    stage = Stage()
    client = stage.client()
    topic_id = uuid.UUID(int=77)
    client.call(
        "OffsetCommit",
        10,
        {
            "GroupId": "g",
            "Topics": [{"TopicId": topic_id, "Partitions": [{"PartitionIndex": 0, "CommittedOffset": 4}]}],
        },
        {"Topics": [{"TopicId": topic_id, "Partitions": [{"PartitionIndex": 0}]}]},
    )
    client.call(
        "Fetch",
        13,
        {},
        {
            "Responses": [
                {
                    "TopicId": topic_id,
                    "Partitions": [{"PartitionIndex": 0, "HighWatermark": 9, "AbortedTransactions": None}],
                }
            ]
        },
    )
    assert stage.group()["offsets"][0]["lag"] == 5
    stage.topic(client, "t", 1, topic_id)
    assert stage.group()["offsets"][0]["topic"] == "t" and stage.group()["offsets"][0]["lag"] == 5


def test_commits_of_a_member_keep_it_alive() -> None:
    stage = Stage()
    member = Joiner(stage.client())
    settle(1, {member: ("m", assignment(t=[0]))})
    for _ in range(5):
        stage.wait(9)
        commit(member.client, 7, {0: 1}, GenerationIdOrMemberEpoch=1, MemberId="m")
    assert [each["member"] for each in stage.group()["members"]] == ["m"]


@pytest.mark.parametrize("version", [each for each in messages.versions("OffsetFetchResponse") if each < 10])
def test_committed_offsets_from_offset_fetch(version: int) -> None:
    stage = Stage()
    client = stage.client()
    body: dict[str, Any] = {
        "Topics": [
            {
                "Name": "t",
                "Partitions": [
                    {"PartitionIndex": 0, "CommittedOffset": 42, "Metadata": ""},
                    {"PartitionIndex": 1, "CommittedOffset": -1, "Metadata": ""},
                ],
            }
        ]
    }
    if version >= 8:
        client.call(
            "OffsetFetch", version, {"Groups": [{"GroupId": "g"}]}, {"Groups": [{"GroupId": "g", **body}]}
        )
    else:
        client.call("OffsetFetch", version, {"GroupId": "g"}, body)
    assert [(each["partition"], each["committed"]) for each in stage.group()["offsets"]] == [(0, 42)]


def test_end_offsets_from_list_offsets() -> None:
    stage = Stage()
    client = stage.client()
    for timestamp, offset in ((-1, 50), (-2, 3)):
        client.call(
            "ListOffsets",
            5,
            {"Topics": [{"Name": "t", "Partitions": [{"PartitionIndex": 0, "Timestamp": timestamp}]}]},
            {"Topics": [{"Name": "t", "Partitions": [{"PartitionIndex": 0, "Offset": offset}]}]},
        )
    assert stage.observer.topics.end("t", 0) == 50


# -- software --------------------------------------------------------------------------------------


def test_the_inventory_lists_requests_that_kafka_4_refuses() -> None:
    stage = Stage()
    old, new = stage.client("old-app"), stage.client("new-app", ("apache-kafka-java", "4.1.0"))
    old.call("Fetch", 2, {}, {"Responses": []})
    old.ask("Produce", 2, {"Acks": 0, "TopicData": []})
    new.call("Fetch", 13, {}, {"Responses": []})
    for client in (old, new):
        client.tally()
    found = {each["software"]: each for each in stage.observer.inventory.to_json()}
    assert found["unknown"]["breaks_on_kafka_4"] == [
        "Produce v2 (needs 3 or later)",
        "Fetch v2 (needs 4 or later)",
    ]
    assert found["unknown"]["client_ids"] == ["old-app"] and found["unknown"]["connections"] == 1
    assert (
        found["apache-kafka-java"]["breaks_on_kafka_4"] == []
        and found["apache-kafka-java"]["version"] == "4.1.0"
    )
    assert found["apache-kafka-java"]["apis"] == {"ApiVersions": {"3": 1}, "Fetch": {"13": 1}}


def test_versions_that_kafka_4_refuses() -> None:
    assert breaks(0, 2) and not breaks(0, 3) and breaks(6, 8) and not breaks(11, 0) and breaks(8, 1)


# -- limits ----------------------------------------------------------------------------------------


def test_the_lru_dict_evicts_the_least_recently_used_entry() -> None:
    entries: LruDict[str, int] = LruDict(2)
    entries["a"], entries["b"] = 1, 2
    assert entries.get("a") == 1
    entries["c"] = 3
    assert (
        list(entries) == ["a", "c"] and entries.forgotten == 1 and entries.get_or_create("d", lambda: 4) == 4
    )
    assert list(entries) == ["c", "d"] and entries.get("a") is None and entries.pop("c") == 3


class Observed:
    """Stands for the observer: accepts batches unless it is full."""

    def __init__(self) -> None:
        self.batches: list[EventBatch] = []
        self.full = False

    def __call__(self, batch: EventBatch) -> bool:
        if self.full:
            return False
        self.batches.append(batch)
        return True


async def test_the_event_queue_counts_events_that_the_observer_refuses() -> None:
    observed = Observed()
    queue = EventQueue(Bounds(backlog=1000), observed, lambda: 1.0)
    assert queue.reserve(600) and not queue.reserve(600) and queue.reserve(400)
    queue.put(events.RequestCaptured(1, 1.0, 1, 12, 3, b"x" * 600))
    queue.put(events.RequestCaptured(1, 1.0, 2, 12, 3, b"x" * 400))
    queue.flush()
    assert queue.backlog == 1000 and observed.batches[0].size == 1000
    queue.done(observed.batches[0])
    assert queue.backlog == 0
    observed.full = True
    for i in range(MAX_BATCH + 7):
        assert queue.reserve(0)
        queue.put(events.Closed(i, 1.0, ""))
    queue.flush()
    observed.full = False
    queue.put(events.Opened(5, 1.0, "", ""))
    queue.flush()
    lost, opened = observed.batches[-1].events
    assert (
        isinstance(lost, events.EventsLost)
        and lost.events == MAX_BATCH + 7
        and lost.open == {5}
        and isinstance(opened, events.Opened)
    )
    queue.put(events.Closed(5, 1.0, ""))
    queue.flush()
    assert len(observed.batches[-1].events) == 1 and queue.backlog == 0


async def test_a_refused_batch_releases_its_room() -> None:
    observed = Observed()
    observed.full = True
    queue = EventQueue(Bounds(backlog=1000), observed, lambda: 1.0)
    assert queue.reserve(900)
    queue.put(events.RequestCaptured(1, 1.0, 1, 12, 3, b"x" * 900))
    queue.flush()
    assert queue.backlog == 0


# -- views -----------------------------------------------------------------------------------------


def busy_stage() -> Stage:
    stage = Stage()
    member = Joiner(stage.client("app[red]", ("librdkafka", "2.16.0")))
    settle(3, {member: ("m" * 40, assignment(t=[0, 1, 2, 5]))})
    commit(member.client, 7, {0: 4})
    fetched(member.client, {0: 10})
    member.client.ask("Fetch", 1, {})
    member.client.tally()
    return stage


def test_metrics_in_prometheus_text_format() -> None:
    text = exposition(busy_stage().observer, 5, 1.0)
    found = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["kafka_tap_group_members", ("group", "g")] == 1
    assert found["kafka_tap_group_lag", ("group", "g"), ("topic", "t")] == 6
    assert found["kafka_tap_group_state", ("group", "g"), ("state", "Stable")] == 1
    assert (
        found[
            "kafka_tap_requests_refused_by_kafka_4_total", ("software", "librdkafka"), ("version", "2.16.0")
        ]
        == 1
    )
    assert found["kafka_tap_api_requests_total", ("api", "JoinGroup")] == 1
    assert found["kafka_tap_rebalances_total", ("trigger", "new member")] == 1
    assert not re.search(r"member=|client_id=|partition=", text), "labels must not have high cardinality"


def test_the_table() -> None:
    stage = busy_stage()
    snapshot = {
        **stage.observer.snapshot(stage.now),
        "timeline": stage.timeline(),
        "clients": stage.observer.inventory.to_json(),
    }
    console = Console(width=200, height=40, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(render(snapshot, console, ["127.0.0.1:1 -> kafka:9092"]))
    text = console.export_text()
    for part in (
        "Stable",
        "mmmmmmmmmmm..mmmmmmmm",
        "app[red] 10.0.0.1:50001",
        "librdkafka 2.16.0",
        "t 0-2, 5",
        "6",
        "learnt",
        "Kafka 4 refuses requests of librdkafka 2.16.0: Fetch v1",
        "rebalance of g: app[red] joined",
    ):
        assert part in text, (part, text)
    assert partitions(None) == "?" and partitions({}) == "none"
    few = {**snapshot, "groups": snapshot["groups"] * 50}
    console.height = 20
    console.print(render(few, console, ["x"]))
    assert len(console.export_text(clear=True).splitlines()) < 20
