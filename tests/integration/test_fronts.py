"""The same requests to the daemon behind both fronts: every answer must be the same. What differs is listed in docs/fronts.md."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import ssl
from pathlib import Path

import aiohttp
import grpc
import pytest
import trustme

from pixy.proto import kafkapixy_pb2 as pb
from pixy.proto.kafkapixy_pb2_grpc import KafkaPixyStub
from tests.integration.answers import grpc_answers, rest_answers, running
from tests.kafka.cluster import Cluster
from tests.support import eventually

pytest.importorskip("pyvoy", reason="the extra `envoy` is not installed")

CONFIG = """\
grpc_addr: 127.0.0.1:0
tcp_addr: 127.0.0.1:0
server: {{front: {front}}}
proxies:
  default:
    kafka: {{seed_peers: ["{seed}"]}}
    consumer: {{initial_offset: oldest, long_polling_timeout: 500ms}}
"""
V2 = "application/vnd.kafka.v2+json"
V2_BINARY = "application/vnd.kafka.binary.v2+json"


async def test_both_fronts_give_the_same_answers(kafka: Cluster, name: str, tmp_path: Path) -> None:
    found = {}
    for front in ("portable", "envoy"):
        topic = f"{name}-{front}"
        kafka.create_topic(topic, 1)
        folder = tmp_path / front
        folder.mkdir()
        config = CONFIG.format(front=front, seed=kafka.bootstrap()[0])
        async with running(folder, config) as daemon:
            await daemon.serves()
            found[front] = {
                **await rest_answers(f"http://{daemon.address('rest')}", topic),
                **{
                    f"grpc {what}": each
                    for what, each in (await grpc_answers(daemon.address("grpc"), topic)).items()
                },
            }
            assert daemon.pid_file.read_text() == str(daemon.process.pid)
            daemon.process.send_signal(signal.SIGTERM)
            assert await daemon.ended() == 0, daemon.lines
        assert not daemon.pid_file.exists()
    differs = {
        what: (found["portable"].get(what), found["envoy"].get(what))
        for what in found["portable"] | found["envoy"]
        if found["portable"].get(what) != found["envoy"].get(what)
    }
    assert not differs, differs


async def test_a_message_for_a_client_that_has_gone_is_given_to_the_next_one(
    kafka: Cluster, name: str, tmp_path: Path
) -> None:
    topics = {each: f"{name}-{each}" for each in ("rest", "grpc")}
    for topic in topics.values():
        kafka.create_topic(topic, 1)
    config = CONFIG.format(front="envoy", seed=kafka.bootstrap()[0]).replace("500ms", "20s")
    async with running(tmp_path, config) as daemon:
        await daemon.serves()
        base = f"http://{daemon.address('rest')}"
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as http,
            grpc.aio.insecure_channel(daemon.address("grpc")) as channel,
        ):
            stub = KafkaPixyStub(channel)

            async def consumed(api: str) -> int:
                topic = topics[api]
                if api == "rest":
                    async with http.get(f"{base}/topics/{topic}/messages?group={topic}") as answer:
                        return int((await answer.json())["offset"])
                asked = pb.ConsNAckRq(topic=topic, group=topic, auto_ack=True)
                return int((await stub.ConsumeNAck(asked)).offset)

            for api, topic in topics.items():
                waits = asyncio.ensure_future(consumed(api))

                async def has_joined(topic: str = topic) -> bool:
                    return any(f"got {topic}/0" in line for line in daemon.lines)

                await eventually(has_joined)
                waits.cancel()
                await asyncio.wait((waits,))
                await stub.Produce(pb.ProdRq(topic=topic, message=b"x"))
                assert await consumed(api) == 0


async def test_the_supervisor_says_why_envoy_has_ended(tmp_path: Path) -> None:
    config = "grpc_addr: ''\ntcp_addr: 127.0.0.1:0\nserver: {front: envoy}\n"
    async with running(tmp_path, config, "--sandbox") as daemon:
        await daemon.serves()
        (envoy,) = daemon.children()
        os.kill(envoy, signal.SIGKILL)
        assert await daemon.ended() == 4
        assert "kafka-pixy: stopping: Envoy has ended (signal 9)" in daemon.lines, daemon.lines
        assert not daemon.pid_file.exists()


async def test_an_address_that_is_taken_costs_one_line(tmp_path: Path) -> None:
    with contextlib.closing(await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)) as taken:
        port = taken.sockets[0].getsockname()[1]
        config = f"grpc_addr: ''\ntcp_addr: 127.0.0.1:{port}\nserver: {{front: envoy}}\n"
        async with running(tmp_path, config, "--sandbox") as daemon:
            assert await daemon.ended() == 1
            (line,) = daemon.lines
            assert f"listen tcp 127.0.0.1:{port}: bind: address already in use" in line


async def test_clients_that_go_and_bodies_that_come_too_late_leave_no_error_in_the_log(
    tmp_path: Path,
) -> None:
    config = "grpc_addr: 127.0.0.1:0\ntcp_addr: 127.0.0.1:0\nbody_timeout: 200ms\nserver: {front: envoy}\n"
    produce = "POST /topics/t/messages HTTP/1.1\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n"
    call = "POST /KafkaPixy/Produce HTTP/1.1\r\nContent-Type: application/grpc\r\nContent-Length: 9\r\n"
    poll = "GET /topics/t/messages?group=g HTTP/1.1\r\n"
    async with running(tmp_path, config, "--sandbox") as daemon:
        await daemon.serves()

        async def ask(listener: str, head: str, body: bytes, stays: float | None) -> bytes:
            """Send a request; go after some seconds, or wait for the beginning of the answer."""
            address = daemon.address(listener)
            host, _, port = address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"{head}Host: {address}\r\n\r\n".encode() + body)
            try:
                async with asyncio.timeout(stays):
                    return await reader.read(12)
            except TimeoutError:
                return b""
            finally:
                writer.transport.abort()

        late = [("rest", produce, b""), ("rest", produce, b"x"), ("grpc", call, b""), ("grpc", call, b"\0")]
        statuses = await asyncio.gather(*(ask(*each, None) for each in late))
        assert statuses == [b"HTTP/1.1 400"] * 2 + [b"HTTP/1.1 200"] * 2
        stays = [0.01 * number for number in range(1, 40)]
        await asyncio.gather(*(ask("rest", poll, b"", each) for each in stays))
        await asyncio.gather(*(ask(*each, 0.19) for each in late))
        daemon.process.terminate()
        assert await daemon.ended() == 0
    assert not [line for line in daemon.lines if "<asyncio>" in line or "Traceback" in line], daemon.lines


FLOOD_CONFIG = """\
grpc_addr: 127.0.0.1:0
tcp_addr: 127.0.0.1:0
server: {{front: envoy}}
connections: {{max_request_rate: 50}}
access_log: {{path: {folder}/access.log}}
"""


async def test_an_address_that_sends_too_many_requests_is_refused_whatever_it_says_of_itself(
    tmp_path: Path,
) -> None:
    """Envoy would take the address from X-Forwarded-For, whoever sends it."""
    async with running(tmp_path, FLOOD_CONFIG.format(folder=tmp_path), "--sandbox") as daemon:
        await daemon.serves()
        url = f"http://{daemon.address('rest')}/topics"
        async with aiohttp.ClientSession() as http:

            async def asked(number: int) -> int:
                async with http.get(url, headers={"X-Forwarded-For": f"10.0.0.{number}"}) as answer:
                    return answer.status

            statuses = await asyncio.gather(*(asked(number) for number in range(250)))

            async def served() -> bool:
                return await asked(0) == 200

            await eventually(served)
        assert set(statuses) == {200, 429}
        daemon.process.terminate()
        assert await daemon.ended() == 0
    addresses = {json.loads(line)["address"].partition(":")[0] for line in (tmp_path / "access.log").open()}
    assert addresses == {"127.0.0.1"}


TLS_CONFIG = """\
grpc_addr: 127.0.0.1:0
tcp_addr: 127.0.0.1:0
server: {{front: envoy}}
tls: {{certificate_path: {folder}/cert.pem, key_path: {folder}/key.pem, client_ca_path: {folder}/ca.pem}}
auth: {{enabled: true, certificates: true}}
access_log: {{path: {folder}/access.log}}
rules:
  - {{who: ["cert:shop"], verbs: [produce], topics: [orders]}}
