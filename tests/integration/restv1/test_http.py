"""The HTTP layer on real sockets: which API answers, clients' habits, and the limits."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import socket
from typing import Any

import pytest

from pixy.api.restv1.app import RestV1
from tests.integration.restv1.support import (
    BINARY_V1,
    BINARY_V2,
    JSON_V2,
    V1,
    V2,
    ask,
    b64,
    error,
    fetch,
    produce,
)
from tests.kafka.cluster import Cluster
from tests.support import Daemon, make_config, serving


async def raw(daemon: Daemon, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send raw bytes on a new connection and return the answer, which must have a Content-Length."""
    host, port = daemon.engine.addresses["rest"].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(request)
        async with asyncio.timeout(20):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {
                name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)
            }
            body = await reader.readexactly(int(headers.get("content-length", "0")))
    finally:
        writer.close()
    return int(head[0].split()[1]), headers, body


# -- whose request it is --------------------------------------------------------------------------


async def test_vnd_kafka_decides_where_both_apis_have_the_path(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    pixy_topic = {"config": {"version": 1, "config": {}}}
    async with serving(make_config(kafka.bootstrap())) as daemon:
        for headers, ours in (
            ({}, False),
            ({"accept": "*/*"}, False),
            ({"accept": "application/json"}, False),
            ({"accept": "*/*", "content_type": JSON_V2}, True),
            ({"accept": V1}, True),
            ({"accept": "application/json, application/vnd.kafka+json; q=0.1"}, True),
        ):
            headers = {"accept": None, **headers}
            one = await ask(daemon, "GET", f"/topics/{name}", **headers)
            assert (one.json == pixy_topic) is not ours and ("name" in one.json) is ours, headers
            everything = await ask(daemon, "GET", "/topics", **headers)
            assert everything.body.startswith(b"[\n  ") is not ours
        # Below the prefix, every request is for the v1/v2 API.
        assert "name" in (await ask(daemon, "GET", f"/rest/topics/{name}", accept=None)).json
        assert (
            "name" in (await ask(daemon, "GET", f"/rest/clusters/default/topics/{name}/", accept=None)).json
        )


async def test_kafka_pixy_s_own_api_answers_as_before(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        for method, path, status, body in (
            ("GET", "/nothing", 404, b"404 page not found\n"),
            ("GET", "/topics/", 404, b"404 page not found\n"),
            ("GET", f"/topics/{name}/", 404, b"404 page not found\n"),
            ("PUT", f"/topics/{name}/messages", 405, b""),
            ("POST", "/topics", 405, b""),
            ("HEAD", "/topics", 405, b""),
            ("POST", f"/topics/{name}/", 404, b"404 page not found\n"),
            ("GET", f"/topics/{name}/acks", 405, b""),
            ("GET", "/clusters/default", 404, b"404 page not found\n"),
        ):
            answer = await ask(daemon, method, path, accept="*/*")
            assert (answer.status, answer.body) == (status, body), (method, path)
        refused = await ask(daemon, "POST", f"/topics/{name}", b"x", accept=None, content_type="text/plain")
        assert (refused.status, refused.body) == (405, b"")
        made = await ask(
            daemon, "POST", f"/topics/{name}/messages?sync", b"x", content_type="text/plain", accept=V1
        )
        assert made.json == {"partition": 0, "offset": 0}, (
            "vnd.kafka changes nothing on a path that is Kafka-Pixy's alone"
        )
        unknown = await ask(daemon, "GET", f"/clusters/nowhere/topics/{name}", accept=None)
        assert (unknown.status, unknown.error) == (400, "proxy `nowhere` does not exist")


async def test_a_separate_address(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap())
    config.rest.addr = "127.0.0.1:0"
    async with serving(config) as daemon:
        url = f"http://{daemon.engine.addresses['rest-v1']}"
        async with daemon.http.post(f"{url}/topics/{name}", data=b'{"records":[{"value":"YQ=="}]}') as answer:
            assert (
                answer.status == 200 and (await answer.json(content_type=None))["offsets"][0]["offset"] == 0
            )
        async with daemon.http.get(f"{url}/topics/{name}/partitions/0?offset=0") as answer:
            assert answer.headers["Content-Type"] == BINARY_V1
        async with daemon.http.get(f"{url}/_ping") as answer:
            assert answer.status == 404 and (await answer.json(content_type=None))["error_code"] == 404


async def test_several_clusters_behind_one_address(
    kafka: Cluster, creating_kafka: Cluster, name: str
) -> None:
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap())
    config.proxies["other"] = make_config(creating_kafka.bootstrap()).proxies["default"]
    async with serving(config) as daemon:
        await produce(daemon, name, [{"value": b64(b"here")}])
        made = await ask(
            daemon,
            "POST",
            f"/clusters/other/topics/{name}",
            {"records": [{"value": b64(b"there")}]},
            content_type=BINARY_V2,
        )
        assert made.status == 200, "that broker creates topics automatically"
        there = made.json["offsets"][0]["partition"]
        for cluster, partition, value in (("default", 0, b"here"), ("other", there, b"there")):
            path = f"/clusters/{cluster}/topics/{name}/partitions/{partition}?offset=0"
            answer = await ask(daemon, "GET", path, accept=BINARY_V2)
            assert [record["value"] for record in answer.json] == [b64(value)]


# -- what clients send ----------------------------------------------------------------------------


async def test_chunked_bodies(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)

    async def chunks():  # type: ignore[no-untyped-def]
        for piece in (b'{"rec', b'ords":[{"value":', b'"YQ=="}]}'):
            yield piece

    async with serving(make_config(kafka.bootstrap())) as daemon:
        answer = await daemon.call(
            "POST", f"/topics/{name}", data=chunks(), headers={"Content-Type": BINARY_V2, "Accept": V2}
        )
        assert answer.status == 200


@pytest.mark.parametrize("body", [b"{}", b'""', b"", b"null", b"not even JSON"])
async def test_a_body_on_get_is_ignored(kafka: Cluster, name: str, body: bytes) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        for accept, content_type in (
            (V2, V2),
            (None, None),
            ("*/*", "application/json"),
            (None, "text/plain"),
        ):
            for path in ("/brokers", f"/topics/{name}/partitions/0/"):
                answer = await ask(daemon, "GET", path, body, accept=accept, content_type=content_type)
                assert answer.status == 200, (path, accept, content_type)


async def test_errors_have_the_requested_type(kafka: Cluster, name: str) -> None:
    async with serving(make_config(kafka.bootstrap())) as daemon:
        for accept, content_type in (
            (V1, V1),
            (V2, V2),
            ("application/json", "application/json"),
            (None, "application/json"),
            ("application/vnd.kafka+json", "application/vnd.kafka+json"),
            ("text/html", "application/json"),
        ):
            answer = await ask(daemon, "GET", f"/topics/{name}/partitions/0", accept=accept)
            assert answer.headers["Content-Type"] == content_type
            assert answer.status == (406 if accept == "text/html" else 404)


async def test_negotiation_of_a_produce(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        path, body = f"/topics/{name}", {"records": [{"value": "YQ=="}]}
        for accept, wanted in (
            ("*/*", V2),
            (None, V2),
            (V1, V1),
            (f"{V1}, application/vnd.kafka+json; q=0.9, application/json; q=0.8", V1),
            ("application/json", "application/json"),
            (BINARY_V2, BINARY_V2),
        ):
            answer = await ask(daemon, "POST", path, body, accept=accept, content_type=BINARY_V2)
            assert (answer.status, answer.headers["Content-Type"]) == (200, wanted), accept
        refused = await ask(daemon, "POST", path, body, accept="application/xml", content_type=BINARY_V2)
        assert error(refused)[:2] == (406, 406)
        refused = await ask(daemon, "POST", path, body, accept=V2, content_type="text/plain")
        assert error(refused)[:2] == (415, 415)
        assert await fetch(daemon, name, 0, 5) and len(await fetch(daemon, name, 0, 0)) == 6, (
            "nothing of these two"
        )


async def test_the_kafka_error_code_is_configurable(kafka: Cluster, name: str) -> None:
    from pixy.errors import KafkaError

    for code in (50001, 50002):
        config = make_config(kafka.bootstrap())
        config.rest.kafka_error_code = code
        async with serving(config) as daemon:

            async def fails() -> Any:
                raise KafkaError("kafka server: no", 42, "INVALID_REQUEST")

            daemon.engine.cluster().brokers = fails  # type: ignore[method-assign]
            assert error(await ask(daemon, "GET", "/brokers")) == (500, code, "Kafka error: kafka server: no")


# -- gzip and CORS --------------------------------------------------------------------------------


async def test_gzip(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap())
    config.rest.gzip = True
    async with serving(config) as daemon:
        body = gzip.compress(json.dumps({"records": [{"value": b64(b"x" * 100)}] * 2000}).encode())
        answer = await ask(
            daemon, "POST", f"/topics/{name}", body, content_type=BINARY_V2, Content_Encoding="gzip"
        )
        assert answer.status == 200 and "Content-Encoding" not in answer.headers
        host = daemon.engine.addresses["rest"]
        for accepts, packed in (
            ("gzip", True),
            ("deflate, gzip;q=0.5", True),
            ("identity", False),
            ("gzip;q=0", False),
        ):
            status, headers, got = await raw(
                daemon,
                (
                    f"GET /topics/{name}/partitions/0?offset=0 HTTP/1.1\r\nHost: {host}\r\nAccept: {BINARY_V2}\r\n"
                    f"Accept-Encoding: {accepts}\r\n\r\n"
                ).encode(),
            )
            assert status == 200 and (headers.get("content-encoding") == "gzip") is packed
            assert headers["vary"] == "Accept-Encoding"
            assert len(json.loads(gzip.decompress(got) if packed else got)) == 2000
        bad = await ask(
            daemon, "POST", f"/topics/{name}", b"no", content_type=BINARY_V2, Content_Encoding="gzip"
        )
        assert error(bad)[:2] == (400, 400)
        unknown = await ask(
            daemon, "POST", f"/topics/{name}", b"no", content_type=BINARY_V2, Content_Encoding="br"
        )
        assert error(unknown)[:2] == (415, 415)
        bomb = gzip.compress(b" " * 17_000_000)
        assert (
            error(
                await ask(
                    daemon, "POST", f"/topics/{name}", bomb, content_type=BINARY_V2, Content_Encoding="gzip"
                )
            )[0]
            == 413
        )


async def test_answers_are_not_compressed_unless_configured(kafka: Cluster, name: str) -> None:
    async with serving(make_config(kafka.bootstrap())) as daemon:
        status, headers, _ = await raw(
            daemon, b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n"
        )
        assert status == 200 and "content-encoding" not in headers


async def test_cors(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap())
    config.rest.cors_origins = ["https://console.example"]
    async with serving(config) as daemon:
        asked = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "content-type"}
        answer = await ask(
            daemon,
            "OPTIONS",
            f"/topics/{name}/partitions/0",
            Origin="https://console.example",
            accept=V2,
            **asked,
        )
        assert (
            answer.status == 204
            and answer.headers["Access-Control-Allow-Origin"] == "https://console.example"
        )
        assert "POST" in answer.headers["Access-Control-Allow-Methods"]
        assert answer.headers["Access-Control-Allow-Headers"] == "content-type"
        answer = await ask(daemon, "GET", "/brokers", Origin="https://console.example")
        assert (
            answer.headers["Access-Control-Allow-Origin"] == "https://console.example"
            and answer.headers["Vary"] == "Origin"
        )
        answer = await ask(daemon, "GET", f"/topics/{name}x/partitions", Origin="https://console.example")
        assert answer.status == 404 and "Access-Control-Allow-Origin" in answer.headers, (
            "a page may read errors, too"
        )
        for origin in ("https://evil.example", "https://console.example.evil"):
            answer = await ask(daemon, "GET", "/brokers", Origin=origin)
            assert "Access-Control-Allow-Origin" not in answer.headers
    async with serving(make_config(kafka.bootstrap())) as daemon:
        answer = await ask(daemon, "GET", "/brokers", Origin="https://console.example")
        assert "Access-Control-Allow-Origin" not in answer.headers
        refused = await ask(daemon, "OPTIONS", "/brokers", Origin="https://console.example", **asked)
        assert refused.status == 405


# -- limits ---------------------------------------------------------------------------------------


def api_of(daemon: Daemon) -> RestV1:
    """The API that the daemon's listeners share."""
    [found] = [
        each for each in gc.get_objects() if isinstance(each, RestV1) and each._engine is daemon.engine
    ]
    return found


async def test_peers_defect_excess_load_is_503_and_takes_no_memory(kafka: Cluster, name: str) -> None:
    """Elsewhere big topics end in an out-of-memory kill."""
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap())
    config.rest.max_buffered_bytes = 1_048_576
    async with serving(config) as daemon:
        body = {"records": [{"value": b64(b"x" * 600_000)}]}
        answer = await ask(daemon, "POST", f"/topics/{name}", body, content_type=BINARY_V2)
        assert answer.status == 200
        answer = await ask(
            daemon, "POST", f"/topics/{name}", {"records": body["records"] * 2}, content_type=BINARY_V2
        )
        assert error(answer)[:2] == (503, 503) and "rest.max_buffered_bytes" in error(answer)[2]
        assert answer.headers["Retry-After"] == "1"
        assert (await ask(daemon, "POST", f"/topics/{name}", body, content_type=BINARY_V2)).status == 200
        status, headers, _ = await raw(
            daemon,
            (
                f"POST /topics/{name} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {BINARY_V2}\r\nContent-Length: 1600000\r\n\r\n"
            ).encode()
            + b"[" * 1_200_000,
        )
        assert (status, headers["retry-after"]) == (503, "1"), "refused before all of it is read"
        many = await ask(daemon, "GET", f"/topics/{name}/partitions/0/records?offset=0&max_bytes=9999999")
        assert error(many)[:2] == (503, 503), "two records exceed the byte budget"
        assert len(await fetch(daemon, name, 0, 0, query="&max_bytes=1")) == 1
        api = api_of(daemon)
        assert api.budget.held == 0 and api.budget.refused == 3 and api.budget.most <= 2_000_000


