"""The blocking and the asyncio clients against a fake broker that misbehaves; libkafka's defects do not recur."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pixy.wire import aio, client, frames
from pixy.wire.batch import Builder
from pixy.wire.connection import parse_address
from pixy.wire.errors import KafkaError
from pixy.wire.exceptions import DecodeError, EncodeError, UnsupportedVersionError, WireError
from pixy.wire.frames import Request
from tests.unit.wire.fake_broker import PARTITION, TOPIC, FakeBroker

BATCH = Builder(now=lambda: 1_700_000_000_000).add(b"k", b"v").build()


class Blocking:
    """Calls the blocking clients."""

    module: Any = client

    def made(self, kind: str, *args: Any, **options: Any) -> Any:
        return getattr(client, kind)(*args, **options)

    def do(self, call: Callable[[], Any]) -> Any:
        return call()


class OnLoop(Blocking):
    """Calls the asyncio clients on one event loop."""

    module: Any = aio

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()

    def made(self, kind: str, *args: Any, **options: Any) -> Any:
        return getattr(aio, kind)(*args, **options)

    def do(self, call: Callable[[], Any]) -> Any:
        async def run() -> Any:
            return await call()

        return self.loop.run_until_complete(run())


@pytest.fixture(params=["blocking", "asyncio"])
def side(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "blocking":
        yield Blocking()
        return
    made = OnLoop()
    yield made
    made.loop.run_until_complete(asyncio.sleep(0))  # lets aborted transports close
    made.loop.close()


def partition(side: Any, broker: FakeBroker, **options: Any) -> Any:
    return side.made("PartitionClient", broker.address, TOPIC, PARTITION, **options)


# -- what a call does -------------------------------------------------------------------------------


def test_a_leader_is_looked_up_once_and_a_connection_kept(side: Any) -> None:
    with FakeBroker() as broker:
        one = partition(side, broker)
        assert str(side.do(one.leader)) == broker.address
        assert side.do(lambda: one.produce(BATCH)).base_offset == 42
        assert side.do(lambda: one.fetch(7)).high_watermark == 50
        assert side.do(one.list_offsets).offset == 50
        assert broker.names() == ["Metadata", "Produce", "Fetch", "ListOffsets"]
        assert broker.connections == 2  # one to find the leader, one to the leader
        one.close()
        assert side.do(lambda: one.produce(BATCH)).error_code == 0
        assert broker.connections == 3 and broker.names().count("Metadata") == 1
        one.forget()
        assert side.do(lambda: one.produce(BATCH)).error_code == 0
        assert broker.names().count("Metadata") == 2
        one.close()


def test_correlation_ids_increase(side: Any) -> None:
    """libkafka always sends 0."""
    with FakeBroker() as broker:
        one = partition(side, broker)
        for _ in range(3):
            side.do(lambda: one.fetch(0))
        ids = [each.header.correlation_id for each in broker.seen if each.name == "FetchRequest"]
        assert ids == [2, 3, 4]
        one.close()


def test_client_id_and_software_are_sent(side: Any) -> None:
    with FakeBroker() as broker:
        side.do(lambda: side.module.call_metadata(broker.address, client_id="me", software=("mine", "1.2")))
        assert {each.header.client_id for each in broker.seen} == {"me"}
        assert broker.seen[0].body == {"ClientSoftwareName": "mine", "ClientSoftwareVersion": "1.2"}


def test_a_fetch_asks_for_its_partition_once(side: Any) -> None:
    """libkafka sends the partition twice."""
    with FakeBroker() as broker:
        one = side.made("PartitionFetcher", broker.address, TOPIC, PARTITION, offset=11, max_bytes=77)
        side.do(one.fetch)
        (topic,) = broker.seen[-1].body["Topics"]
        (asked,) = topic["Partitions"]
        assert (topic["Topic"], asked["Partition"], asked["FetchOffset"]) == (TOPIC, PARTITION, 11)
        assert asked["PartitionMaxBytes"] == 77
        assert one.offset == 11
        one.close()


def test_a_fetch_never_moves_the_offset_and_drops_a_truncated_batch(side: Any) -> None:
    whole = Builder(base_offset=7, now=lambda: 0).add(b"a", b"b").add(None, None).build().marshal()

    def answer(request: Request) -> bytes:
        return broker.usual(
            request,
            Responses=[
                {
                    "Topic": TOPIC,
                    "Partitions": [
                        {"PartitionIndex": PARTITION, "HighWatermark": 50, "Records": whole + whole[:-5]},
                    ],
                }
            ],
        )

    with FakeBroker({"Fetch": answer}) as broker:
        one = side.made("PartitionFetcher", broker.address, TOPIC, PARTITION, offset=8)
        found = side.do(one.fetch)
        assert one.offset == 8
        assert [each.base_offset for each in found.batches()] == [7]
        assert [(each.offset, each.value) for each in found.records()] == [(8, None)]
        assert found.next_offset == 9
        one.close()


def test_versions_are_negotiated_by_key_and_capped(side: Any) -> None:
    """libkafka looks an API up by its position in the list; the fake broker's list is in reverse order."""
    with FakeBroker(Produce=(3, 7), Fetch=(4, 99)) as broker:
        one = partition(side, broker)
        side.do(lambda: one.produce(BATCH))
        side.do(lambda: one.fetch(0))
        used = {each.name: each.version for each in broker.seen}
        assert used["ProduceRequest"] == 7 and used["FetchRequest"] == 12  # later versions require topic ids
        one.close()
        assert side.do(lambda: side.module.call_api_versions(broker.address))["Produce"] == (3, 7)


