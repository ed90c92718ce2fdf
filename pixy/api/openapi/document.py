"""Assemble the OpenAPI document from the YAML files beside this module.

The files are the only source: tests check the routers, the requests and the answers against them. A
few short forms keep them readable; ``shared.yaml`` explains those.
"""

from __future__ import annotations

import copy
import functools
from importlib import resources
from typing import Any

import msgspec
import yaml

from pixy import __version__

PARTS = ("shared.yaml", "pixy.yaml", "admin.yaml", "restv1.yaml", "consumers.yaml")
_METHODS = ("get", "put", "post", "delete", "patch", "head", "options")
_PLAIN = (
    "application/vnd.kafka.v1+json",
    "application/vnd.kafka.v2+json",
    "application/vnd.kafka+json",
    "application/json",
)
_EMBEDDED = tuple(
    f"application/vnd.kafka.{embedded}.{version}+json"
    for embedded in ("binary", "json")
    for version in ("v1", "v2")
)
_MEANING = {
    400: "The request is malformed.",
    401: "The caller is not recognized (with `auth`), or Kafka refused the proxy's credentials.",
    403: "A rule is missing (with `auth`), the host or the page's origin is foreign, changes are off (`admin_changes`), "
    "or Kafka does not authorize the proxy.",
    404: "Not found.",
    405: "Method not allowed.",
    406: "The API has none of the content types that the client accepts.",
    408: "No message arrived in time.",
    409: "The request conflicts with the current state.",
    413: "Too large.",
    415: "The content type of the body, or its Content-Encoding, is not supported.",
    422: "A parameter or field is wrong; the text names it.",
    429: "The caller has used up what he may (`limits`), or a bounded queue is full.",
    500: "Kafka refused the request; the text gives its reason.",
    503: "Unavailable now; try again.",
}
_RETRY = frozenset({429, 503})
_EDGE = (403, 429)
"""Any request may be answered so before its endpoint is asked: a foreign host or origin, too many requests at once."""
_PROTECTED = (401, *_EDGE)
"""The same, of an endpoint that needs a caller."""


@functools.cache
def load() -> dict[str, Any]:
    """Return the whole document, which is shared: do not modify it."""
    document: dict[str, Any] = {}
    folder = resources.files(__package__)
    for name in PARTS:
        part = folder / name
        if part.is_file():
            _merge(document, yaml.safe_load(part.read_text("utf-8")))
    document["info"]["version"] = __version__
    for item in document["paths"].values():
        for method in _METHODS:
            if method in item:
                item[method] = _expanded(copy.deepcopy(item[method]))
    document["components"].setdefault("responses", {}).update(copy.deepcopy(_errors()))
    document["paths"] = _with_clusters(document["paths"])
    return document


@functools.cache
def as_json() -> bytes:
    """Return the document as the daemon serves it."""
    return msgspec.json.encode(load())


def _merge(into: dict[str, Any], part: dict[str, Any]) -> None:
    for key, value in part.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        elif key in into:
            raise ValueError(f"{key} stands twice in the contract")
        else:
            into[key] = value


def _expanded(operation: dict[str, Any]) -> dict[str, Any]:
    responses = operation["responses"]
    for response in responses.values():
        if "$ref" not in response:
            _expand_answer(response)
    ours, pixys = {*operation.pop("x-errors", ())}, {*operation.pop("x-pixy-errors", ())}
    common = _EDGE if operation.get("security") == [] else _PROTECTED
    # A request to a shared path without a body's type may be for the one API or the other.
    pixy = bool(pixys) or "x-no-body" in operation
    ours.update(common if ours or not pixy else ())
    pixys.update(common if pixy else ())
    for status in {*ours, *pixys}:
        kind = ("Error" if status in ours else "") + ("Pixy" if status in pixys else "")
        _add_answer(responses, str(status), f"#/components/responses/{kind}{status}")
    if "x-no-body" in operation:
        responses[str(operation.pop("x-no-body"))] = {"description": "Not without a JSON type."}
    operation["responses"] = dict(sorted(responses.items()))
    return operation


def _add_answer(responses: dict[str, Any], status: str, error: str) -> None:
    """Add the answer to an error; a status may have an answer of the endpoint's own beside it."""
    own = responses.get(status)
    if own is None:
        responses[status] = {"$ref": error}
        return
    added = _errors()[error.rpartition("/")[2]]
    own["description"] += " Or: " + added["description"]
    own["headers"] = added.get("headers", {}) | own.get("headers", {})
    for kind, content in added["content"].items():
        _add_schema(own["content"], kind, content["schema"])


@functools.cache
def _errors() -> dict[str, Any]:
    """Make the error responses: of the REST proxies' API, of Kafka-Pixy's own API, or of both on a shared path."""
    made: dict[str, Any] = {}
    for status, meaning in _MEANING.items():
        for kind in ("Error", "Pixy", "ErrorPixy"):
            response: dict[str, Any] = {"description": meaning, "content": {}}
            if status == 401:
                response["headers"] = {"WWW-Authenticate": {"$ref": "#/components/headers/WWWAuthenticate"}}
            if status == 429 or (status in _RETRY and "Error" in kind):
                response["headers"] = {"Retry-After": {"$ref": "#/components/headers/RetryAfter"}}
            if "Error" in kind:
                for media_type in (*_PLAIN, *_EMBEDDED):
                    _add_schema(response["content"], media_type, {"$ref": "#/components/schemas/Error"})
            if "Pixy" in kind:
                _add_schema(
                    response["content"], "application/json", {"$ref": "#/components/schemas/PixyError"}
                )
            made[f"{kind}{status}"] = response
    return made


def _expand_answer(response: dict[str, Any]) -> None:
    content = response.setdefault("content", {})
    if "x-answer" in response:
        schema = response.pop("x-answer")
        # A type with a format in it is answered to a client that asks for nothing else.
        content.update({kind: {"schema": schema} for kind in (*_PLAIN, *_EMBEDDED)})
    if "x-records" in response:
        schema = response.pop("x-records")
        content.update({kind: {"schema": schema} for kind in (*_PLAIN, *_EMBEDDED)})
    if "x-pixy" in response:
        _add_schema(content, "application/json", response.pop("x-pixy"))
    if not content:
        del response["content"]


def _add_schema(content: dict[str, Any], kind: str, schema: dict[str, Any]) -> None:
    """Add another schema to the responses of a content type."""
    known = content.get(kind, {}).get("schema")
    content[kind] = {"schema": schema if known is None else {"anyOf": [known, schema]}}


def _with_clusters(paths: dict[str, Any]) -> dict[str, Any]:
    everything: dict[str, Any] = {}
    for path, item in paths.items():
        clustered = item.pop("x-clustered", True)
        everything[path] = item
        if clustered:
            everything[f"/clusters/{{cluster}}{path}"] = _in_cluster(item)
    return everything


def _in_cluster(item: dict[str, Any]) -> dict[str, Any]:
    item = copy.deepcopy(item)
    item.setdefault("parameters", []).insert(0, {"$ref": "#/components/parameters/cluster"})
    for method in _METHODS:
        if method in item:
            item[method]["operationId"] += "InCluster"
            item[method]["x-scalar-ignore"] = True  # /docs shows each request once
    return item


def resolve(document: dict[str, Any], part: Any) -> Any:
    """Follow a ``$ref`` to the part it points at; return any other part unchanged.

    Args:
        document: the whole one, in which references are looked up.
        part: a part of it.
    """
    while isinstance(part, dict) and "$ref" in part:
        found: Any = document
        for step in part["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        part = found
    return part
