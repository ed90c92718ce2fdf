"""Read parameters of a query."""

from __future__ import annotations

from aiohttp import web

from pixy.errors import InvalidParameter


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


__all__ = ["Wrong", "number"]
