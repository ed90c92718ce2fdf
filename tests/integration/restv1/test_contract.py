"""The daemon on real Kafka against its OpenAPI document: what it answers is documented, and nothing
that the document allows, or forbids, makes a 5xx.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit

import pytest
from schemathesis.generation import GenerationMode

from pixy.cli.open_files import allow_open_files
from tests.contract import accepts, check_answer
from tests.effort import LONG
from tests.fuzz.contract import Contract
from tests.integration.restv1.support import BINARY_V1, BINARY_V2, JSON_V2, V1, V2, ask
from tests.kafka.cluster import Cluster
from tests.support import make_config, serving

EXAMPLES = 15 if LONG else 6
"""Requests of each operation, valid and invalid ones each."""


def config_for_attack(kafka: Cluster) -> Any:
    """Short waits, because these tests are not about waiting."""
    config = make_config(
        kafka.bootstrap(),
        long_polling_timeout=0.05,
        join_timeout=0.05,
        max_groups=100_000,
        retry_backoff=0.01,
    )
    instances = config.proxies["default"].instances
    instances.read_timeout = instances.max_read_timeout = instances.join_timeout = 0.05
    instances.max_instances = 100_000
    config.proxies["default"].admin_changes = False  # the topic stays
    config.rest.fetch_timeout = config.rest.max_fetch_timeout = 0.02
    return config


@pytest.mark.timeout(900)
@pytest.mark.parametrize("vendor", [False, True], ids=["kafka-pixy", "vnd.kafka"])
async def test_schemathesis_finds_no_5xx_and_nothing_undocumented(
    kafka: Cluster, name: str, vendor: bool
) -> None:
    """Send valid and invalid requests of every operation, with and without ``vnd.kafka`` in Accept."""
    kafka.create_topic(name, 2)
    allow_open_files()  # every group that schemathesis invents is a Kafka client
    async with serving(config_for_attack(kafka)) as daemon:
        document = (await ask(daemon, "GET", "/openapi.json")).json
        for path in ("", "/subscription"):
            await ask(
                daemon,
                "POST",
                f"/consumers/{name}{path and '/instances/c' + path}",
                {"name": "c", "topics": [name]},
            )
        contract = Contract(
            daemon.engine.addresses["rest"],
            document,
            {"topic": name, "cluster": "default", "consumerGroup": name, "instance": "c"},
            headers={"Accept": "application/vnd.kafka.v2+json, */*;q=0.1"} if vendor else {},
        )
        # The full set ran without the header, which selects the handler on a few paths only.
        examples = EXAMPLES // 3 if vendor else EXAMPLES
        for operation in contract.operations:
            for mode in GenerationMode:
                await asyncio.to_thread(contract.ask, operation, mode, examples)
        assert len(contract.operations) > 25


@pytest.mark.parametrize(
    ("content_type", "document"),
    [
        (BINARY_V2, {"records": [{"value": "YQ=="}]}),
        (BINARY_V1, {"records": [{"key": None, "value": None, "partition": None}]}),
        (BINARY_V2, {"records": []}),
        (BINARY_V2, {}),
        (BINARY_V2, {"records": [{"value": 1}]}),
        (BINARY_V2, {"records": [1]}),
        (JSON_V2, {"records": [{"value": 1, "headers": [{"key": "a", "value": None}]}]}),
        (JSON_V2, {"records": [{"value": 1, "headers": [{}]}]}),
        (JSON_V2, {"records": [{"timestamp": -1}]}),
        (JSON_V2, {"records": [{"partition": "0"}]}),
        (JSON_V2, {"records": None}),
        (V2, {"records": [{"value": ""}], "unknown": True}),
        (JSON_V2, {"records": [{"value": 1, "partition": 0.5}]}),
    ],
)
async def test_the_daemon_accepts_what_the_contract_accepts(
    kafka: Cluster, name: str, content_type: str, document: Any
) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        path = f"/topics/{name}"
        answer = await ask(daemon, "POST", path, document, content_type=content_type)
        assert accepts("POST", path, content_type, document) is (answer.status == 200), answer
        check_answer("POST", path, answer.status, answer.headers["Content-Type"], answer.json)


async def test_answers_match_the_contract(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with serving(config_for_attack(kafka)) as daemon:
        await ask(
            daemon, "POST", f"/topics/{name}", {"records": [{"value": "YQ=="}] * 3}, content_type=BINARY_V2
        )
        for path in (
            "/",
            "/brokers",
            "/topics",
            f"/topics/{name}",
            f"/topics/{name}/partitions",
            f"/topics/{name}/partitions/0",
            f"/topics/{name}/partitions/0?offset=0",
            f"/topics/{name}/partitions/0/records?offset=0",
            f"/topics/{name}/partitions/0/messages?offset=1",
            f"/consume/{name}/partitions/0?offset=2",
            f"/topics/{name}/partitions/0/offsets",
            f"/topics/{name}/partitions/9",
            f"/topics/{name}x/partitions",
            f"/topics/{name}/partitions/0?offset=9",
            "/healthy",
            "/ready",
            "/openapi.json",
            f"/topics/{name}/offsets?group=g",
            f"/topics/{name}/consumers",
            f"/topics/{name}/messages?group={name}",
            "/topics?withPartitions&withConfig",
            "/_ping",
            "/docs",
        ):
            for accept in (V1, V2, BINARY_V2, JSON_V2, "application/json", "*/*", "text/html", None):
                answer = await ask(daemon, "GET", path, accept=accept)
                if (path, accept) == ("/", "text/html"):  # a browser
                    assert (answer.status, answer.headers["Location"]) == (302, "docs")
                    continue
                kind = answer.headers["Content-Type"]
                document = json.loads(answer.body) if "json" in kind else answer.body.decode()
                check_answer("GET", urlsplit(path).path, answer.status, kind, document)