def test_a_broker_that_is_too_new_or_too_old(side: Any) -> None:
    with FakeBroker(Fetch=(13, 18)) as broker:
        one = partition(side, broker)
        with pytest.raises(UnsupportedVersionError, match="13 to 18 of Fetch, this client 0 to 12"):
            side.do(lambda: one.fetch(0))
        with pytest.raises(UnsupportedVersionError, match="does not know StreamsGroupDescribe"):
            side.do(lambda: one.call("StreamsGroupDescribe", {}))
        assert side.do(one.list_offsets).offset == 50  # on the same connection
        assert broker.connections == 2
        one.close()


def test_negotiation_falls_back_to_api_versions_0(side: Any) -> None:
    def old(request: Request) -> bytes:
        if request.version == 0:
            return broker.usual(request)
        return frames.encode_response(18, 0, request.header.correlation_id, {"ErrorCode": 35})

    with FakeBroker({"ApiVersions": old}) as broker:
        one = partition(side, broker)
        assert side.do(lambda: one.fetch(0)).error_code == 0
        assert [each.version for each in broker.seen if each.header.key == 18] == [3, 0, 3, 0]
        one.close()


def test_acks_0_waits_for_no_answer(side: Any) -> None:
    """libkafka waits for an answer that never comes, until it times out."""
    with FakeBroker(
        {"Produce": lambda request: b"" if request.body["Acks"] == 0 else broker.usual(request)}
    ) as broker:
        one = side.made("PartitionProducer", broker.address, TOPIC, PARTITION, acks=0, request_timeout=5.0)
        begun = time.monotonic()
        found = side.do(lambda: one.produce(BATCH.marshal()))
        assert time.monotonic() - begun < 4
        assert (found.error_code, found.base_offset) == (0, -1)
        assert side.do(lambda: one.produce(BATCH, acks=1)).base_offset == 42
        assert [each.body["Acks"] for each in broker.seen if each.name == "ProduceRequest"] == [0, 1]
        assert broker.connections == 2
        one.close()


def test_error_codes_are_results(side: Any) -> None:
    def answers(api: str, **body: Any) -> Any:
        return lambda request: broker.usual(request, **body)

    failed = {"Topic": TOPIC, "Partitions": [{"PartitionIndex": PARTITION, "ErrorCode": 1}]}
    with FakeBroker(
        {
            "Fetch": answers("Fetch", Responses=[failed]),
            "Heartbeat": answers("Heartbeat", ErrorCode=27),
            "OffsetFetch": answers("OffsetFetch", ErrorCode=16),
        }
    ) as broker:
        one = partition(side, broker)
        assert side.do(lambda: one.fetch(0)).error_code == 1
        group = side.made("GroupClient", broker.address, "g")
        assert side.do(lambda: group.heartbeat(client.Member("m", 1)))["ErrorCode"] == 27
        assert side.do(lambda: group.fetch_offset(TOPIC, 0)) == (16, -1, None, -1)
        assert side.do(group.fetch_offsets) == (16, {})
        assert broker.connections == 4  # no error code closed a connection
        broker.answers["Fetch"] = lambda request: broker.usual(request, ErrorCode=70, Responses=[])
        assert side.do(lambda: one.fetch(0)).error_code == 70
        one.close()
        group.close()


