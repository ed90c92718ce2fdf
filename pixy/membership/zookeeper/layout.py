"""The znodes of a consumer group, as the Go original and Kafka's old Java consumer lay them out. Pure.

::

    <chroot>/consumers/<group>/ids/<member>              ephemeral: the member's subscription, as JSON
    <chroot>/consumers/<group>/owners/<topic>/<number>   ephemeral: the member's id

A member's id is its daemon's ``client_id``. Parents are persistent and empty.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from pixy.errors import InvalidParameter
from pixy.wire.types import TopicPartition

_FORBIDDEN = re.compile("[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
"""Characters that ZooKeeper does not allow in a name, and the separator."""


def is_name(group: str) -> bool:
    """Return whether a group id can name a znode."""
    return not _FORBIDDEN.search(group) and group not in (".", "..")


def check_name(group: str) -> str:
    """Return a group id that can name a znode. Raises InvalidParameter."""
    if not is_name(group):
        raise InvalidParameter("bad group: ZooKeeper does not allow '/' or control characters in its name")
    return group


def normalize_chroot(text: str) -> str:
    """Return a path such as ``/kafka``, or an empty one for none. Raises ValueError.

    Args:
        text: as configured: with or without slashes at its ends.
    """
    names = text.strip("/").split("/") if text.strip("/") else []
    if any(not name or name in (".", "..") or _FORBIDDEN.search(name) for name in names):
        raise ValueError(f"{text!r} is not a path of ZooKeeper")
    return "".join(f"/{name}" for name in names)


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one group.

    Args:
        chroot: see :func:`normalize_chroot`.
        group: its id.
    """

    chroot: str
    group: str

    @property
    def root(self) -> str:
        """The parent of all groups."""
        return f"{self.chroot}/consumers"

    @property
    def path(self) -> str:
        """The group."""
        return f"{self.root}/{self.group}"

    @property
    def ids(self) -> str:
        """The parent of the members."""
        return f"{self.path}/ids"

    @property
    def owners(self) -> str:
        """The parent of the topics that have owners."""
        return f"{self.path}/owners"

    def member(self, member: str) -> str:
        """Return a member's registration."""
        return f"{self.ids}/{member}"

    def topic(self, topic: str) -> str:
        """Return the parent of a topic's claims."""
        return f"{self.owners}/{topic}"

    def claim(self, partition: TopicPartition) -> str:
        """Return the claim of a partition."""
        return f"{self.owners}/{partition[0]}/{partition[1]}"


def encode_member(topics: Iterable[str], now: float) -> bytes:
    """Return a member's registration, with the original's keys in the original's order.

    Args:
        topics: to which it subscribes.
        now: seconds since 1970. The original reads an integer; a string stops its whole group.
    """
    subscription = dict.fromkeys(sorted(topics), 1)
    record = {"subscription": subscription, "pattern": "static", "timestamp": int(now), "version": 1}
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()


def decode_member(data: bytes) -> frozenset[str]:
    """Return the topics of a member's registration; other fields do not matter. Raises ValueError."""
    record = json.loads(data)
    subscription = record.get("subscription") if isinstance(record, dict) else None
    if subscription is None:
        subscription = {}  # so the original reads null and a missing field
    if not isinstance(record, dict) or not isinstance(subscription, dict):
        raise ValueError("it has no subscription")
    return frozenset(map(str, subscription))
