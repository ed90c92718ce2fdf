"""A dump shows the requests and responses that its filter names, decoded, and what must not be in it is not in it."""

from __future__ import annotations

import io
import json
import struct
import uuid
from typing import Any

import dpkt
import pytest

from pixy.cli.tap_flags import make_config, make_parser
from pixy.errors import ConfigError
from pixy.tap import events
from pixy.tap.capture import Capture
from pixy.tap.capture_file import segments
from pixy.tap.config import Bounds
from pixy.tap.conversation import Conversation
from pixy.tap.dump import Dump, DumpEvent, limit
from pixy.tap.dump_actor import DumpBatch, DumpQueue
from pixy.tap.dump_filter import DumpFilter, parse_filter
from pixy.tap.dump_secrets import METADATA_LOG, METADATA_LOG_ID
from pixy.tap.dump_writers import DumpFull, JsonDump, Limited, PcapngDump
from pixy.tap.observer import Observer
from pixy.wire import frames
from pixy.wire.batch import Builder
from pixy.wire.consumer_protocol import encode_subscription
from tests.unit.tap.stage import Stage, forward

TOPIC_ID = uuid.UUID(int=7)
RECORDS = Builder().add(b"key", b"the payload " * 20).build().marshal()


class Line:
    """A conversation whose frames go to a dump."""

    def __init__(self, *filters: str, pcapng: bool = False, limit: int = 1 << 20, **bounds: int) -> None:
        self.stage = Stage(**bounds)
        self.file = io.BytesIO()
        self.wanted = parse_filter(filters)
        out, limits = Limited(self.file, limit), self.stage.config.bounds
        self.dump = Dump(self.wanted, PcapngDump(out, limits) if pcapng else JsonDump(out), limits)
        self.frames: list[events.FrameSeen] = []
        self.room = True
        self.conversation = Conversation(1, self.stage, lambda: self.stage.now, limits, dump=self)
        self.number = 0
        self.put(events.Opened(1, self.stage.now, "10.0.0.1:50001", "kafka:9092"))
        self.put(events.Connected(1, self.stage.now, ("10.0.0.1", 50001), ("10.0.0.2", 9092)))

    def limit(self, key: int, version: int) -> int | None:
        return limit(self.wanted, key, version)

    def reserve(self, _size: int) -> bool:
        return self.room

    def unreserve(self, size: int) -> None:
        assert size == 0

    def put(self, event: DumpEvent) -> None:
        if isinstance(event, events.FrameSeen):
            self.frames.append(event)
        self.dump.take(event)

    def call(
        self, api: str, version: int, request: Any, response: Any, client: str = "app", step: int = 0
    ) -> None:
        self.number += 1
        frame = frames.encode_request(api, version, self.number, client, request)
        assert forward(self.conversation.to_broker, frame, step) == frame
        self.stage.now += 0.25
        frame = frames.encode_response(api, version, self.number, response)
        assert forward(self.conversation.to_client, frame, step) == frame

    def shown(self) -> list[dict[str, Any]]:
        return [json.loads(each) for each in self.file.getvalue().splitlines()]


def heartbeat(line: Line, group: str = "g", client: str = "app", step: int = 0) -> None:
    body = {"GroupId": group, "GenerationId": 1, "MemberId": "m"}
    line.call("Heartbeat", 4, body, {"ErrorCode": 27}, client, step)


def fetch(line: Line, topic_id: uuid.UUID = TOPIC_ID) -> None:
    """A fetch of a session: the request names no topic, the response has its id."""
    partition = {"PartitionIndex": 0, "HighWatermark": 3, "AbortedTransactions": None, "Records": RECORDS}
    line.call(
        "Fetch",
        17,
        {"SessionId": 5, "SessionEpoch": 2, "Topics": [], "ForgottenTopicsData": []},
        {"SessionId": 5, "Responses": [{"TopicId": topic_id, "Partitions": [partition]}]},
    )