def test_a_partition_without_a_leader_and_a_missing_one(side: Any) -> None:
    with FakeBroker() as broker:
        for topic, number, kind, code in (
            (TOPIC, 0, client.NoLeaderForPartitionError, 5),
            (TOPIC, 99, client.PartitionDoesNotExistError, 3),
            ("other", 0, client.PartitionDoesNotExistError, 3),
        ):
            one = side.made("PartitionClient", broker.address, topic, number)
            with pytest.raises(kind, match=f"{topic}/{number}") as caught:
                side.do(one.leader)
            assert caught.value.code == code and isinstance(caught.value, KafkaError)


def test_the_leader_is_that_of_the_requested_partition(side: Any) -> None:
    """libkafka takes the address of its loop variable."""
    with FakeBroker() as broker:
        found = side.do(lambda: side.module.get_partition_leader(broker.address, TOPIC, PARTITION))
        assert (found.node_id, found.port) == (7, broker.port)


def test_an_invalid_argument_leaves_the_connection_open(side: Any) -> None:
    with FakeBroker() as broker:
        one = partition(side, broker)
        side.do(lambda: one.fetch(0))
        with pytest.raises(EncodeError, match="FetchOffset"):
            side.do(lambda: one.fetch(2**63))
        side.do(lambda: one.fetch(0))
        assert broker.connections == 2
        one.close()


# -- connections ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("option", "per_call"), [("connection_ttl", 5.0), ("conn_max_idle", 5.0)])
def test_a_connection_ends_by_age_or_idleness(side: Any, option: str, per_call: float) -> None:
    now = [100.0]
    with FakeBroker() as broker:
        one = partition(side, broker, clock=lambda: now[0], **{option: per_call})
        side.do(lambda: one.fetch(0))
        now[0] += 4.0
        side.do(lambda: one.fetch(0))
        assert broker.connections == 2
        now[0] += 4.0  # 8 s old, 4 s idle
        side.do(lambda: one.fetch(0))
        assert broker.connections == (3 if option == "connection_ttl" else 2)
        now[0] += 5.0
        side.do(lambda: one.fetch(0))
        assert broker.connections == (4 if option == "connection_ttl" else 3)
        one.close()


def hang_up(_request: Request) -> None:
    return None


def cut(request: Request) -> bytes | None:
    return struct.pack(">i", 100) + b"\0\0"


def header_of(request: Request) -> bytes:
    # Fetch and Produce are flexible in the versions used here; SaslHandshake does not occur.
    return struct.pack(">i", request.header.correlation_id) + b"\0"


