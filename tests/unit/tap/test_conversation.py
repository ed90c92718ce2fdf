"""Matching of responses with requests; all bytes are forwarded unchanged."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from pixy.tap import events
from pixy.tap.apis import MAX_FRAME
from pixy.wire import frames, messages
from tests.effort import examples
from tests.unit.tap.stage import Client, Joiner, Stage, assignment, forward


def produce(version: int, acks: int, records: bytes = b"x" * 100) -> dict[str, Any]:
    return {
        "Acks": acks,
        "TimeoutMs": 1,
        "TopicData": [
            {"Name": "t", "PartitionData": [{"Index": 0, "Records": records}]}
            if version < 13
            else {"PartitionData": [{"Index": 0, "Records": records}]}
        ],
    }


def counts(client: Client) -> dict[str, int]:
    return {
        name: n for name, n in client.conversation.counts.items() if name not in {"requests", "responses"}
    }


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 64])
def test_frames_that_arrive_in_pieces(step: int) -> None:
    stage = Stage()
    member = Joiner(stage.client())
    asked = member.client.ask("JoinGroup", 5, {**member.request, "MemberId": "m"}, step)
    member.client.answer(
        asked,
        {"GenerationId": 1, "ProtocolName": "range", "Leader": "m", "MemberId": "m", "Members": []},
        step,
    )
    assert stage.group()["generation"] == 1 and not counts(member.client)


def test_pipelined_requests() -> None:
    stage = Stage()
    client = stage.client()
    asked = [
        client.ask("Heartbeat", 3, {"GroupId": f"g{i}", "GenerationId": i, "MemberId": "m"})
        for i in range(20)
    ]
    assert client.conversation.in_flight == 20
    for number in asked:
        client.answer(number, {})
    assert client.conversation.in_flight == 0
    assert [stage.group(f"g{i}")["generation"] for i in range(20)] == list(range(20))


@pytest.mark.parametrize("version", messages.versions("ProduceRequest"))
def test_produce_with_acks_0_has_no_response(version: int) -> None:
    stage = Stage()
    client = stage.client()
    client.ask("Produce", version, produce(version, 0), 11)
    assert client.conversation.in_flight == 0
    asked = client.ask("Produce", version, produce(version, -1))
    assert client.conversation.in_flight == 1
    client.answer(asked, {"Responses": []})
    client.call("Heartbeat", 3, {"GroupId": "g", "GenerationId": 1, "MemberId": "m"}, {})
    assert not counts(client) and client.conversation.in_flight == 0


def test_an_api_versions_version_that_the_broker_does_not_know() -> None:
    """The broker answers error 35 in version 0, whatever the request's version (KIP-511); the client then tries again."""
    stage = Stage()
    client = stage.client("app", ("future", "9"))
    asked = client.ask("ApiVersions", 4, {"ClientSoftwareName": "future", "ClientSoftwareVersion": "9"})
    frame = frames.encode_response("ApiVersions", 0, asked, {"ErrorCode": 35, "ApiKeys": []})
    assert forward(client.conversation.to_client, frame) == frame
    client.call("ApiVersions", 0, {}, {})
    assert stage.observer.counts["api_versions_fallbacks"] == 1 and not counts(client)
    assert not stage.observer.counts["undecodable"]


def sasl(client: Client, tokens: int, answered: int, error: int = 0) -> None:
    client.call("SaslHandshake", 0, {"Mechanism": "PLAIN"}, {"ErrorCode": error, "Mechanisms": ["PLAIN"]})
    for i in range(tokens):
        token = frames.frame(b"\0alice\0secret-%d" % i)
        assert forward(client.conversation.to_broker, token, 3) == token
    for _ in range(answered):
        token = frames.frame(b"")
        assert forward(client.conversation.to_client, token) == token


@pytest.mark.parametrize(("tokens", "answered"), [(1, 1), (3, 3), (2, 1), (1, 0)])
def test_raw_tokens_after_sasl_handshake_0(tokens: int, answered: int) -> None:
    stage = Stage()
    client = stage.client()
    sasl(client, tokens, answered)
    client.call("Heartbeat", 3, {"GroupId": "g", "GenerationId": 5, "MemberId": "m"}, {})
    assert stage.group()["generation"] == 5 and not counts(client) and client.conversation.in_flight == 0


def test_a_refused_sasl_handshake_0_has_no_tokens() -> None:
    stage = Stage()
    client = stage.client()
    sasl(client, 0, 0, error=33)
    client.call("Heartbeat", 3, {"GroupId": "g", "GenerationId": 5, "MemberId": "m"}, {})
    assert stage.group()["generation"] == 5 and not counts(client)


