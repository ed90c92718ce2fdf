"""Check requests and answers against the OpenAPI document."""

from __future__ import annotations

import re
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from pixy.api.openapi.document import load, resolve

_REGISTRY = Registry().with_resource(
    "urn:contract",
    Resource(load(), DRAFT202012),  # type: ignore[arg-type]
)


def check_answer(method: str, path: str, status: int, content_type: str, document: Any) -> None:
    """Fail if the contract does not allow the answer."""
    operation = operation_of(method, path)
    answer = resolve(load(), operation["responses"].get(str(status)))
    assert answer is not None, f"{method} {path}: {status} is not documented"
    content = answer.get("content")
    kind = content_type.partition(";")[0]
    if content is None:
        assert document is None, f"{method} {path}: {status} has no content"
        return
    assert kind in content, f"{method} {path}: {status} with {kind} is not documented"
    if "json" in kind:
        problems = list(_validator(content[kind]["schema"]).iter_errors(document))
        assert not problems, f"{method} {path}: {status}: {problems[0].message}"


def accepts(method: str, path: str, content_type: str, document: Any) -> bool:
    """Whether the contract allows the body of a request."""
    body = resolve(load(), operation_of(method, path)["requestBody"])
    return _validator(body["content"][content_type]["schema"]).is_valid(document)


def operation_of(method: str, path: str) -> dict[str, Any]:
    """The operation of a path; literal segments take precedence over named ones."""
    for template in sorted(load()["paths"], key=lambda each: (each.count("{"), each)):
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template))
        item = load()["paths"][template]
        if re.fullmatch(pattern, path.rstrip("/") or "/") and method.lower() in item:
            found: dict[str, Any] = item[method.lower()]
            return found
    raise AssertionError(f"{method} {path} is not in the contract")


def _validator(schema: Any) -> Draft202012Validator:
    return Draft202012Validator(_absolute(schema), registry=_REGISTRY)


def _absolute(schema: Any) -> Any:
    """Make local references absolute, so that they refer to the whole document."""
    if isinstance(schema, dict):
        return {
            key: f"urn:contract{value}" if key == "$ref" and value.startswith("#") else _absolute(value)
            for key, value in schema.items()
        }
    return [_absolute(each) for each in schema] if isinstance(schema, list) else schema