def metadata(line: Line) -> None:
    topic = {"Name": "orders", "TopicId": TOPIC_ID, "Partitions": []}
    line.call("Metadata", 12, {"Topics": []}, {"Topics": [topic]})


@pytest.mark.parametrize("step", [0, 1, 7])
def test_a_request_and_its_response_are_shown_whole(step: int) -> None:
    line = Line()
    heartbeat(line, step=step)
    request, response = line.shown()
    assert request["event"] == "request" and request["api"] == "Heartbeat" and request["version"] == 4
    assert request["client"] == "10.0.0.1:50001" and request["client_id"] == "app"
    assert request["groups"] == response["groups"] == ["g"]
    assert request["body"]["MemberId"] == "m" and request["number"] == response["number"] == 1
    assert response["seconds"] == 0.25 and response["errors"] == ["REBALANCE_IN_PROGRESS"]


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        (["group=g"], [("Heartbeat", ["g"])]),
        (["group=g*"], [("Heartbeat", ["g"]), ("Heartbeat", ["g2"])]),
        (["group=other,group=g2"], [("Heartbeat", ["g2"])]),
        (["api=heartbeat,client=b"], [("Heartbeat", ["g2"])]),
        (["api=12", "group=g"], [("Heartbeat", ["g"])]),
        (["api=Metadata"], [("Metadata", [])]),
        (["api=Fetch,group=g"], []),
    ],
)
def test_a_filter_names_groups_clients_and_apis(filters: list[str], wanted: list[Any]) -> None:
    line = Line(*filters)
    heartbeat(line)
    heartbeat(line, "g2", "b")
    metadata(line)
    shown = line.shown()
    assert [(each["api"], each["groups"]) for each in shown if each["event"] == "request"] == wanted
    assert len(shown) == 2 * len(wanted)


def test_a_response_that_matches_brings_its_request() -> None:
    line = Line("topic=orders,api=Fetch")
    metadata(line)
    fetch(line)
    fetch(line, uuid.UUID(int=8))
    assert [(each["event"], each["topics"]) for each in line.shown()] == [
        ("request", []),
        ("response", ["orders"]),
    ]


def test_records_show_as_their_batches_and_without_their_values() -> None:
    line = Line()
    fetch(line)
    found = line.shown()[1]["body"]["Responses"][0]["Partitions"][0]["Records"]
    assert found["bytes"] == len(RECORDS) and found["batches"][0]["records"] == 1
    assert b"payload" not in line.file.getvalue()


def test_a_members_subscription_is_decoded() -> None:
    line = Line("topic=orders")
    data = encode_subscription(1, {"Topics": ["orders"]})
    body = {"GroupId": "g", "MemberId": "", "ProtocolType": "consumer"}
    protocols = [{"Name": "range", "Metadata": data}, {"Name": "odd", "Metadata": b"\xff"}]
    line.call("JoinGroup", 5, {**body, "Protocols": protocols}, {"Members": []})
    found = line.shown()[0]["body"]["Protocols"]
    assert found[0]["Metadata"]["Topics"] == ["orders"] and found[1]["Metadata"] == "/w=="


SECRET = b"pencil-and-more"


def tell_secrets(line: Line) -> None:
    line.call("SaslHandshake", 1, {"Mechanism": "PLAIN"}, {"Mechanisms": ["PLAIN"]})
    line.call("SaslAuthenticate", 2, {"AuthBytes": SECRET}, {"AuthBytes": SECRET})
    config = {"Name": "sasl.jaas.config", "ConfigOperation": 0, "Value": SECRET.decode()}
    resource = {"ResourceType": 4, "ResourceName": "1", "Configs": [config]}
    line.call("IncrementalAlterConfigs", 1, {"Resources": [resource]}, {"Responses": []})