def test_secrets_do_not_reach_the_observer() -> None:
    stage = Stage()
    client = stage.client()
    sasl(client, 2, 2)
    client.call("SaslAuthenticate", 2, {"AuthBytes": b"\0alice\0secret-x"}, {"AuthBytes": b"secret-y"})
    client.call("Produce", 9, produce(9, -1, b"secret-record" * 20), {"Responses": []})
    assert "secret" not in repr(stage.taken) and "secret" not in repr(stage.observer.snapshot(stage.now))


@pytest.mark.parametrize("first", [b"\x16\x03\x01\x02\x00\x01\x00", b"\x16\x03\x03\x00\x10" + b"x" * 16])
def test_tls_is_reported_as_opaque(first: bytes) -> None:
    stage = Stage()
    client = stage.client()
    fresh = Client(stage, 9, "x", None, None)
    assert forward(fresh.conversation.to_broker, first, 2) == first
    assert forward(fresh.conversation.to_client, b"\x16\x03\x03whatever" * 10) == b"\x16\x03\x03whatever" * 10
    assert fresh.conversation.opaque == "TLS" and stage.told("opaque")[-1]["reason"] == "TLS"
    client.call("Heartbeat", 3, {"GroupId": "g", "GenerationId": 5, "MemberId": "m"}, {})
    assert [each["opaque"] for each in stage.observer.connections.to_json(stage.now)] == [None, "TLS"]


@pytest.mark.parametrize(
    "length",
    [b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\x7f\xff\xff\xff", struct.pack(">i", MAX_FRAME + 1), b"GET "],
)
@pytest.mark.parametrize("side", ["to_broker", "to_client"])
def test_an_impossible_length_ends_observing(side: str, length: bytes) -> None:
    stage = Stage()
    client = stage.client()
    asked = client.ask("Heartbeat", 3, {"GroupId": "g", "GenerationId": 5, "MemberId": "m"})
    stream = getattr(client.conversation, side)
    tracemalloc.start()
    assert forward(stream, length + b"rest" * 1000) == length + b"rest" * 1000
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()
    assert counts(client) == {"lost_sync": 1} and "length" in client.conversation.opaque
    client.answer(asked, {})  # forwarded and not observed


def test_an_undecodable_frame_is_counted_and_the_next_one_is_read() -> None:
    stage = Stage()
    client = stage.client()
    bad = frames.frame(struct.pack(">hhih", 11, 5, 77, -1) + b"\xff" * 30)
    assert forward(client.conversation.to_broker, bad) == bad
    answer = frames.frame(struct.pack(">i", 77) + b"\xff" * 9)
    assert forward(client.conversation.to_client, answer) == answer
    assert stage.observer.counts["undecodable"] == 2
    client.call("Heartbeat", 3, {"GroupId": "g", "GenerationId": 5, "MemberId": "m"}, {})
    assert stage.group()["generation"] == 5


@pytest.mark.parametrize(
    "body", [b"", b"\xff" * 8, b"\0\0\0\3abc\xff\xff" + b"\x7f" * 40, b"\0\0\0\0\0\0\0\0\0\0\0\1"]
)
@pytest.mark.parametrize("key", [0, 1])
@pytest.mark.parametrize("version", [3, 7, 9, 12, 13])
def test_an_undecodable_produce_or_fetch_does_not_run_into_the_next_frame(
    key: int, version: int, body: bytes
) -> None:
    stage = Stage()
    client = stage.client()
    bad = frames.frame(struct.pack(">hhih", key, version, 77, -1) + body)
    assert forward(client.conversation.to_broker, bad, 5) == bad
    answer = frames.frame(struct.pack(">i", 77) + body)
    assert forward(client.conversation.to_client, answer, 5) == answer
    client.call("Heartbeat", 3, {"GroupId": "g", "GenerationId": 5, "MemberId": "m"}, {})
    assert stage.group()["generation"] == 5 and not stage.observer.counts["defects"]


def test_unknown_apis_and_versions_are_forwarded_and_matched() -> None:
    stage = Stage()
    client = stage.client()
    for i, (key, version) in enumerate([(999, 0), (11, 99), (-5, 3), (3, 120)]):
        frame = frames.frame(struct.pack(">hhi", key, version, 500 + i) + b"?" * 20)
        assert forward(client.conversation.to_broker, frame) == frame
        answer = frames.frame(struct.pack(">i", 500 + i) + b"!" * 20)
        assert forward(client.conversation.to_client, answer) == answer
    assert counts(client) == {"unknown": 4} and client.conversation.in_flight == 0


def test_unmatched_responses_and_unanswered_requests() -> None:
    stage = Stage()
    client = stage.client()
    stray = frames.frame(b"\0\0\xff\0123")
    assert forward(client.conversation.to_client, stray) == stray
    client.ask("Heartbeat", 3, {"GroupId": "never", "GenerationId": 1, "MemberId": "m"})
    client.call("Heartbeat", 3, {"GroupId": "g", "GenerationId": 5, "MemberId": "m"}, {})
    assert counts(client) == {"unmatched": 1, "unanswered": 1} and stage.group()["generation"] == 5


def test_requests_in_flight_are_bounded() -> None:
    stage = Stage(in_flight=10)
    client = stage.client()
    for _ in range(50):
        client.ask("Metadata", 4, {"Topics": []})
    assert client.conversation.in_flight == 10 and counts(client) == {"unanswered": 40}


def test_frames_beyond_the_limit_or_without_room_are_not_captured() -> None:
    stage = Stage(capture=100)
    client = stage.client()
    client.call("Heartbeat", 3, {"GroupId": "g" * 200, "GenerationId": 5, "MemberId": "m"}, {})
    stage.room = False
    client.call("Heartbeat", 3, {"GroupId": "g", "GenerationId": 5, "MemberId": "m"}, {})
    assert counts(client) == {"too_large": 1, "not_observed": 2}
    assert not stage.group()
    stage.room = True
    client.call("Heartbeat", 3, {"GroupId": "g", "GenerationId": 5, "MemberId": "m"}, {})
    assert stage.group()


def test_a_tally_counts_requests_by_version() -> None:
    stage = Stage()
    client = stage.client()
    client.call("Heartbeat", 3, {"GroupId": "g", "GenerationId": 5, "MemberId": "m"}, {})
    found = client.conversation.tally()
    assert (
        found is not None
        and found.requests == {(12, 3): 1}
        and found.counts == {"requests": 1, "responses": 1}
    )
    assert client.conversation.tally() is None


def test_lost_events_are_reported_and_closed_connections_are_noticed() -> None:
    stage = Stage()
    member = Joiner(stage.client("a"))
    member.joined(member.ask_join(), 1, "m", "m", ["m"])
    member.synced(member.ask_sync({"m": assignment(t=[0])}), assignment(t=[0]))
    stage.put(events.EventsLost(stage.now, 7, frozenset()))
    assert stage.observer.counts["lost_events"] == 7 and stage.told("lost")[0]["events"] == 7
    assert stage.group()["members"][0]["status"] == "disconnected"


CHUNKS = st.lists(st.binary(max_size=60), max_size=12)
SEEDS = [
    frames.encode_request(
        "JoinGroup",
        5,
        1,
        "c",
        {"GroupId": "g", "ProtocolType": "consumer", "SessionTimeoutMs": 1, "RebalanceTimeoutMs": 1},
    ),
    frames.encode_request("Fetch", 11, 2, "c", {"Topics": [{"Topic": "t", "Partitions": [{}]}]}),
    frames.encode_request("Produce", 9, 3, "c", produce(9, 0)),
    frames.encode_request("SaslHandshake", 0, 4, "c", {"Mechanism": "PLAIN"}),
    frames.encode_response(
        "Fetch",
        11,
        2,
        {"Responses": [{"Topic": "t", "Partitions": [{"Records": b"x" * 30, "AbortedTransactions": []}]}]},
    ),
    frames.encode_response(
        "JoinGroup", 5, 1, {"MemberId": "m", "ProtocolName": "r", "Leader": "m", "Members": []}
    ),
    frames.encode_response("Metadata", 4, 1, {}),
]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    data = bytearray(b"".join(draw(st.lists(st.sampled_from(SEEDS), min_size=1, max_size=5))))
    for _ in range(draw(st.integers(0, 4))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))])


