"""What every HTTP answer says, and targets as clients of proxies send them."""

from __future__ import annotations

import base64
import json

from pixy.config import App
from tests.integration.edge.raw import Raw
from tests.integration.edge.test_forwarding import V2, name_owned_by, pair
from tests.support import serving

BINARY = "application/vnd.kafka.binary.v2+json"


async def test_no_answer_names_versions(config: App, name: str) -> None:
    async with serving(config) as daemon:
        records = json.dumps({"records": [{"value": base64.b64encode(b"x").decode()}]}).encode()
        answers = [
            await daemon.post(f"/topics/{name}", records, headers={"Content-Type": BINARY}),
            await daemon.post(f"/topics/{name}/messages?sync", b"x"),
            await daemon.get(
                f"/topics/{name}/partitions/0/records?offset=0&timeout=0", headers={"Accept": BINARY}
            ),
        ]
        assert [each.status for each in answers] == [200, 200, 200]
        for path in ("/_ping", "/healthy", "/ready", "/brokers", "/topics", "/nothing", "//brokers", "/docs"):
            answers.append(await daemon.get(path))
        assert {tuple(each.headers.getall("Server")) for each in answers} == {("kafka-pixy",)}
        async with await Raw.to(daemon) as raw:
            await raw.send("nonsense\r\n\r\n")
            head = (await raw.rest()).partition(b"\r\n\r\n")[0]
            assert b"Server: kafka-pixy" in head and b"aiohttp" not in head


async def test_the_answer_to_a_malformed_request_repeats_nothing_of_it(config: App) -> None:
    head = "GET /topics HTTP/1.1\r\nHost: localhost\r\n"
    wrong = {
        "a blank before the colon": head + "X-API-Key : kp_secret\r\n\r\n",
        "a folded line": head + "X-API-Key:\r\n kp_secret\r\n\r\n",
        "a long line": f"{head}X-API-Key: kp_secret{'x' * 70_000}\r\n\r\n",
        "a NUL": head + "X-API-Key: kp_secret\0\r\n\r\n",
        "twice": head + "Content-Length: 1\r\nX-API-Key: kp_secret\r\nContent-Length: kp_secret\r\n\r\n",
        "a target": "GET kp_secret HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "a method": "kp_secret / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "a version": "GET / HTTP/kp_secret\r\nHost: localhost\r\n\r\n",
    }
    async with serving(config) as daemon:
        for name, request in wrong.items():
            async with await Raw.to(daemon) as raw:
                await raw.send(request)
                answer = await raw.rest()
                assert b" 400 " in answer and b"kp_secret" not in answer, (name, answer)
                assert answer.rpartition(b"\r\n\r\n")[2].strip(), name


async def test_a_target_with_scheme_and_host_is_its_path(config: App, name: str) -> None:
    async with pair(config) as (one, two), await Raw.to(one) as raw:
        assert await raw.ask("http://localhost/_ping") == (200, b"pong")
        assert (await raw.ask("HTTP://localhost:1/brokers?x=y"))[0] == 200
        assert (await raw.ask("http://localhost//brokers"))[0] == 301
        chosen = name_owned_by("b", name)
        status, body = await raw.ask(
            f"http://localhost/consumers/{name}",
            "POST",
            json.dumps({"name": chosen}).encode(),
            Content_Type=V2,
        )
        path = f"/consumers/{name}/instances/{chosen}"
        assert (status, json.loads(body).get("base_uri")) == (200, f"http://localhost{path}"), body
        assert (await two.get(f"{path}/subscription", headers={"Accept": V2})).status == 200
