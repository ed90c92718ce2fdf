"""Match requests to the original's routes: on the decoded path, with or without a cluster. Pure."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from urllib.parse import quote, unquote

ROUTES: dict[tuple[str, str], str] = {
    ("POST", "messages"): "produce",
    ("GET", "messages"): "consume",
    ("POST", "acks"): "ack",
    ("GET", "offsets"): "get_offsets",
    ("POST", "offsets"): "set_offsets",
    ("GET", "consumers"): "consumers",
    ("GET", "{topic}"): "topic",
    ("GET", "topics"): "topics",
    ("GET", "_ping"): "ping",
    # Added to the original.
    ("PUT", "{topic}"): "create_topic",
    ("PATCH", "{topic}"): "alter_topic",
    ("DELETE", "{topic}"): "delete_topic",
    ("GET", "positions"): "positions",
    ("GET", "groups"): "groups",
    ("GET", "{group}"): "group",
    ("DELETE", "{group}"): "delete_group",
    ("GET", "_status"): "status",
}
"""(method, last part of the path) to the name of the endpoint."""

_OF_A_TOPIC = frozenset({"messages", "acks", "offsets", "consumers", "positions"})
_OF_THE_DAEMON = frozenset({"_ping", "_status"})
"""Paths that have no cluster."""


@dataclass(frozen=True, slots=True)
class Match:
    """The endpoint of a path, with the cluster and the topic (or the group) that it names."""

    endpoint: str
    cluster: str = ""
    topic: str = ""


@dataclass(frozen=True, slots=True)
class Redirect:
    """The path is not clean; the client is redirected to the clean one."""

    path: str


NOT_FOUND = Match("")
METHOD_NOT_ALLOWED = Match("!")


def route(method: str, raw_path: str) -> Match | Redirect:
    """Find the endpoint of a request.

    Args:
        method: the HTTP method, in capitals.
        raw_path: the path, percent-encoded, without the query.
    """
    path = unquote(raw_path, errors="surrogateescape") if "%" in raw_path else raw_path
    if "//" in path or "/." in path:
        clean = _clean(path)
        if clean != path:
            return Redirect(quote(clean, safe="/:@!$&'()*+,;=~", errors="surrogateescape"))
    parts = path.split("/")[1:]
    cluster = ""
    if len(parts) >= 3 and parts[0] == "clusters" and parts[1]:
        cluster = parts[1]
        parts = parts[2:]
        if parts[0] in _OF_THE_DAEMON:
            return NOT_FOUND
    kind, name = _kind(parts)
    endpoint = ROUTES.get((method, kind)) if kind else None
    if endpoint is not None:
        return Match(endpoint, cluster, name)
    return METHOD_NOT_ALLOWED if kind else NOT_FOUND


def _kind(parts: list[str]) -> tuple[str, str]:
    match parts:
        case ["_ping" | "_status" as what]:
            return what, ""
        case ["topics"]:
            return "topics", ""
        case ["topics", topic] if topic:
            return "{topic}", topic
        case ["groups"]:
            return "groups", ""
        case ["groups", group] if group:
            return "{group}", group
        case ["topics", topic, what] if topic and what in _OF_A_TOPIC:
            return what, topic
    return "", ""


def _clean(path: str) -> str:
    clean = posixpath.normpath(path)
    if clean.startswith("//"):
        clean = clean[1:]
    if path.endswith("/") and clean != "/":
        clean += "/"
    return clean