@settings(max_examples=examples(400), deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.one_of(mutated(), st.binary(max_size=80))), max_size=12),
    st.integers(1, 40),
    st.booleans(),
)
def test_any_bytes_pass_unchanged(pieces: list[tuple[bool, bytes]], step: int, rewriting: bool) -> None:
    stage = Stage(in_flight=8, capture=256)
    client = stage.client(rewrite=(lambda *_: None) if rewriting else None)
    conversation = client.conversation
    out = {True: bytearray(), False: bytearray()}
    for to_broker, data in pieces:
        stream = conversation.to_broker if to_broker else conversation.to_client
        out[to_broker] += forward(stream, data, step)
    for to_broker, stream in ((True, conversation.to_broker), (False, conversation.to_client)):
        sent = b"".join(data for way, data in pieces if way is to_broker)
        if not rewriting or to_broker:
            assert out[to_broker] == sent
        else:
            out[False] += b"".join(stream.finish())
            hidden = conversation.counts["hidden"]
            assert len(out[False]) == len(sent)
            assert sum(a != b for a, b in zip(out[False], sent, strict=True)) <= hidden
    assert (
        conversation.in_flight <= 8
        and not conversation.counts["defects"]
        and not stage.observer.counts["defects"]
    )
    stage.wait(1)
    stage.observer.snapshot(stage.now)
