"""The console's application: pages, JSON, extensions, refused hosts and origins, mounting."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from actors import Actor, ActorSystem
from actors.console import BadQuery, Extension, Link, View, application, serve


class Worker(Actor):
    def on_receive(self, message: Any) -> Any:
        return message


@pytest_asyncio.fixture
async def system() -> AsyncIterator[ActorSystem]:
    async with ActorSystem("shop") as system:
        yield system


@pytest_asyncio.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as client:
        yield client


async def broken(_query: Any) -> Any:
    raise RuntimeError("secret")


async def lag(query: Any) -> Any:
    if "group" not in query:
        raise BadQuery("lag needs a group")
    return {"group": query["group"], "lag": 7}


def extension(folder: Path) -> Extension:
    (folder / "lag.js").write_text("export default () => {};\n")
    (folder / ".secret").write_text("no")
    return Extension(
        "kafka",
        files=folder,
        views=[View("lag", "Lag", "lag.js", hint="How far behind?")],
        sources={"lag": lag, "broken": broken},
        links=[Link("Metrics", "/metrics")],
        title="Kafka",
        parts={"actor": "lag.js"},
    )


async def test_the_page_its_files_and_its_policy(system: ActorSystem, client: aiohttp.ClientSession) -> None:
    async with serve(system) as address:
        async with client.get(address) as answer:
            page = await answer.text()
            policy = answer.headers["Content-Security-Policy"]
        assert "page/main.js" in page and "<script>" not in page and "style=" not in page
        assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
        async with client.get(f"{address}page/main.js") as answer:
            assert answer.content_type == "text/javascript"
            tag = answer.headers["ETag"]
        async with client.get(f"{address}page/main.js", headers={"If-None-Match": tag}) as answer:
            assert answer.status == 304
        for name in ("../app.py", "%2e%2e/app.py", "views", "nothing.js", "/etc/passwd", "..%2fapp.py"):
            async with client.get(f"{address}page/{name}") as answer:
                assert answer.status == 404, name


async def test_an_extension_adds_views_sources_and_links(
    system: ActorSystem, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    async with serve(system, extensions=[extension(tmp_path)]) as address:
        async with client.get(f"{address}boot.json") as answer:
            (told,) = (await answer.json())["extensions"]
        assert told["views"][0] == {
            "name": "lag", "title": "Lag", "hint": "How far behind?", "hidden": False, "parent": "", "module": "ext/kafka/lag.js",
        }  # fmt: skip
        assert told["parts"] == [{"view": "actor", "module": "ext/kafka/lag.js"}]
        assert told["links"] == [{"title": "Metrics", "href": "/metrics"}]
        async with client.get(f"{address}ext/kafka/lag.js") as answer:
            assert "export default" in await answer.text()
        async with client.get(f"{address}api/kafka.lag?group=billing") as answer:
            assert (await answer.json())["data"] == {"group": "billing", "lag": 7}
        async with client.get(f"{address}api/kafka.lag") as answer:
            assert (await answer.json())["error"] == "lag needs a group"
        async with client.get(f"{address}api/kafka.broken") as answer:
            assert "secret" not in (text := await answer.text()) and "RuntimeError" in text
        for missing in ("api/kafka.no", "ext/kafka/.secret", "ext/no/lag.js"):
            async with client.get(f"{address}{missing}") as answer:
                assert answer.status == 404, missing


@pytest.mark.parametrize(
    "bad",
    [
        {"name": "Kafka"},
        {"name": "a", "sources": {"../x": lag}},
        {"name": "a", "links": [Link("x", "javascript:alert(1)")]},
        {"name": "a", "links": [Link("x", " java\tscript:alert(1)")]},
        {"name": "a", "views": [View("a", "A", "a.js")]},
        {"name": "a", "files": Path(), "views": [View("a", "A", "../a.js")]},
        {"name": "a", "files": Path(), "views": [View("a", "A", "a.js", hidden=True, parent="../b")]},
        {"name": "a", "files": Path(), "parts": {"actor": "../a.js"}},
        {"name": "a", "files": Path(), "parts": {"../actor": "a.js"}},
        {"name": "a", "parts": {"actor": "a.js"}},
    ],
    ids=lambda bad: str(sorted(bad)),
)
def test_bad_extensions_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"no name|no file|no link"):
        Extension(**bad)


async def test_names_are_unique(system: ActorSystem, tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("")
    tree = Extension("a", files=tmp_path, views=[View("tree", "Tree", "a.js")])
    with pytest.raises(ValueError, match="two views of the console are named tree"):
        application(system, extensions=[tree])
    with pytest.raises(ValueError, match="two extensions of the console are named b"):
        application(system, extensions=[Extension("b"), Extension("b")])


async def test_other_hosts_and_origins_are_refused(
    system: ActorSystem, client: aiohttp.ClientSession
) -> None:
    async with serve(system) as address:
        own = address.removeprefix("http://").rstrip("/")
        for headers, status in (
            ({"Host": "evil.example"}, 403),
            ({"Host": f"localhost:{own.rpartition(':')[2]}"}, 200),
            ({"Origin": "http://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": f"http://{own}"}, 200),
        ):
            async with client.get(f"{address}api/summary", headers=headers) as answer:
                assert answer.status == status, headers
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await client.ws_connect(f"{address}stream", headers={"Origin": "http://evil.example"})


async def test_mounted_in_another_application(system: ActorSystem, client: aiohttp.ClientSession) -> None:
    app = web.Application()
    app.add_subapp("/console", application(system))
    async with TestServer(app) as server:
        async with client.get(server.make_url("/console")) as answer:
            assert answer.url.path == "/console/" and "page/main.js" in await answer.text()
        async with client.get(server.make_url("/console/api/actors")) as answer:
            assert (await answer.json())["data"]["total"] == 0
