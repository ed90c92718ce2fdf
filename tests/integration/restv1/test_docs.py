"""Run each curl line of docs/rest.md against a real daemon and compare the answer with the one shown."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import subprocess
from typing import Any
from urllib.parse import urlsplit

import pytest

from pixy.api.openapi.document import load
from tests.kafka.cluster import Cluster
from tests.support import ROOT, make_config, serving

PAGE = (ROOT / "docs" / "rest.md").read_text()
_EXAMPLE = re.compile(
    r"^```sh\n(?P<line>.*?)^```\n```(?P<kind>\w+)(?: (?P<status>\d+))?\n(?P<answer>.*?)^```$", re.M | re.S
)
_CURL = re.compile(r"curl (?:-i )?(?:-X (?P<method>\w+) )?'?localhost:19092(?P<path>[^\s?'|`]*)")
_VARIES = {"timestamp", "client", "groups", "time", "uptime", "version"}

EXAMPLES = [each.groupdict() for each in _EXAMPLE.finditer(PAGE)]


def test_every_endpoint_has_a_curl_line() -> None:
    from tests.contract import operation_of

    shown = set()
    for each in re.finditer(_CURL, PAGE):
        path = urlsplit(each["path"] or "/").path
        # A varying segment is written as <name> and matches any.
        path = re.sub(r"\$\w+|<\w+>", "x", path)
        shown.add(operation_of(each["method"] or "GET", path)["operationId"])
    wanted = {
        item[method]["operationId"]
        for path, item in load()["paths"].items()
        if not path.startswith("/clusters/")
        for method in ("get", "post", "put", "patch", "delete")
        if method in item
    }
    assert wanted == shown


def test_every_block_is_an_example() -> None:
    assert len(EXAMPLES) == PAGE.count("```sh\n") >= 25


def plain(document: Any) -> Any:
    """A document without the values that differ between runs."""
    if isinstance(document, dict):
        return {key: "varies" if key in _VARIES else plain(value) for key, value in document.items()}
    if isinstance(document, list):
        return [plain(each) for each in document]
    return document


@pytest.mark.skipif(shutil.which("curl") is None, reason="!!! curl is missing: docs/rest.md is not run !!!")
async def test_the_examples_of_the_page() -> None:
    cluster = await asyncio.to_thread(Cluster, brief=True)
    try:
        await asyncio.to_thread(cluster.create_topic, "orders", 2)
        await asyncio.to_thread(cluster.create_topic, "mails", 1)
        config = make_config(cluster.bootstrap(), retry_backoff=0.1)
        config.proxies["default"].client_id = "client"
        async with serving(config) as daemon:
            host, _, port = daemon.engine.addresses["rest"].rpartition(":")
            of_instances = next(at for at, each in enumerate(EXAMPLES) if "/consumers/" in each["line"])
            for example in EXAMPLES[:of_instances]:
                await check(example, f"{host}:{port}")
            # A reader of both partitions gets the records of either first: leave those that the page shows.
            await asyncio.to_thread(cluster.delete_records, "orders", 1, 2)
            for example in EXAMPLES[of_instances:]:
                await check(example, f"{host}:{port}")
    finally:
        await asyncio.to_thread(cluster.close)


async def check(example: dict[str, str], address: str) -> None:
    line = example["line"].replace("localhost:19092", address)
    if example["status"]:
        line = line.rstrip("\n") + " -w '\\n%{http_code}'"
    done = await asyncio.to_thread(
        subprocess.run,
        ["bash", "-c", line.replace("curl ", "curl -sS ", 1)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    where = example["line"]
    if not example["status"]:
        assert done.stdout.replace(address, "localhost:19092").strip() == example["answer"].strip(), where
        return
    body, _, status = done.stdout.rpartition("\n")
    assert status == example["status"], f"{where}{done.stdout}{done.stderr}"
    answer = body.replace(address, "localhost:19092").replace(f"{socket.gethostname()}:", "localhost:")
    expected = example["answer"].strip()
    if not expected:
        assert not answer, where
        return
    assert plain(json.loads(answer)) == plain(json.loads(expected)), f"{where}{answer}"
