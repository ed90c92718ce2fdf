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
from pixy.tap.table import render
from pixy.tap.table_rows import partitions
from pixy.wire import messages
from pixy.wire.batch import Builder
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
    assert stage.group() == {}
    commit(client, 5, {0: 80})
    commit(client, 5, {0: 90}, error=22)
    assert committed(stage) == {0: 80}


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


def offset_fetch(client: Client, offsets: dict[int, int], *, every: bool = False) -> None:
    topics = [
        {
            "Name": "t",
            "Partitions": [
                {"PartitionIndex": p, "CommittedOffset": o, "Metadata": ""} for p, o in offsets.items()
            ],
        }
    ]
    client.call(
        "OffsetFetch",
        8,
        {"Groups": [{"GroupId": "g", "Topics": None if every else []}]},
        {"Groups": [{"GroupId": "g", "Topics": topics if offsets else []}]},
    )


def committed(stage: Stage) -> dict[int, int]:
    return {each["partition"]: each["committed"] for each in stage.group()["offsets"]}


def test_what_the_coordinator_says_of_a_commit_replaces_what_was_seen() -> None:
    stage = Stage()
    client = stage.client()
    commit(client, 7, {0: 1000, 1: 5, 2: 6})
    stage.now += 1
    offset_fetch(client, {0: 0, 1: -1})
    assert committed(stage) == {0: 0, 2: 6}
    stage.now += 1
    offset_fetch(client, {0: 3}, every=True)
    assert committed(stage) == {0: 3}
    assert stage.group()["offsets"][0]["committed_from"] == "fetch"


def test_a_commit_that_is_newer_than_the_question_stays() -> None:
    stage = Stage()
    client, other = stage.client(), stage.client()
    asked = client.ask("OffsetFetch", 5, {"GroupId": "g", "Topics": None})
    stage.now += 1
    commit(other, 7, {0: 10})
    client.answer(
        asked,
        {
            "Topics": [
                {"Name": "t", "Partitions": [{"PartitionIndex": 0, "CommittedOffset": 2, "Metadata": ""}]}
            ]
        },
    )
    assert committed(stage) == {0: 10}


def test_a_response_to_offset_fetch_without_groups_is_no_defect() -> None:
    stage = Stage()
    stage.client().call("OffsetFetch", 8, {"Groups": []}, {"Groups": []})
    assert not stage.observer.counts["defects"] and stage.group() == {}


def transaction(client: Client, *, commits: bool, error: int = 0, ended_by: int = 0) -> None:
    client.call(
        "TxnOffsetCommit",
        3,
        {
            "TransactionalId": "tx",
            "GroupId": "g",
            "ProducerId": 1,
            "ProducerEpoch": 0,
            "MemberId": "",
            "Topics": [
                {
                    "Name": "t",
                    "Partitions": [{"PartitionIndex": 0, "CommittedOffset": 77, "CommittedMetadata": ""}],
                }
            ],
        },
        {"Topics": [{"Name": "t", "Partitions": [{"PartitionIndex": 0}]}]},
    )
    client.call(
        "EndTxn",
        3,
        {"TransactionalId": "tx", "ProducerId": 1, "ProducerEpoch": ended_by, "Committed": commits},
        {"ErrorCode": error},
    )


def test_offsets_of_a_transaction_count_when_it_is_committed() -> None:
    stage = Stage()
    client = stage.client()
    commit(client, 7, {0: 5})
    transaction(client, commits=False)
    assert committed(stage) == {0: 5}
    transaction(client, commits=True, error=47)
    assert committed(stage) == {0: 5}
    transaction(client, commits=True)
    assert committed(stage) == {0: 77} and stage.group()["offsets"][0]["committed_from"] == "transaction"


def test_an_end_of_another_epoch_settles_nothing() -> None:
    """A fenced producer's EndTxn, or one that is repeated after its epoch has ended (KIP-890), committed another's offsets."""
    stage = Stage()
    client = stage.client()
    commit(client, 7, {0: 5})
    transaction(client, commits=True, ended_by=7)
    assert committed(stage) == {0: 5}
    transaction(client, commits=True)
    assert committed(stage) == {0: 77}


