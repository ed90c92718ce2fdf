"""Read parameters of a query."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from pixy.errors import InvalidParameter, PixyError, UnknownTopic

MOST: Final = 10_000
"""Characters of a parameter."""


class Wrong(InvalidParameter):
    """A parameter that cannot be used. The text says why."""


def number(request: web.Request, name: str, default: int, least: int, most: int) -> int:
    """Return a whole number of the query.

    Args:
        request: has the query.
        name: of the parameter.
        default: if it is missing.
        least: the smallest that is allowed.
        most: the largest.

    Raises:
        Wrong: it is no number, or out of range.
    """
    text = request.query.get(name)
    if text is None:
        return default
    if len(text) > 12 or not text.isascii() or not text.isdecimal() or not least <= int(text) <= most:
        raise Wrong(f"{name} must be a number from {least} to {most}")
    return int(text)


def text(request: web.Request, name: str) -> str:
    """Return a text of the query; empty if it is missing.

    Args:
        request: has the query.
        name: of the parameter.

    Raises:
        Wrong: it is too long.
    """
    found = request.query.get(name, "")
    if len(found) > MOST:
        raise Wrong(f"{name} has more than {MOST} characters")
    return found


def offset(request: web.Request) -> int:
    """Return the parameter ``offset`` of the query. Raises Wrong."""
    found = request.query.get("offset", "")
    if len(found) > 19 or not found.isascii() or not found.isdecimal() or int(found) >= 2**63:
        raise Wrong("offset must be a number of 0 or more")
    return int(found)


def in_words(problem: PixyError, cluster: str, topic: str, partition: int | None = None) -> str:
    """Return the text of an error. That of an unknown topic or partition names it, which Kafka's own does not."""
    if not isinstance(problem, UnknownTopic):
        return str(problem)
    what = f"topic {topic}" if partition is None else f"partition {topic}/{partition}"
    return f"there is no {what} in cluster {cluster}"


__all__ = ["MOST", "Wrong", "in_words", "number", "offset", "text"]
