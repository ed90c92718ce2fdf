"""Frames that pass at the cost of their header: repeated heartbeats, and what sampling leaves out. Nothing is lost but time."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from pixy.tap import events
from pixy.tap.config import Bounds
from pixy.tap.conversation import Conversation
from pixy.tap.fast_path import REPEAT_FOR, Sampler
from pixy.tap.metrics import exposition
from pixy.tap.table_notes import counters
from pixy.wire import frames
from pixy.wire.batch import Builder
from tests.unit.tap.stage import Client, Stage, forward
from tests.unit.tap.test_rewrite import to_tap

BEAT = {"GroupId": "g", "GenerationId": 1, "MemberId": "m"}


def beats(numbers: range, **changes: Any) -> bytes:
    return b"".join(frames.encode_request("Heartbeat", 4, n, "c", {**BEAT, **changes}) for n in numbers)


def answers(numbers: range, error: int = 0) -> bytes:
    return b"".join(frames.encode_response("Heartbeat", 4, n, {"ErrorCode": error}) for n in numbers)


def captured(stage: Stage) -> list[tuple[str, int]]:
    return [
        (type(each).__name__.removesuffix("Captured"), each.number)
        for each in stage.taken
        if isinstance(each, events.RequestCaptured | events.ResponseCaptured)
    ]


def pass_on(client: Client, sent: bytes, received: bytes, step: int = 0) -> None:
    assert forward(client.conversation.to_broker, sent, step) == sent
    assert forward(client.conversation.to_client, received, step) == received


@pytest.mark.parametrize("rewriting", [False, True])
@pytest.mark.parametrize("step", [0, 7, 100])
def test_repeats_are_counted_and_not_decoded(rewriting: bool, step: int) -> None:
    stage = Stage()
    client = stage.client(rewrite=to_tap if rewriting else None)
    pass_on(client, beats(range(1, 2)), answers(range(1, 2)))
    pass_on(client, beats(range(2, 100)), answers(range(2, 100)), step)
    taken = len(captured(stage))
    assert taken == 2 if not step else taken < 200
    counts = client.conversation.counts
    assert counts["requests"] == counts["responses"] == 99 and client.conversation.requests[12, 4] == 99
    assert client.conversation.in_flight == 0 and not counts["unmatched"]
    stage.now += REPEAT_FOR
    pass_on(client, beats(range(100, 102)), answers(range(100, 102)))
    assert ("Response", 100) in captured(stage), "after a while one is shown again: the member lives"


def test_another_response_to_a_repeat_is_shown_with_its_request() -> None:
    stage = Stage()
    client = stage.client()
    pass_on(client, beats(range(1, 2)), answers(range(1, 2)))
    assert forward(client.conversation.to_broker, beats(range(2, 8)))
    forward(client.conversation.to_broker, beats(range(8, 9), GenerationId=2))
    assert captured(stage)[-1] == ("Request", 8)
    forward(
        client.conversation.to_client, answers(range(2, 4)) + answers(range(4, 6), 27) + answers(range(6, 9))
    )
    shown = captured(stage)
    assert ("Request", 4) in shown and ("Response", 4) in shown and ("Response", 8) in shown
    late = next(each for each in stage.taken if isinstance(each, events.RequestCaptured) and each.number == 4)
    assert frames.decode_request(late.frame).body["GenerationId"] == 1, "its own bytes, not the newest"
    assert frames.decode_request(late.frame).header.correlation_id == 4
    assert not {"unpaired", "unmatched", "unanswered", "undecodable"} & stage.observer.counts.keys()
    assert client.conversation.counts["responses"] == 8 and client.conversation.in_flight == 0


@pytest.mark.parametrize("change", [{"GroupId": "h"}, {"MemberId": "n"}, {"GenerationId": 2}])
def test_another_heartbeat_is_no_repeat(change: dict[str, Any]) -> None:
    stage = Stage()
    client = stage.client()
    pass_on(client, beats(range(1, 2)), answers(range(1, 2)))
    pass_on(client, beats(range(2, 3), **change), answers(range(2, 3)))
    assert len(captured(stage)) == 4


def produce(number: int, sequence: int, acks: int = -1, version: int = 9) -> bytes:
    batch = Builder(producer_id=7, producer_epoch=0, base_sequence=sequence).add(None, b"x").build().marshal()
    topics = [{"Name": "t", "PartitionData": [{"Index": 0, "Records": batch}]}]
    return frames.encode_request("Produce", version, number, "c", {"Acks": acks, "TopicData": topics})


def sampled(rate: int, **options: Any) -> tuple[Stage, Conversation]:
    stage = Stage()
    made = Conversation(1, stage, lambda: stage.now, stage.config.bounds, sampler=Sampler(rate), **options)
    forward(
        made.to_broker, frames.encode_request("ApiVersions", 0, 0, "c", {})
    )  # the first frame is always read
    forward(made.to_client, frames.encode_response("ApiVersions", 0, 0, {}))
    return stage, made


@pytest.mark.parametrize("version", [3, 7, 9, 12])
def test_under_load_produce_is_sampled_and_no_gap_is_invented(version: int) -> None:
    stage, made = sampled(10)
    for number in range(1, 101):
        forward(made.to_broker, produce(number, number, version=version))
        forward(made.to_client, frames.encode_response("Produce", version, number, {}))
    assert made.counts["sampled"] == 90 and made.counts["responses"] == 101
    stage.now += 1
    for number in range(101, 106):
        forward(made.to_broker, produce(number, number, version=version))
    assert made.counts["sampled"] == 90 and made.in_flight == 5
    assert stage.observer.sequences.gaps == 0 and stage.observer.sequences.batches == 15
    forward(made.to_broker, produce(200, 200))
    assert stage.observer.sequences.gaps == 1, "one that was read is still found"


@pytest.mark.parametrize("version", [2, 3, 9])
def test_sampled_requests_without_an_answer_are_not_waited_for(version: int) -> None:
    _, made = sampled(0)
    forward(made.to_broker, produce(1, 0, 0, version) + produce(2, 1, 1, version) + produce(3, 2, 0, version))
    assert made.in_flight == 1 and made.counts["sampled"] == 3
    forward(made.to_client, frames.encode_response("Produce", version, 2, {}))
    assert made.in_flight == 0 and not made.counts["unmatched"]


def test_what_changes_a_group_is_never_sampled() -> None:
    stage, made = sampled(0)
    for number, api in enumerate(("JoinGroup", "SyncGroup", "LeaveGroup", "OffsetCommit", "Heartbeat"), 1):
        forward(made.to_broker, frames.encode_request(api, 2, number, "c", {}))
        forward(made.to_client, frames.encode_response(api, 2, number, {}))
    assert {number for _, number in captured(stage)} >= {2, 3, 4, 5, 6} and not made.counts["sampled"]


@pytest.mark.parametrize("version", [4, 12])
def test_addresses_are_rewritten_under_load(version: int) -> None:
    _, made = sampled(0, rewrite=to_tap)
    body = {"Brokers": [{"NodeId": 1, "Host": "kafka-1", "Port": 9092}]}
    forward(made.to_broker, frames.encode_request("Metadata", version, 1, "c", {}))
    got = forward(made.to_client, frames.encode_response("Metadata", version, 1, body))
    assert frames.decode_response(got[4:], "Metadata", version).body["Brokers"][0]["Host"] == "tap"
    forward(made.to_broker, produce(2, 0, version=10))
    body = {"NodeEndpoints": [{"NodeId": 1, "Host": "kafka-1", "Port": 9092}]}
    got = forward(made.to_client, frames.encode_response("Produce", 10, 2, body))
    assert frames.decode_response(got[4:], "Produce", 10).body["NodeEndpoints"] == []


def test_unknown_versions_and_sasl_tokens_are_read() -> None:
    _, made = sampled(0)
    forward(made.to_broker, struct.pack(">ihhi", 10, 1, 99, 1) + b"\0\0")
    assert made.counts["unknown"] == 1 and not made.counts["sampled"]
    forward(made.to_broker, frames.encode_request("SaslHandshake", 0, 2, "c", {"Mechanism": "PLAIN"}))
    forward(made.to_broker, frames.frame(b"\0alice\0secret"))
    assert not made.counts["sampled"] and made.counts["requests"] == 3


def test_arbitrary_mixtures_are_forwarded_unaltered_in_any_pieces() -> None:
    chance = random.Random(5)
    for _ in range(60):
        stage = Stage()
        rewrite = chance.choice([None, to_tap])
        made = Conversation(
            1, stage, lambda stage=stage: stage.now, Bounds(), rewrite, Sampler(chance.choice([0, 3]))
        )  # type: ignore[misc]
        sent, received = bytearray(), bytearray()
        for number in range(40):
            kind = chance.randrange(4)
            if kind == 0:
                sent += produce(number, number, version=chance.choice([7, 9]))
                received += frames.encode_response("Produce", 9, number, {})
            elif kind == 1:
                sent += beats(range(number, number + 1))
                received += answers(range(number, number + 1), chance.choice([0, 0, 0, 27]))
            elif kind == 2:
                sent += frames.encode_request("ListOffsets", 4, number, "c", {})
                received += frames.encode_response("ListOffsets", 4, number, {})
            else:
                sent += frames.frame(chance.randbytes(chance.randrange(20)))
                received += frames.frame(chance.randbytes(chance.randrange(20)))
        step = chance.choice([0, 1, 3, 50, 333])
        assert forward(made.to_broker, bytes(sent), step) == sent
        got = forward(made.to_client, bytes(received), step) + b"".join(made.to_client.finish())
        assert got == received and not made.counts["defects"]


def test_the_sampler_refills_with_time() -> None:
    sampler = Sampler(2)
    assert [sampler.takes(100.0) for _ in range(3)] == [True, True, False]
    assert [sampler.takes(100.5) for _ in range(2)] == [True, False]
    assert not sampler.takes(99.0), "a clock that steps back gives nothing"
    assert [sampler.takes(500.0) for _ in range(3)] == [True, True, False], "no more than a second's"


def test_totals_of_sampled_requests_say_which_share_was_read() -> None:
    """100 requests of which 11 are decoded (a connection's first always is) were shown as 11, with no word of the others."""
    stage = Stage()
    client = stage.client()
    made = Conversation(1, stage, lambda: stage.now, stage.config.bounds, sampler=Sampler(10))
    topic = {
        "Name": "t",
        "PartitionData": [{"Index": 0, "Records": Builder().add(None, b"v").build().marshal()}],
    }
    answer = {
        "Responses": [{"Name": "t", "PartitionResponses": [{"Index": 0, "ErrorCode": 0, "BaseOffset": 1}]}]
    }
    numbers = range(1, 101)
    forward(
        made.to_broker,
        b"".join(
            frames.encode_request("Produce", 7, n, "c", {"Acks": 1, "TopicData": [topic]}) for n in numbers
        ),
    )
    forward(made.to_client, b"".join(frames.encode_response("Produce", 7, n, answer) for n in numbers))
    client.conversation = made
    client.tally()
    [row] = stage.observer.traffic.top()
    assert row["writes"] == 11 and row["writes_one_in"] == 9.09 and row["reads_one_in"] == 1.0
    found = stage.observer.snapshot(stage.now)["counts"]
    assert found["sampling"] == {"Produce": {"requests": 100, "read": 11, "one_in": 9.09}}
    assert 'kafka_tap_sampled_one_in{api="Produce"} 9.09' in exposition(stage.observer, 0, stage.now)
    assert "sampled Produce 1/9.1" in counters({"counts": found})