def produced(client: Client, acks: int = -1, base: int = 100, count: int = 10, error: int = 0) -> None:
    builder = Builder()
    for _ in range(count):
        builder.add(None, b"v")
    topic = {"Name": "t", "PartitionData": [{"Index": 0, "Records": builder.build().marshal()}]}
    asked = client.ask("Produce", 9, {"Acks": acks, "TopicData": [topic]})
    if acks:
        client.answer(
            asked,
            {
                "Responses": [
                    {
                        "Name": "t",
                        "PartitionResponses": [
                            {
                                "Index": 0,
                                "ErrorCode": error,
                                "BaseOffset": -1 if error else base,
                                "RecordErrors": [],
                            }
                        ],
                    }
                ]
            },
        )


def test_lag_grows_with_what_producers_write_though_nobody_reads() -> None:
    stage = Stage()
    client = stage.client("writer")
    commit(client, 7, {0: 100})
    produced(client)
    stage.now += 40
    found = stage.group()
    assert found["lag"] == 10 and found["lag_age"] == 40 and found["offsets"][0]["end_from"] == "produce"
    written = stage.observer.traffic.top()[0]["bytes_written"]
    produced(client, error=6)
    assert stage.group()["lag"] == 10
    assert stage.observer.traffic.errors()["errors"][0] | {"first": 0, "last": 0} == {
        "api": "Produce",
        "code": 6,
        "error": "NOT_LEADER_OR_FOLLOWER",
        "expected": False,
        "topic": "t",
        "client_id": "writer",
        "count": 1,
        "one_in": 1.0,
        "first": 0,
        "last": 0,
    }
    [top] = stage.observer.traffic.top()
    assert top["bytes_written"] == written > 0 and top["writes"] == 1
    assert top["bytes_refused"] == written and top["refused"] == 1, "what was refused is not written"


def test_a_refused_writer_writes_no_topic_and_a_refused_commit_makes_no_group() -> None:
    stage = Stage()
    client = stage.client("writer")
    produced(client, error=29)
    commit(client, 7, {0: 100}, error=30)
    assert stage.observer.usage() == [] and stage.group() == {}
    assert 'kafka_tap_topic_refused_bytes_total{topic="t"}' in exposition(stage.observer, 0, stage.now)
    produced(client, acks=0)
    assert [each["client_id"] for each in stage.observer.usage()[0]["writers"]] == ["writer"]


def test_a_lag_is_as_old_as_the_older_of_its_end_and_its_commit() -> None:
    """The group's commits go elsewhere, and its lag grows with what is written through the tap: its age was that of the end."""
    stage = Stage()
    client = stage.client()
    commit(client, 7, {0: 100})
    stage.now += 300
    produced(client)
    stage.now += 2
    found = stage.group()
    assert (found["lag"], found["lag_age"], found["lag_end_age"], found["lag_commit_age"]) == (
        10,
        302,
        2,
        302,
    )
    assert found["offsets"][0]["lag_age"] == 302
    text = exposition(stage.observer, 0, stage.now)
    assert 'kafka_tap_group_lag_age_seconds{group="g",topic="t"} 302' in text
    assert 'kafka_tap_group_lag_commit_age_seconds{group="g",topic="t"} 302' in text


def test_a_coordinator_that_answers_late_takes_back_no_commit() -> None:
    """Broker 1 froze before it answered 100, the group went to broker 2 and committed 140 there, and broker 1 came back."""
    stage = Stage()
    one, other = stage.client(), stage.client()
    offsets = [{"Name": "t", "Partitions": [{"PartitionIndex": 0, "CommittedOffset": 100}]}]
    late = one.ask("OffsetCommit", 7, {"GroupId": "g", "Topics": offsets})
    stage.now += 5
    commit(other, 7, {0: 140})
    stage.now += 5
    one.answer(late, {"Topics": [{"Name": "t", "Partitions": [{"PartitionIndex": 0, "ErrorCode": 0}]}]})
    found = stage.group()["offsets"][0]
    assert (found["committed"], found["committed_age"]) == (140, 5)
    commit(other, 7, {0: 90})
    assert stage.group()["offsets"][0]["committed"] == 90, "set back on purpose"


def test_the_lag_behind_writes_without_a_response_is_uncertain() -> None:
    stage = Stage()
    client = stage.client()
    commit(client, 7, {0: 100})
    produced(client)
    produced(client, acks=0)
    assert stage.group()["lag_uncertain"] == ["written since the end was known, and no response told the end"]
    fetched(client, {0: 120})
    assert stage.group()["lag_uncertain"] == [] and stage.group()["lag"] == 20


