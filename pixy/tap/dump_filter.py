"""Which frames a dump shows: ``group=bill*,api=Fetch`` names groups, topics, clients and APIs."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from pixy.errors import ConfigError
from pixy.wire import schema

KEYS: Final = ("group", "topic", "client", "api")
_NODES: Final = 5_000
"""Structures of a body in which names are looked for."""
_TOPIC_NAMES: Final = frozenset({"Topic", "TopicName"})
_TOPIC_LISTS: Final = frozenset({"TopicNames", "SubscribedTopicNames"})
_GROUP_LISTS: Final = frozenset({"GroupIds", "GroupsNames"})
_NAMED: Final = frozenset({"TopicData", "Responses"})
"""Fields whose elements are topics, besides those whose name begins with Topics."""
_OF_GROUPS: Final = 0
"""``KeyType`` of FindCoordinator for groups."""


@dataclass(frozen=True, slots=True)
class DumpFilter:
    """Names that a frame must have, one at least of each kind that is given; empty tuples accept all.

    ``*`` and ``?`` stand for any characters and for one.
    """

    groups: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    apis: frozenset[int] = frozenset()

    @property
    def needs_names(self) -> bool:
        """Whether frames must be decoded to know if they match."""
        return bool(self.groups or self.topics)

    def takes_api(self, key: int) -> bool:
        """Tell whether frames of an API may match."""
        return not self.apis or key in self.apis

    def takes_client(self, client_id: str) -> bool:
        """Tell whether frames of a client may match."""
        return _matches(self.clients, (client_id,))

    def takes_names(self, groups: Sequence[str], topics: Sequence[str]) -> bool:
        """Tell whether the names in a request or response match."""
        return _matches(self.groups, groups) and _matches(self.topics, topics)


def parse_filter(texts: Sequence[str]) -> DumpFilter:
    """Parse ``key=value[,key=value...]``; further values of a key need no key.

    Args:
        texts: the values of ``--filter``, which are one filter together.

    Raises:
        ConfigError: a key or an API is unknown.
    """
    found: dict[str, list[str]] = {key: [] for key in KEYS}
    for text in texts:
        current = ""
        for part in text.split(","):
            key, equals, value = part.partition("=")
            if equals and key.strip() in KEYS:
                current = key.strip()
            elif equals or not current:
                raise ConfigError(
                    f"--filter {text}: {part!r} names none of {', '.join(KEYS)}: write group=NAME"
                )
            else:
                value = part
            if not value.strip():
                raise ConfigError(f"--filter {text}: {current}= needs a value")
            found[current].append(value.strip())
    apis = frozenset(key for name in found["api"] for key in _api_keys(name))
    return DumpFilter(tuple(found["group"]), tuple(found["topic"]), tuple(found["client"]), apis)


def _api_keys(name: str) -> list[int]:
    known = schema.keys()
    found = [key for key, each in known.items() if fnmatchcase(each.lower(), name.lower())]
    if name.isascii() and name.isdecimal() and int(name) in known:
        found.append(int(name))
    if not found:
        raise ConfigError(
            f"--filter api={name}: no API has this name; some are Produce, Fetch, JoinGroup, OffsetCommit"
        )
    return found


def _matches(wanted: Sequence[str], found: Sequence[str]) -> bool:
    return not wanted or any(fnmatchcase(each, pattern) for pattern in wanted for each in found)


def names_in(body: Any) -> tuple[list[str], list[str | uuid.UUID]]:
    """Return the groups and the topics, by name or id, that a decoded body names, each once."""
    groups: dict[str, None] = {}
    topics: dict[str | uuid.UUID, None] = {}
    left = [_NODES]
    for kind, name in _names(body, "", left):
        if kind == "group" and isinstance(name, str):
            groups[name] = None
        elif kind == "topic":
            topics[name] = None
    return list(groups), list(topics)


def _names(value: dict[str, Any], field: str, left: list[int]) -> Iterator[tuple[str, str | uuid.UUID]]:
    left[0] -= 1
    if left[0] <= 0:
        return
    if value.get("KeyType") == _OF_GROUPS:
        yield from (("group", each) for each in (value.get("Key"), *value.get("CoordinatorKeys", ())) if each)
    is_topic = field.startswith("Topics") or field in _NAMED
    for name, each in value.items():
        if name == "GroupId" and each:
            yield "group", each
        elif each and (name in _TOPIC_NAMES or name == "TopicId" or (name == "Name" and is_topic)):
            if isinstance(each, str) or (isinstance(each, uuid.UUID) and each.int):
                yield "topic", each
        elif isinstance(each, dict):
            yield from _names(each, name, left)
        elif isinstance(each, list):
            yield from _names_in_list(each, name, left)


def _names_in_list(found: list[Any], field: str, left: list[int]) -> Iterator[tuple[str, str | uuid.UUID]]:
    for each in found[: left[0]]:
        if isinstance(each, dict):
            yield from _names(each, field, left)
        elif not isinstance(each, str):
            return
        elif field in _GROUP_LISTS or field == "Groups":
            yield "group", each
        elif field in _TOPIC_LISTS or field == "Topics":
            yield "topic", each


__all__ = ["KEYS", "DumpFilter", "names_in", "parse_filter"]