"""


async def test_callers_are_known_by_their_certificates_and_certificates_are_read_again(
    tmp_path: Path,
) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")

    def certify() -> None:
        made = ca.issue_cert("localhost", "127.0.0.1")
        (tmp_path / "cert.pem").write_bytes(b"".join(each.bytes() for each in made.cert_chain_pems))
        made.private_key_pem.write_to_path(tmp_path / "key.pem")

    certify()
    shop = ca.issue_cert("shop.example", common_name="shop")
    chain = b"".join(each.bytes() for each in shop.cert_chain_pems)
    (tmp_path / "shop.pem").write_bytes(shop.private_key_pem.bytes() + chain)
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    nobody = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    context.load_cert_chain(tmp_path / "shop.pem")
    async with running(tmp_path, TLS_CONFIG.format(folder=tmp_path), "--sandbox") as daemon:
        await daemon.serves()
        address = daemon.address("rest")
        url = f"https://{address}/topics"
        forged = {"Content-Type": "text/plain", "X-Forwarded-Client-Cert": 'Cert="x"'}
        async with aiohttp.ClientSession() as http:

            async def produced(topic: str) -> int:
                async with http.post(
                    f"{url}/{topic}/messages?sync", data="x", headers=forged, ssl=context
                ) as answer:
                    return answer.status

            assert [await produced("orders"), await produced("others")] == [200, 403]
            ways = (("https", ""), ("http", ""), ("", "http"), ("http", "https"))
            seen = [await asyncio.to_thread(_status_of, address, context, *way) for way in ways]
            assert dict(zip(ways, seen, strict=True)) == dict.fromkeys(ways, 403)
            with pytest.raises(aiohttp.ClientError):
                await http.get(url, ssl=nobody)
        credentials = grpc.ssl_channel_credentials(ca.cert_pem.bytes(), shop.private_key_pem.bytes(), chain)
        async with grpc.aio.secure_channel(daemon.address("grpc"), credentials) as channel:
            stub = KafkaPixyStub(channel)
            assert (await stub.Produce(pb.ProdRq(topic="orders", message=b"x"))).offset >= 0
            with pytest.raises(grpc.aio.AioRpcError, match="cert:shop may not produce topic others"):
                await stub.Produce(pb.ProdRq(topic="others", message=b"x"))

        async def serial() -> bytes | None:
            host, _, port = address.rpartition(":")
            _, writer = await asyncio.open_connection(host, int(port), ssl=context)
            found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            writer.close()
            return found

        before = await serial()
        certify()
        daemon.process.send_signal(signal.SIGHUP)
        await eventually(serial, lambda found: found != before)
    assert not [line for line in daemon.lines if "reload" in line and " info " not in line]
    lines = (tmp_path / "access.log").read_text().splitlines()
    assert [(each["status"], each["principal"]) for each in map(json.loads, lines)] == [
        (200, "cert:shop"),
        *[(403, "cert:shop")] * 5,
        ("OK", "cert:shop"),
        ("PERMISSION_DENIED", "cert:shop"),
    ]


def _status_of(address: str, context: ssl.SSLContext, scheme: str, header: str) -> int:
    """Ask for the topic ``others``; return the answer's status. Whatever a client says of its scheme, the connection has TLS.

    Args:
        scheme: in the request's target, as clients of proxies send it (RFC 9112, 3.2.2); empty for a path alone.
        header: X-Forwarded-Proto; empty for none.
    """
    host, _, port = address.rpartition(":")
    origin = f"{scheme}://{address}" if scheme else ""
    head = f"GET {origin}/topics/others/offsets?group=g HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n"
    more = f"X-Forwarded-Proto: {header}\r\n" if header else ""
    with (
        socket.create_connection((host, int(port)), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname=host) as tls,
    ):
        tls.sendall(f"{head}{more}\r\n".encode())
        return int(tls.recv(4096).split(b" ")[1])
