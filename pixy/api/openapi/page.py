"""Render the contract as one HTML page that works without a network."""

from __future__ import annotations

import functools
import json
from html import escape
from typing import Any

from pixy.api.openapi.document import load

_METHODS = ("get", "post", "put", "patch", "delete")

_STYLE = """
:root{color-scheme:light dark;--line:#8884;--soft:#8881}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1rem}
h1{margin-bottom:0}h2{margin-top:2rem;border-bottom:1px solid var(--line)}
code,pre{font:13px/1.45 ui-monospace,monospace}pre{background:var(--soft);padding:.6rem;white-space:pre-wrap;overflow-wrap:anywhere;border-radius:.3rem}
details{border:1px solid var(--line);border-radius:.3rem;margin:.4rem 0}
summary{padding:.4rem .6rem;cursor:pointer}details>div{padding:0 .8rem .6rem}
.m{display:inline-block;width:4.2em;font-weight:700}.get{color:#1a73c7}.post{color:#2a8a3e}.delete{color:#c0392b}.put{color:#b7791f}
.s{opacity:.75}table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;border-top:1px solid var(--line);padding:.2rem .5rem .2rem 0}
td:first-child{width:4rem}
input{font:inherit;width:100%;padding:.4rem;box-sizing:border-box}
"""
_SCRIPT = """
document.getElementById('q').addEventListener('input',e=>{const q=e.target.value.toLowerCase();
document.querySelectorAll('details').forEach(d=>d.hidden=!d.textContent.toLowerCase().includes(q));
document.querySelectorAll('section').forEach(s=>s.hidden=!s.querySelector('details:not([hidden])'))});
"""


@functools.cache
def render() -> bytes:
    """The page."""
    document = load()
    info = document["info"]
    groups = "".join(_group(document, tag["name"], tag["description"]) for tag in document["tags"])
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width,initial-scale=1'>"
        f"<title>{escape(info['title'])}: REST APIs</title><style>{_STYLE}</style>"
        f"<h1>{escape(info['title'])}</h1><p class=s>{escape(info['version'])} · OpenAPI 3.1 as "
        "<a href=openapi.json>openapi.json</a></p>"
        f"{_text(info['description'])}<input id=q type=search placeholder='Find' aria-label=Find>"
        f"{groups}<script>{_SCRIPT}</script></html>"
    ).encode()


def _group(document: dict[str, Any], tag: str, description: str) -> str:
    rows = [
        _operation(document, path, method, item)
        for path, item in document["paths"].items()
        if not path.startswith("/clusters/")
        for method in _METHODS
        if method in item and item[method]["tags"][0] == tag
    ]
    return f"<section><h2>{escape(tag)}</h2><p class=s>{escape(description)}</p>{''.join(rows)}</section>"


def _operation(document: dict[str, Any], path: str, method: str, item: dict[str, Any]) -> str:
    operation = item[method]
    parameters = [
        resolve(document, each) for each in (*item.get("parameters", ()), *operation.get("parameters", ()))
    ]
    body = _text(operation.get("description", ""))
    if parameters:
        body += (
            "<table><tr><th>Parameter<th>In<th>Meaning"
            + "".join(
                f"<tr><td><code>{escape(each['name'])}</code>{'' if each.get('required') else ' <span class=s>optional</span>'}"
                f"<td>{escape(each['in'])}<td>{_marked(each.get('description', ''))}"
                for each in parameters
            )
            + "</table>"
        )
    body += _request(document, operation) + _answers(document, operation)
    return (
        f"<details id={escape(operation['operationId'])}><summary><span class='m {method}'>"
        f"{method.upper()}</span><code>{escape(path)}</code> <span class=s>{escape(operation['summary'])}"
        f"</span></summary><div>{body}</div></details>"
    )


def _request(document: dict[str, Any], operation: dict[str, Any]) -> str:
    if "requestBody" not in operation:
        return ""
    shown = "<h4>Body</h4>"
    for kind, content in resolve(document, operation["requestBody"])["content"].items():
        shown += f"<p><code>{escape(kind)}</code></p>"
        if "example" in content:
            shown += f"<pre>{escape(json.dumps(content['example']))}</pre>"
    return shown


def _answers(document: dict[str, Any], operation: dict[str, Any]) -> str:
    shown = "<h4>Answers</h4><table>"
    for status, each in operation["responses"].items():
        answer = resolve(document, each)
        kinds = list(answer.get("content", ()))
        schema = next((kind["schema"] for kind in answer.get("content", {}).values()), None)
        shape = f"<pre>{escape(_shape(document, schema))}</pre>" if status < "3" and schema else ""
        title = (
            f" <span class=s title='{escape(', '.join(kinds))}'>{escape(kinds[0])}{' …' if len(kinds) > 1 else ''}</span>"
            if kinds and status < "3"
            else ""
        )
        shown += f"<tr><td><b>{escape(status)}</b><td>{escape(answer['description'])}{title}{shape}"
    return shown + "</table>"


def _shape(document: dict[str, Any], schema: Any, depth: int = 0) -> str:
    """A schema as one line of something like JSON."""
    schema = resolve(document, schema)
    if not isinstance(schema, dict) or depth > 6:
        return "any"
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return " | ".join(_shape(document, each, depth + 1) for each in schema[union])
    if "const" in schema:
        return json.dumps(schema["const"])
    kind = schema.get("type")
    if kind == "array":
        return f"[{_shape(document, schema['items'], depth + 1)}, …]"
    if kind == "object" and "properties" in schema:
        required = schema.get("required", ())
        return (
            "{"
            + ", ".join(
                f'"{name}"{"" if name in required else "?"}: {_shape(document, each, depth + 1)}'
                for name, each in schema["properties"].items()
            )
            + "}"
        )
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return "{…: " + _shape(document, schema["additionalProperties"], depth + 1) + "}"
    if kind == "object":
        return "{}"
    return " | ".join(kind) if isinstance(kind, list) else str(kind or "any")


def resolve(document: dict[str, Any], part: Any) -> Any:
    """Follow a ``$ref`` to the part it points at; return any other part unchanged."""
    while isinstance(part, dict) and "$ref" in part:
        found: Any = document
        for step in part["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        part = found
    return part


def _text(markdown: str) -> str:
    """The little Markdown that descriptions use: paragraphs, ``code`` and **bold**."""
    return "".join(
        f"<p>{_marked(paragraph)}</p>" for paragraph in markdown.strip().split("\n\n") if paragraph
    )


def _marked(text: str) -> str:
    text = escape(text)
    for mark, tag in (("**", "b"), ("`", "code")):
        pieces = text.split(mark)
        text = "".join(f"<{tag}>{piece}</{tag}>" if at % 2 else piece for at, piece in enumerate(pieces))
    return text
