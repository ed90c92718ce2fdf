"""Connections of the clients: their end, faults, time limits, bootstrap addresses, SASL with an old broker."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from pixy.wire import aio, client, frames
from pixy.wire.connection import parse_address
from pixy.wire.exceptions import DecodeError, WireError
from pixy.wire.frames import Request
from tests.unit.wire.fake_broker import PARTITION, TOPIC, FakeBroker
from tests.unit.wire.sides import partition


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


@pytest.mark.slow
@pytest.mark.parametrize("answer", [lambda _request: b"", cut], ids=["silence", "half an answer"])
def test_a_request_times_out(side: Any, answer: Any) -> None:
    with FakeBroker({"Fetch": answer}) as broker:
        one = partition(side, broker, request_timeout=1.5)
        begun = time.monotonic()
        with pytest.raises(client.RequestTimedOutError, match=r"no answer in 1\.5 s"):
            side.do(lambda: one.fetch(0))
        assert time.monotonic() - begun > 1.4
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


def test_a_session_is_renewed_before_the_broker_ends_it(side: Any) -> None:
    """KIP-368: after 85 % of the lifetime the next call authenticates first, on the same connection."""
    now = [100.0]
    with FakeBroker() as broker:
        broker.answers["SaslAuthenticate"] = lambda request: broker.usual(request, SessionLifetimeMs=10_000)
        tokens = iter(["first", "second", "third", "fourth"])
        sasl = client.Sasl("OAUTHBEARER", token=lambda: next(tokens))
        one = partition(side, broker, clock=lambda: now[0], sasl=sasl)
        side.do(lambda: one.fetch(0))
        broker.seen.clear()
        now[0] += 8.4
        side.do(lambda: one.fetch(0))
        assert broker.names() == ["Fetch"]
        now[0] += 0.2
        side.do(lambda: one.fetch(0))
        side.do(lambda: one.fetch(0))
        assert broker.names() == ["Fetch", "SaslHandshake", "SaslAuthenticate", "Fetch", "Fetch"]
        assert broker.connections == 2 and b"third" in broker.seen[2].body["AuthBytes"]
        broker.answers["SaslAuthenticate"] = lambda request: broker.usual(
            request, ErrorCode=58, ErrorMessage="expired"
        )
        now[0] += 8.6
        with pytest.raises(client.AuthenticationError, match="expired"):
            side.do(lambda: one.fetch(0))
        assert one.connection is None or one.connection.closed
        one.close()


async def test_the_key_derivation_of_scram_does_not_hold_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    real = hashlib.pbkdf2_hmac

    def derive(*args: Any) -> bytes:
        threads.append(threading.current_thread())
        return real(*args)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", derive)
    with FakeBroker() as broker:

        def answer(request: Request) -> bytes:
            nonce = request.body["AuthBytes"].rpartition(b"r=")[2]
            return broker.usual(request, AuthBytes=b"r=" + nonce + b"x,s=c2FsdA==,i=4096")

        broker.answers["SaslAuthenticate"] = answer
        with pytest.raises(client.AuthenticationError, match="does not know the password"):
            await aio.call_metadata(broker.address, [], sasl=client.Sasl("SCRAM-SHA-256", "a", "b"))
    assert len(threads) == 1 and threads[0] is not threading.main_thread()


def test_a_join_may_take_the_rebalance_timeout(side: Any) -> None:
    """With the defaults both limits were 60 s: the answer after a rebalance with a dead member came too late."""
    with FakeBroker() as broker:

        def late(request: Request) -> bytes:
            time.sleep(2.0)  # longer than the request timeout: that is the point
            return broker.usual(request, ErrorCode=79, MemberId="m")

        broker.answers["JoinGroup"] = late
        group = side.made("GroupClient", broker.address, "g", request_timeout=1.5)
        assert side.do(lambda: group.join({"range": b""}))["MemberId"] == "m"
        group.close()


@pytest.mark.parametrize(("known", "expected"), [((0, 2), 8), ((0, 3), 13)])
def test_librdkafkas_mock_cluster_is_asked_for_metadata_that_it_can_write(
    side: Any, known: tuple[int, int], expected: int
) -> None:
    """It adds a byte to those of version 9 and newer; it is known by its old ApiVersions."""
    with FakeBroker(ApiVersions=known, Metadata=(0, 13)) as broker:
        one = partition(side, broker)
        side.do(one.list_offsets)
        one.close()
        assert {each.version for each in broker.seen if each.header.key == 3} == {expected}