@pytest.mark.parametrize("pcapng", [False, True])
@pytest.mark.parametrize("filters", [[], ["api=Sasl*"]])
def test_credentials_are_in_no_dump_and_in_no_memory_of_it(filters: list[str], pcapng: bool) -> None:
    line = Line(*filters, pcapng=pcapng)
    tell_secrets(line)
    assert SECRET not in line.file.getvalue() and len(line.file.getvalue()) > 300
    assert not any(SECRET in each.frame for each in line.frames)
    if not pcapng:
        hidden = [each for each in line.shown() if each.get("hidden")]
        assert {each["api"] for each in hidden} >= {"SaslAuthenticate"}
        assert all(each["body"] is None for each in hidden)


def test_raw_sasl_tokens_are_not_dumped() -> None:
    line = Line()
    line.call("SaslHandshake", 0, {"Mechanism": "PLAIN"}, {"Mechanisms": ["PLAIN"]})
    token = b"\0alice\0" + SECRET
    assert forward(line.conversation.to_broker, len(token).to_bytes(4, "big") + token)
    assert forward(line.conversation.to_client, bytes(4)) == bytes(4)
    heartbeat(line)
    assert [each["api"] for each in line.shown()] == ["SaslHandshake"] * 2 + ["Heartbeat"] * 2
    assert not any(SECRET in each.frame for each in line.frames)