async def test_bytes_that_a_slow_client_has_not_taken_count(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        for _ in range(8):
            await produce(daemon, name, [{"value": b64(b"x" * 900_000)}])
        api = api_of(daemon)
        host, port = daemon.engine.addresses["rest"].split(":")
        lazy = socket.socket()
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(lazy, (host, int(port)))
        await loop.sock_sendall(
            lazy,
            (
                f"GET /topics/{name}/partitions/0/records?offset=0&max_bytes=9999999 HTTP/1.1\r\nHost: localhost\r\n\r\n"
            ).encode(),
        )
        async with asyncio.timeout(20):
            while api.budget.held < 8 * 900_000:
                await asyncio.sleep(0.01)
            got = 0
            while got < 8 * 1_200_000:
                got += len(await loop.sock_recv(lazy, 1 << 20))
            while api.budget.held:
                await asyncio.sleep(0.01)
        lazy.close()


async def test_too_many_requests_at_once(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap())
    config.max_concurrent_requests = 1
    async with serving(config) as daemon:
        path = f"/topics/{name}/partitions/0/records?offset=0&timeout=1500"
        answers = await asyncio.gather(*[ask(daemon, "GET", path) for _ in range(3)])
        assert sorted(answer.status for answer in answers) == [200, 429, 429]
        assert all(
            "max_concurrent_requests" in error(answer)[2] for answer in answers if answer.status == 429
        )


async def test_probes_and_the_documents(kafka: Cluster) -> None:
    async with serving(make_config(kafka.bootstrap())) as daemon:
        assert (await ask(daemon, "GET", "/healthy", accept=None)).json == {"status": "healthy"}
        assert (await ask(daemon, "GET", "/ready", accept=None)).json == {"status": "ready"}
        page = await ask(daemon, "GET", "/docs", accept="text/html")
        assert page.status == 200 and page.headers["Content-Type"] == "text/html; charset=utf-8"
        assert b"//" not in page.body, "the page loads nothing from elsewhere"
        assert "connect-src 'self'" in page.headers["Content-Security-Policy"]
        assert (await ask(daemon, "GET", "/openapi.json", accept=None)).json["openapi"] == "3.1.0"
        daemon.engine.stopping = True
        assert error(await ask(daemon, "GET", "/ready"))[:2] == (503, 503)
        assert (await ask(daemon, "GET", "/healthy")).status == 200
        daemon.engine.stopping = False