def test_the_answer_to_a_repeated_batch_takes_back_no_end() -> None:
    """An idempotent producer whose answer was lost sends again, and gets the offset of the first time: lag 10 of 210 was shown."""
    stage = Stage()
    client = stage.client()
    commit(client, 7, {0: 0})
    fetched(client, {0: 210})
    stage.now += 1
    produced(client, base=0)
    assert stage.group()["lag"] == 210
    assert stage.group()["lag_uncertain"] == ["written since the end was known, and no response told the end"]
    produced(client, base=210)
    assert stage.group()["lag"] == 220 and stage.group()["lag_uncertain"] == []


def test_a_commit_beyond_the_known_end_makes_the_lag_uncertain() -> None:
    """50 records were written past the tap, and 80 committed through it: lag 0, with no doubt stated."""
    stage = Stage()
    client = stage.client()
    produced(client, base=40)
    commit(client, 7, {0: 80})
    assert stage.group()["lag"] == 0 and stage.group()["lag_uncertain"] == ["committed beyond the known end"]


def test_a_response_that_waited_does_not_take_back_a_newer_end() -> None:
    stage = Stage()
    reader, writer = stage.client(), stage.client()
    asked = reader.ask("Fetch", 11, {"Topics": []})
    stage.now += 1
    produced(writer)
    records = {"PartitionIndex": 0, "HighWatermark": 100, "AbortedTransactions": [], "Records": b""}
    reader.answer(asked, {"Responses": [{"Topic": "t", "Partitions": [records]}]})
    assert stage.observer.topics.end("t", 0) == 110
    stage.now += 1
    fetched(reader, {0: 3})
    assert stage.observer.topics.end("t", 0) == 3, "asked for later: the log was truncated"


def test_a_topic_that_is_made_again_begins_anew() -> None:
    import uuid

    stage = Stage()
    client = stage.client()
    stage.topic(client, "t", 1, uuid.UUID(int=1))
    commit(client, 7, {0: 90})
    fetched(client, {0: 100})
    stage.topic(client, "t", 1, uuid.UUID(int=2))
    assert stage.group()["offsets"] == [] and stage.observer.topics.end("t", 0) is None


def test_a_deleted_group_and_deleted_offsets_are_gone() -> None:
    stage = Stage()
    client = stage.client()
    commit(client, 7, {0: 90, 1: 5})
    client.call(
        "OffsetDelete",
        0,
        {
            "GroupId": "g",
            "Topics": [{"Name": "t", "Partitions": [{"PartitionIndex": 0}, {"PartitionIndex": 1}]}],
        },
        {
            "Topics": [
                {"Name": "t", "Partitions": [{"PartitionIndex": 0}, {"PartitionIndex": 1, "ErrorCode": 86}]}
            ]
        },
    )
    assert committed(stage) == {1: 5}
    assert 'group="g"' in exposition(stage.observer, 0, stage.now)
    client.call("DeleteGroups", 2, {"GroupsNames": ["g"]}, {"Results": [{"GroupId": "g", "ErrorCode": 68}]})
    assert stage.group()
    client.call("DeleteGroups", 2, {"GroupsNames": ["g"]}, {"Results": [{"GroupId": "g"}]})
    assert stage.group() == {} and 'group="g"' not in exposition(stage.observer, 0, stage.now)


def test_a_closed_connection_looks_at_its_own_members_only() -> None:
    stage = Stage()
    members = [Joiner(stage.client(f"c{i}"), group=f"g{i}") for i in range(3)]
    for i, member in enumerate(members):
        settle(1, {member: (f"m{i}", assignment(t=[0]))})
    looked: list[str] = []
    found = stage.observer.registry.groups
    get = found.get
    found.get = lambda key: looked.append(key) or get(key)  # type: ignore[method-assign,func-returns-value]
    members[1].client.close()
    assert looked == ["g1"] and stage.group("g1")["members"][0]["status"] == "disconnected"
    assert stage.group("g0")["members"][0]["status"] == "stable"