def fetch_log(line: Line, version: int, name: str, topic_id: uuid.UUID, records: bytes) -> None:
    topic = {"TopicId": topic_id} if version >= 13 else {"Topic": name}
    partition = {"PartitionIndex": 0, "HighWatermark": 3, "AbortedTransactions": None, "Records": records}
    if version < 12:
        partition["AbortedTransactions"] = []
    line.call("Fetch", version, {"Topics": []}, {"Responses": [{**topic, "Partitions": [partition]}]})


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("version", [11, 12, 17])
def test_the_metadata_log_is_not_dumped(version: int, cut: bool) -> None:
    """It holds the credentials of SCRAM users, and values of configurations."""
    records = Builder().add(None, SECRET).build().marshal()
    line = Line(pcapng=True, **({"capture": 90 + len(records) // 2} if cut else {}))
    records = SECRET * 3 if cut else records
    fetch_log(line, version, METADATA_LOG, METADATA_LOG_ID, records)
    assert SECRET[:8] not in line.file.getvalue()
    sent, whole = line.frames[-1], packets(line)
    assert sum(len(ip.data.data) for _, ip in whole if ip.data.sport == 9092) >= 4 + len(sent.frame)


def test_records_that_hold_the_id_of_the_metadata_log_are_dumped() -> None:
    line = Line(pcapng=True)
    fetch_log(line, 17, "orders", TOPIC_ID, METADATA_LOG_ID.bytes + SECRET)
    assert SECRET in line.file.getvalue()


@pytest.mark.parametrize("pcapng", [False, True])
@pytest.mark.parametrize(
    ("key", "version", "shown"),
    [
        (58, 0, True),  # Envelope
        (59, 1, True),  # FetchSnapshot
        (500, 0, True),  # an API that the tap does not know
        (3, 900, True),  # a version that it does not know
        (0x6082, 0x0201, False),  # a token of GSSAPI without a SaslHandshake, before KIP-43
    ],
)
def test_what_may_hold_credentials_is_not_dumped(key: int, version: int, shown: bool, pcapng: bool) -> None:
    line = Line(pcapng=pcapng)
    asked = struct.pack(">hhi", key, version, 7) + SECRET
    assert forward(line.conversation.to_broker, frames.frame(asked))
    assert forward(line.conversation.to_client, frames.frame(struct.pack(">i", 7) + SECRET))
    assert not any(set(each.frame[8 if each.is_request else 4 :]) for each in line.frames), (
        "no byte of a body"
    )
    assert SECRET not in line.file.getvalue() and len(line.frames) == 2 * shown
    if not pcapng:
        assert all(each["hidden"] and each["body"] is None and not each["client_id"] for each in line.shown())


def test_a_raw_token_is_not_dumped_though_it_looks_like_a_request() -> None:
    line = Line()
    line.call("SaslHandshake", 0, {"Mechanism": "PLAIN"}, {"Mechanisms": ["PLAIN"]})
    token = frames.encode_request("Heartbeat", 4, 2, SECRET.decode(), {"GroupId": "g", "MemberId": "m"})
    assert forward(line.conversation.to_broker, token)
    assert forward(line.conversation.to_client, bytes(4)) == bytes(4)
    heartbeat(line)
    assert [each["api"] for each in line.shown()] == ["SaslHandshake"] * 2 + ["Heartbeat"] * 2
    assert SECRET not in line.file.getvalue()


def test_a_frame_beyond_the_limit_is_cut_and_says_so() -> None:
    line = Line("api=Fetch", capture=100)
    fetch(line)
    request, response = line.shown()
    assert response["truncated"] == 100 and response["body"] is None and response["size"] > 300
    assert "truncated" not in request and len(line.frames[1].frame) == 100


def test_what_cannot_be_decoded_says_why_and_the_next_is_shown() -> None:
    line = Line()
    bad = frames.encode_request("Heartbeat", 4, 1, "app", {"GroupId": "g", "MemberId": "m"})[4:-5]
    assert forward(line.conversation.to_broker, len(bad).to_bytes(4, "big") + bad)
    heartbeat(line)
    shown = line.shown()
    assert "error" in shown[0] and shown[1]["body"]["GroupId"] == "g"


def test_the_dump_ends_at_its_limit() -> None:
    line = Line(limit=3_000)
    for _ in range(20):
        line.number += 1
        frame = frames.encode_request("Heartbeat", 4, line.number, "app", {"GroupId": "g", "MemberId": "m"})
        seen = events.FrameSeen(1, 1.0, line.number, 12, 4, size=len(frame) - 4, frame=frame[4:])
        try:
            line.dump.take(seen)
        except DumpFull as error:
            assert "3,000 bytes" in str(error)
            break
    else:
        raise AssertionError("no limit")
    assert 1_000 < len(line.file.getvalue()) <= 3_000 and line.shown()


def packets(line: Line) -> list[tuple[Any, Any]]:
    line.file.seek(0)
    reader = dpkt.pcapng.Reader(line.file)
    assert reader.datalink() == 101
    return [(at, dpkt.ip.IP(packet)) for at, packet in reader]


def test_packets_carry_the_frames_of_the_connections_addresses() -> None:
    line = Line(pcapng=True)
    metadata(line)
    fetch(line)
    tell_secrets(line)
    line.put(events.Closed(1, line.stage.now, "closed"))
    found = packets(line)
    assert [ip.data.flags for _, ip in found[:3]] == [2, 18, 16] and found[-1][1].data.flags == 17
    assert {(ip.src, ip.data.sport) for _, ip in found} == {(b"\x0a\0\0\1", 50001), (b"\x0a\0\0\2", 9092)}
    following: dict[int, int] = {}
    for _, ip in found:
        tcp = ip.data
        assert following.get(tcp.sport, tcp.seq) == tcp.seq, "no gap"
        following[tcp.sport] = tcp.seq + len(tcp.data) + bool(tcp.flags & 3)
    whole = b"".join(ip.data.data for _, ip in found if ip.data.sport == 50001)
    assert whole.startswith(frames.encode_request("Metadata", 12, 1, "app", {"Topics": []}))


def test_packets_can_be_read_as_a_capture() -> None:
    """What the tap writes it can read: its own reader of captures sees the same group."""
    line = Line(pcapng=True)
    for offset in (3, 8):
        commit = {"Name": "t", "Partitions": [{"PartitionIndex": 0, "CommittedOffset": offset}]}
        answer = {"Name": "t", "Partitions": [{"PartitionIndex": 0, "ErrorCode": 0}]}
        body = {"GroupId": "g", "MemberId": "", "GenerationIdOrMemberEpoch": -1, "Topics": [commit]}
        line.call("OffsetCommit", 8, body, {"Topics": [answer]})
    fetch(line)
    line.file.seek(0)
    observer = Observer(line.stage.config)
    capture = Capture(line.stage.config, observer)
    for segment in segments(line.file):
        capture.take(segment)
    capture.finish()
    group = observer.snapshot(0.0)["groups"][0]
    assert group["group"] == "g" and group["offsets"][0]["committed"] == 8
    assert not observer.counts["undecodable"]


def test_ipv6_and_mixed_families_make_ipv6_packets() -> None:
    line = Line(pcapng=True)
    line.put(events.Connected(1, line.stage.now, ("fe80::1%eth0", 50001), ("10.0.0.2", 9092)))
    heartbeat(line)
    line.file.seek(0)
    found = [dpkt.ip6.IP6(packet) for _, packet in dpkt.pcapng.Reader(line.file)]
    assert found[0].dst == bytes(10) + b"\xff\xff\x0a\0\0\2"


async def test_the_queue_drops_and_counts_what_it_has_no_room_for() -> None:
    got: list[DumpBatch] = []
    accept = True

    def deliver(batch: DumpBatch) -> bool:
        got.append(batch)
        return accept

    queue = DumpQueue(DumpFilter(), Bounds(backlog=250), deliver)
    seen = events.FrameSeen(1, 1.0, 1, 12, 4, size=100, frame=bytes(100))
    assert queue.reserve(100) and queue.reserve(100) and not queue.reserve(100)
    queue.put(seen)
    queue.put(seen)
    queue.flush()
    assert (len(got[0].events), got[0].size, got[0].lost) == (2, 200, 1)
    queue.done(got[0])
    accept = False
    assert queue.reserve(100)
    queue.put(seen)
    queue.flush()
    accept = True
    assert queue.reserve(250), "what was dropped gave its room back"
    queue.put(seen._replace(frame=bytes(250)))
    queue.flush()
    assert got[2].lost == 1
    queue.ended = True
    assert queue.limit(12, 4) is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("owner=x", "names none of group, topic, client, api"),
        ("x", "names none of"),
        ("group=", "needs a value"),
        ("api=Fetsch", "no API has this name"),
    ],
)
def test_a_bad_filter_says_what_is_wrong(text: str, wanted: str) -> None:
    with pytest.raises(ConfigError, match=wanted):
        parse_filter([text])


def test_a_filter_with_several_values_of_a_key() -> None:
    assert parse_filter(["group=a,b,topic=t", "group=c"]) == DumpFilter(("a", "b", "c"), ("t",))
    assert parse_filter(["api=*Group"]).apis >= {11, 13, 14}


@pytest.mark.parametrize("flags", [["--filter", "group=g"], ["--dump", "-", "--output", "json"]])
def test_flags_that_do_not_go_together_are_refused(flags: list[str]) -> None:
    with pytest.raises(ConfigError, match="--dump"):
        make_config(make_parser().parse_args(["--broker", "kafka:9092", *flags]))


def test_what_the_dump_copies_is_not_spliced_past_it() -> None:
    body = {"Acks": 1, "TopicData": [{"Name": "t", "PartitionData": [{"Index": 0, "Records": bytes(5_000)}]}]}
    frame = frames.encode_request("Produce", 7, 1, "app", body)
    for capture, spliced in ((1 << 20, False), (100, True)):
        line = Line(capture=capture)
        forward(line.conversation.to_broker, frame[:200])
        assert bool(line.conversation.to_broker.unread) is spliced
        forward(line.conversation.to_broker, frame[200:])
        assert len(line.frames[0].frame) == min(capture, len(frame) - 4)
    without = Line("api=Fetch")
    forward(without.conversation.to_broker, frame[:200])
    assert without.conversation.to_broker.unread, "nobody copies it"
