"""The OpenAPI document is valid, and the routers have exactly its paths."""

from __future__ import annotations

import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from pixy.api.openapi import page
from pixy.api.openapi.document import as_json, load, resolve
from pixy.api.rest.router import ROUTES as PIXY
from pixy.api.restv1.app import make_routes
from tests.support import ROOT

_METHODS = {"get", "post", "put", "patch", "delete"}
_TEMPLATES = {
    "messages": "/topics/{topic}/messages",
    "acks": "/topics/{topic}/acks",
    "offsets": "/topics/{topic}/offsets",
    "consumers": "/topics/{topic}/consumers",
    "{topic}": "/topics/{topic}",
    "topics": "/topics",
    "_ping": "/_ping",
    "positions": "/topics/{topic}/positions",
    "groups": "/groups",
    "{group}": "/groups/{name}",
    "_status": "/_status",
}


def documented() -> set[tuple[str, str]]:
    return {
        (method.upper(), path)
        for path, item in load()["paths"].items()
        for method in item
        if method in _METHODS
    }


@pytest.mark.slow
def test_the_document_is_openapi_3_1() -> None:
    import schemathesis  # here, because collecting tests need not wait for it

    schema = schemathesis.openapi.from_dict(json.loads(as_json()))
    schema.validate()
    assert load()["openapi"] == "3.1.0"


def test_the_routers_and_the_document_have_the_same_paths() -> None:
    routes = {(route.method, route.template) for route in make_routes()}
    pixys = {(method, _TEMPLATES[name]) for method, name in PIXY}
    clustered = {
        (route.method, f"/clusters/{{cluster}}{route.template}") for route in make_routes() if route.clustered
    } | {
        (method, f"/clusters/{{cluster}}{path}")
        for method, path in pixys
        if path not in ("/_ping", "/_status")
    }
    assert documented() == routes | pixys | clustered


def test_every_operation_is_described() -> None:
    ids = []
    for path, item in load()["paths"].items():
        for method in _METHODS & set(item):
            operation = item[method]
            ids.append(operation["operationId"])
            assert operation["summary"] and operation["tags"], (method, path)
            named = set(re.findall(r"\{(\w+)\}", path))
            parameters = [
                resolve(load(), each)
                for each in (*item.get("parameters", ()), *operation.get("parameters", ()))
            ]
            assert named == {each["name"] for each in parameters if each["in"] == "path"}, (method, path)
    assert len(ids) == len(set(ids))
    known = {tag["name"] for tag in load()["tags"]}
    assert {
        tag
        for item in load()["paths"].values()
        for method in _METHODS & set(item)
        for tag in item[method]["tags"]
    } <= known


def test_every_operation_but_probes_names_the_credentials_and_the_refusals() -> None:
    document = load()
    schemes = document["components"]["securitySchemes"]
    assert {name: each["type"] for name, each in schemes.items()} == {
        "apiKey": "apiKey",
        "bearer": "http",
        "basic": "http",
        "certificate": "mutualTLS",
    }
    assert [list(each) for each in document["security"]] == [[], *([name] for name in schemes)]
    for path, item in document["paths"].items():
        for method in _METHODS & set(item):
            responses = {code: resolve(document, each) for code, each in item[method]["responses"].items()}
            public = path in ("/_ping", "/healthy", "/ready")
            assert (item[method].get("security") == []) is public, path
            wanted = {"403", "429"} if public else {"401", "403", "429"}
            assert wanted <= set(responses), (method, path)
            assert "401" not in responses or "WWW-Authenticate" in responses["401"]["headers"]
            assert "Retry-After" in responses["429"]["headers"]


class _Loads(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [value for name, value in attrs if name in ("src", "href", "data-url") and value]


def test_the_page_shows_every_operation_once_and_loads_its_own_files_only() -> None:
    parser = _Loads()
    parser.feed(page.render().decode())
    icon = parser.loads.pop(0)  # in the page: else a browser asks for /favicon.ico, which is not there
    assert icon.startswith("data:image/svg+xml,%3Csvg") and "%3C%2Fsvg%3E" in icon
    assert parser.loads == ["openapi.json", "openapi.json", f"docs/viewer.js?v={page.VERSION}"]
    hidden = {
        path
        for path, item in load()["paths"].items()
        for each in _METHODS & set(item)
        if item[each].get("x-scalar-ignore")
    }
    assert hidden == {path for path in load()["paths"] if path.startswith("/clusters/")}


def test_the_viewer_is_the_version_that_its_licence_names() -> None:
    notice = (ROOT / "pixy/api/openapi/viewer/LICENSE").read_text()
    assert f"@scalar/api-reference {page.VERSION}, unchanged" in notice and "MIT License" in notice
    digest = hashlib.sha256(page.viewer()).hexdigest()
    assert digest == "bf091006bdc3af6067af77c2f534812e3e633e94a94e87138069f570f33b762c", (
        "the npm package's own file"
    )