def test_an_idle_reader_in_a_fetch_session_is_not_frozen() -> None:
    stage = Stage()
    client = stage.client("reader")
    wanted = [{"Topic": "t", "Partitions": [{"Partition": 0, "FetchOffset": 7}]}]
    client.call(
        "Fetch", 11, {"SessionId": 0, "SessionEpoch": 0, "Topics": wanted}, {"SessionId": 5, "Responses": []}
    )
    stage.now += 100
    client.call(
        "Fetch", 11, {"SessionId": 5, "SessionEpoch": 1, "Topics": []}, {"SessionId": 5, "Responses": []}
    )
    assert stage.observer.usage()[0]["readers"] == [{"client_id": "reader", "last": stage.now}]
    client.close()
    assert stage.observer.usage()[0]["readers"] == [{"client_id": "reader", "last": stage.now}]


def test_response_times_in_buckets_and_slow_responses() -> None:
    stage = Stage()
    client = stage.client("slow-one")
    asked = client.ask("Heartbeat", 3, {"GroupId": "g", "GenerationId": 5, "MemberId": "m"})
    stage.now += 0.2
    client.answer(asked, {})
    client.conversation.slow = 1.0
    asked = client.ask("Metadata", 12, {"Topics": []})
    stage.now += 3
    client.answer(asked, {"Topics": []})
    client.tally()
    found = stage.observer.latency.to_json()
    assert [(each["api"], each["count"], each["p99_at_most"]) for each in found["apis"]] == [
        ("Metadata", 1, 5.0),
        ("Heartbeat", 1, 0.25),
    ]
    assert [each["client_id"] for each in found["clients"]] == ["slow-one", "slow-one"]
    assert [(each["api"], each["seconds"]) for each in stage.told("slow")] == [("Metadata", 3.0)]


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


def test_no_label_of_a_metric_has_a_control_character() -> None:
    stage = Stage()
    evil = "g\x1b]0;owned\x07\r\n\x9b31m\u202e"
    client = stage.client(evil, software=(evil, "1"))
    commit(client, 7, {0: 100}, GroupId=evil)
    produced(client)
    text = exposition(stage.observer, 0, stage.now)
    assert "owned" in text and not set(text) & set("\x1b\x07\r\x9b\u202e")


def test_names_that_only_their_escapes_tell_apart_are_series_of_their_own() -> None:
    stage = Stage()
    client = stage.client()
    names = ("g\x01", "g\\u0001", "g\\\\u0001", "g\n", "g\\n")
    for each in names:
        commit(client, 7, {0: 100}, GroupId=each)
    series = [
        sample.labels["group"]
        for family in text_string_to_metric_families(exposition(stage.observer, 0, stage.now))
        for sample in family.samples
        if sample.name == "kafka_tap_group_lag_unknown_partitions"
    ]
    assert len(series) == len(set(series)) == len(names), series


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


# -- the tap's own questions (--verify) ------------------------------------------------------------


def test_what_the_brokers_say_when_asked_corrects_what_was_seen() -> None:
    stage = Stage()
    client = stage.client()
    commit(client, 7, {0: 10, 1: 5})
    fetched(client, {0: 12})
    asked, stage.now = stage.now + 1, stage.now + 2
    stage.put(events.CommitsVerified(0, stage.now, asked, "g", (("t", 0, 4), ("t", 2, 8))))
    stage.put(events.EndsVerified(0, stage.now, asked, (("t", 0, 20), ("t", 2, 8))))
    found = stage.group()
    assert committed(stage) == {0: 4, 2: 8} and found["lag"] == 16 and found["verified_at"] == stage.now
    assert {each["committed_from"] for each in found["offsets"]} == {"verify"}
    assert stage.observer.counts["corrected_commits"] == 3 and stage.observer.counts["corrected_ends"] == 2


def test_a_commit_seen_since_the_question_is_newer_than_its_answer() -> None:
    stage = Stage()
    client = stage.client()
    asked = stage.now
    stage.now += 1
    commit(client, 7, {0: 10})
    fetched(client, {0: 12})
    stage.put(events.CommitsVerified(0, stage.now, asked, "g", (("t", 0, 4),)))
    stage.put(events.EndsVerified(0, stage.now, asked, (("t", 0, 11),)))
    assert committed(stage) == {0: 10} and stage.group()["lag"] == 2
    assert not stage.observer.counts["corrected_commits"] and not stage.observer.counts["corrected_ends"]


def test_a_group_that_was_deleted_elsewhere_is_forgotten() -> None:
    stage = Stage()
    commit(stage.client(), 7, {0: 10})
    stage.put(events.CommitsVerified(0, stage.now + 2, stage.now + 1, "g", ()))
    assert stage.group() == {} and stage.told("group.deleted")
