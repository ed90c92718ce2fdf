"""Kafka's rule for the names of topics."""

from __future__ import annotations

from pixy.errors import InvalidParameter

_MAX_NAME = 249
_NAME_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def check_topic(topic: str) -> None:
    """Apply Kafka's rule for topic names. Raises InvalidParameter."""
    if not topic or topic in (".", "..") or len(topic) > _MAX_NAME or not _NAME_CHARS.issuperset(topic):
        raise InvalidParameter(
            f"bad topic: {topic!r} must be 1 to {_MAX_NAME} characters of a-z, A-Z, 0-9, '.', '_' and '-'"
        )


__all__ = ["check_topic"]