FAULTS: dict[str, tuple[Callable[[Request], bytes | None], type[Exception], str]] = {
    "hangs up": (hang_up, client.TransportError, "closed the connection"),
    "wrong correlation id": (
        lambda request: frames.encode_response("Fetch", request.version, 999, {}),
        DecodeError,
        "request 999, 2 is due",
    ),
    "huge length": (lambda _request: b"\x7f\xff\xff\xff", DecodeError, "frame of 2147483647 bytes"),
    "negative length": (lambda _request: b"\xff\xff\xff\xff", DecodeError, "frame of -1 bytes"),
    "no frame at all": (
        lambda _request: b"HTTP/1.1 400 Bad Request\r\n",
        DecodeError,
        "frame of 1213486160 bytes",
    ),
    "empty frame": (lambda _request: frames.frame(b""), DecodeError, "ResponseHeader"),
    "garbage": (
        lambda request: frames.frame(header_of(request) + b"\xff" * 40),
        DecodeError,
        "FetchResponse v12",
    ),
    "too much": (
        lambda request: frames.frame(
            frames.encode_response("Fetch", request.version, request.header.correlation_id, {})[4:] + b"x"
        ),
        DecodeError,
        "left over",
    ),
    "another partition": (
        lambda request: frames.encode_response(
            "Fetch",
            request.version,
            request.header.correlation_id,
            {
                "Responses": [{"Topic": "other", "Partitions": [{"PartitionIndex": PARTITION}]}],
            },
        ),
        DecodeError,
        "nothing about events",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_closes_the_connection_and_is_not_retried(side: Any, fault: str) -> None:
    answer, kind, words = FAULTS[fault]
    with FakeBroker({"Fetch": answer}) as broker:
        one = partition(side, broker, request_timeout=10.0)
        with pytest.raises(kind, match=words) as caught:
            side.do(lambda: one.fetch(0))
        assert isinstance(caught.value, WireError)
        assert broker.names().count("Fetch") == 1 and broker.connections == 2
        del broker.answers["Fetch"]
        assert side.do(lambda: one.fetch(0)).high_watermark == 50
        assert broker.connections == 3 and broker.names().count("Metadata") == 1
        one.close()


def test_the_error_of_a_truncated_answer_has_the_bytes_received(side: Any) -> None:
    with FakeBroker() as broker:

        def cut_and_close(request: Request) -> bytes | None:
            connection = broker._open[-1]
            connection.sendall(struct.pack(">i", 100) + b"\0\0")
            return None

        broker.answers["Fetch"] = cut_and_close
        one = partition(side, broker)
        with pytest.raises(client.TransportError, match="after 6 bytes of an answer"):
            side.do(lambda: one.fetch(0))


@pytest.mark.parametrize("answer", [lambda _request: b"", cut], ids=["silence", "half an answer"])
def test_a_request_times_out(side: Any, answer: Any) -> None:
    with FakeBroker({"Fetch": answer}) as broker:
        one = partition(side, broker, request_timeout=1.5)
        begun = time.monotonic()
        with pytest.raises(client.RequestTimedOutError, match=r"no answer in 1\.5 s"):
            side.do(lambda: one.fetch(0))
        assert 1.4 < time.monotonic() - begun < 20
        del broker.answers["Fetch"]
        assert side.do(lambda: one.fetch(0)).error_code == 0
        one.close()


def test_a_surplus_answer_is_not_taken_for_the_next(side: Any) -> None:
    """The correlation id exposes an answer that nobody asked for."""
    with FakeBroker() as broker:
        broker.answers["Fetch"] = lambda request: broker.usual(request) * 2
        one = partition(side, broker)
        side.do(lambda: one.fetch(0))
        with pytest.raises(DecodeError, match="answer to request 2, 3 is due"):
            side.do(lambda: one.fetch(0))


def test_a_refused_connection(side: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with pytest.raises(client.TransportError, match=f"127.0.0.1:{port}"):
        side.do(lambda: side.module.call_metadata(f"127.0.0.1:{port}"))


def test_a_dial_times_out(side: Any) -> None:
    """A server with a full accept queue does not answer."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        fillers = []
        try:
            for _ in range(4):
                filler = socket.socket()
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", port))
                fillers.append(filler)
            with pytest.raises(client.RequestTimedOutError, match=r"no connection in 0\.3 s"):
                side.do(lambda: side.module.call_metadata(f"127.0.0.1:{port}", dial_timeout=0.3))
        finally:
            for filler in fillers:
                filler.close()


def test_bootstrap_addresses(side: Any) -> None:
    with FakeBroker() as broker:
        calls: list[int] = []

        def resolve() -> list[str]:
            calls.append(1)
            return [broker.address]

        for bootstrap in (broker.address, f"{broker.address},{broker.address}", [broker.address], resolve):
            found = side.do(lambda bootstrap=bootstrap: side.module.call_metadata(bootstrap, [TOPIC]))
            assert found["Topics"][0]["Name"] == TOPIC
        one = side.made("PartitionClient", resolve, TOPIC, PARTITION)
        calls.clear()
        side.do(one.leader)
        one.forget()
        side.do(one.leader)
        assert len(calls) == 1  # kept
        broker.answers["Metadata"] = hang_up
        one.forget()
        with pytest.raises(client.TransportError):
            side.do(one.leader)
        del broker.answers["Metadata"]
        side.do(one.leader)
        assert len(calls) == 2  # forgotten after the failure
        for answer, words in ((hang_up, "closed"), (None, r"refused|Connect call failed")):
            # The same if the connection itself fails.
            gone = FakeBroker({"ApiVersions": hang_up})
            if answer is None:
                gone.close()
            found = [gone.address, broker.address]
            one = side.made("PartitionClient", lambda found=found: [found.pop(0)], TOPIC, PARTITION)
            with pytest.raises(client.TransportError, match=words):
                side.do(one.leader)
            assert side.do(one.leader).port == broker.port
            gone.close()


@pytest.mark.parametrize(
    "text", ["", "host", "host:", ":1", "host:x", "host:0", "host:65536", "a:b:1", "host:-1"]
)
def test_an_invalid_address(text: str) -> None:
    with pytest.raises(ValueError, match="not an address"):
        parse_address(text)


def test_addresses() -> None:
    assert str(parse_address(" kafka:9092 ")) == "kafka:9092"
    assert str(parse_address("[::1]:9092")) == "[::1]:9092"


# -- one side only ----------------------------------------------------------------------


async def test_concurrent_calls_run_one_after_the_other() -> None:
    with FakeBroker() as broker:
        async with aio.PartitionClient(broker.address, TOPIC, PARTITION) as one:
            found = await asyncio.gather(*(one.fetch(number) for number in range(20)))
        assert [each.fetch_offset for each in found] == list(range(20))
        assert broker.connections == 2


async def test_a_cancelled_call_closes_the_connection() -> None:
    with FakeBroker({"Fetch": lambda _request: b""}) as broker:
        async with aio.PartitionClient(broker.address, TOPIC, PARTITION) as one:
            await one.list_offsets()
            call = asyncio.ensure_future(one.fetch(0))
            while "Fetch" not in broker.names():
                await asyncio.sleep(0.01)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert (await one.list_offsets()).offset == 50
        assert broker.connections == 3


async def test_a_bootstrap_function_may_be_a_coroutine() -> None:
    with FakeBroker() as broker:

        async def resolve() -> list[str]:
            return [broker.address]

        assert (await aio.call_metadata(resolve, []))["ControllerId"] == 7  # type: ignore[arg-type]


def test_sasl_with_an_old_broker() -> None:
    """After SaslHandshake v0 tokens have no header."""
    tokens = []

    class Old(FakeBroker):
        def _serve(self, connection: socket.socket) -> None:
            splitter, bare = frames.FrameSplitter(), False
            while chunk := connection.recv(65536):
                for frame in splitter.feed(chunk):
                    if bare:
                        tokens.append(frame)
                        bare = False
                        if frame != b"\0alice\0secret":
                            connection.close()
                            return
                        connection.sendall(frames.frame(b""))
                        continue
                    request = frames.decode_request(frame)
                    bare = request.name == "SaslHandshakeRequest"
                    connection.sendall(self.usual(request, **({"Mechanisms": ["PLAIN"]} if bare else {})))

    with Old(SaslHandshake=(0, 0)) as broker:
        assert (
            client.call_metadata(broker.address, [], sasl=client.Sasl("PLAIN", "alice", "secret"))[
                "ControllerId"
            ]
            == 7
        )
        with pytest.raises(client.AuthenticationError, match="SASL PLAIN: refused"):
            client.call_metadata(broker.address, [], sasl=client.Sasl("PLAIN", "alice", "wrong"))
    assert tokens == [b"\0alice\0secret", b"\0alice\0wrong"]


def test_read_committed_leaves_out_aborted_records() -> None:
    from pixy.wire import control

    def transactional(producer: int, offset: int, value: bytes) -> bytes:
        return (
            Builder(
                base_offset=offset,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
                now=lambda: 0,
            )
            .add(None, value)
            .build()
            .marshal()
        )

    def marker(producer: int, offset: int, abort: bool) -> bytes:
        made = Builder(
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0,
            transactional=True,
            control=True,
            now=lambda: 0,
        )
        key = struct.pack(">hh", 0, control.ControlType.ABORT if abort else control.ControlType.COMMIT)
        return made.add(key, struct.pack(">hi", 0, 1)).build().marshal()

    data = b"".join(
        [
            transactional(1, 0, b"aborted"),
            transactional(2, 1, b"committed"),
            marker(1, 2, True),
            marker(2, 3, False),
            transactional(1, 4, b"later, committed"),
            marker(1, 5, False),
            Builder(base_offset=6, now=lambda: 0).add(None, b"plain").build().marshal(),
            transactional(1, 7, b"aborted again"),
            marker(1, 8, True),
            transactional(1, 9, b"the last"),
        ]
    )

    def values(read_committed: bool) -> list[bytes | None]:
        return [
            each.value
            for each in client.FetchResult(
                client.Broker("h", 1), "t", 0, 0, 0, 0, 10, 10, 0, ((1, 7), (1, 0)), data, read_committed
            ).records()
        ]

    assert values(True) == [b"committed", b"later, committed", b"plain", b"the last"]
    assert values(False) == [
        b"aborted",
        b"committed",
        b"later, committed",
        b"plain",
        b"aborted again",
        b"the last",
    ]
