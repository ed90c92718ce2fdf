"""The error of a group that does not exist, where an API answers it differently from other bad parameters."""

from __future__ import annotations

from pixy.errors import UnknownGroup


class NotFound(UnknownGroup):
    """A group that does not exist: NOT_FOUND over gRPC, a bad parameter over REST."""


__all__ = ["NotFound"]
