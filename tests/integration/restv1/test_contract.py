"""The daemon on real Kafka against its OpenAPI document: what it answers is documented, and nothing
that the document allows, or forbids, makes a 5xx.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from pixy.cli.serve import allow_open_files
from tests.effort import LONG
from tests.integration.restv1.contract import accepts, check_answer
from tests.integration.restv1.support import BINARY_V1, BINARY_V2, JSON_V2, V1, V2, ask
from tests.kafka.cluster import Cluster
from tests.support import make_config, serving

_KEPT = ("acks channel missing for ", "kafka server: Message was too large")
"""The Go original answers these with 500, and so does this daemon."""


def no_unexpected_5xx(_context: Any, response: Any, case: Any) -> None:
    """Allow a server error only where the Go original answers the same."""
    if response.status_code >= 500 and not response.json().get("error", "").startswith(_KEPT):
        raise AssertionError(f"{case.method} {response.request.url}: {response.status_code} {response.text}")


CHECKS = [no_unexpected_5xx, status_code_conformance, content_type_conformance, response_schema_conformance]
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
        for parameter, value in (
            ("topic", name),
            ("cluster", "default"),
            ("consumerGroup", name),
            ("instance", "c"),
        ):
            # Mostly existing names, so that requests get beyond the 404.
            known = document["components"]["parameters"][parameter]
            known["schema"] = {"enum": [value, "absent"]}
        schema = schemathesis.openapi.from_dict(document)
        schema.config.update(base_url=f"http://{daemon.engine.addresses['rest']}")
        headers = {"Accept": "application/vnd.kafka.v2+json, */*;q=0.1"} if vendor else {}
        attacked = []
        for found in schema.get_all_operations():
            operation = found.ok()
            if operation.path.startswith("/clusters/") and operation.method != "get":
                continue  # the same handlers again
            attacked.append(operation.label)
            # The full set ran without the header, which selects the handler on a few paths only.
            await asyncio.to_thread(_attack, operation, headers, EXAMPLES // 3 if vendor else EXAMPLES)
        assert len(attacked) > 25


def _attack(operation: Any, headers: dict[str, str], examples: int) -> None:
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
        if (
            not operation.body
            and not any(each for each in (operation.query, operation.path_parameters))
            and mode is GenerationMode.NEGATIVE
        ):
            continue  # no input to invalidate
        try:
            strategy = operation.as_strategy(generation_mode=mode)
        except Exception as error:
            raise AssertionError(f"{operation.label}: {error}") from error

        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        )
        @given(strategy)
        def attack(case: Any) -> None:
            # A value that is not a string is put into the path as it is: "?" would end it, and what
            # answers would be another operation.
            assume(not any({"?", "#"} & set(str(each)) for each in (case.path_parameters or {}).values()))
            case.call_and_validate(headers=headers, checks=CHECKS, timeout=30)

        attack()


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
