"""Read a classic member's metadata: the group's protocol type, and with it subscriptions."""

from __future__ import annotations

from typing import Any, Final

from pixy.tap.groups import Group, Path
from pixy.tap.lru import LruDict
from pixy.wire.consumer_protocol import decode_subscription
from pixy.wire.exceptions import WireError

CONSUMER: Final = "consumer"
_MEMBERS: Final = 10_000
"""Members whose protocol type is remembered."""

Body = dict[str, Any]


class ProtocolTypes:
    """The protocol type that each member named in its JoinGroup request."""

    def __init__(self) -> None:
        self._types: LruDict[tuple[str, str], str] = LruDict(_MEMBERS)

    def learn(self, group: Group, member_id: str, protocol_type: str) -> None:
        """Remember a member's protocol type.

        Args:
            group: the group.
            member_id: the member.
            protocol_type: the type in its JoinGroup request.
        """
        self._types[group.id, member_id] = protocol_type

    def of_sync(self, group: Group, request: Body, body: Body) -> tuple[str | None, Path]:
        """Find the protocol type of a SyncGroup.

        Args:
            group: the group.
            request: the request.
            body: the response.

        Returns:
            The type, None if unknown, and how the tap knows it.
        """
        named = body.get("ProtocolType") or request.get("ProtocolType")
        if named:
            return named, Path.STATELESS
        learnt = self._types.get((group.id, request["MemberId"]))
        if learnt is not None:
            return learnt, Path.LEARNT
        # Another member's JoinGroup request will do: a group has one protocol type.
        return group.protocol_type, Path.LEARNT if group.protocol_type is not None else Path.UNKNOWN


def subscription_of(request: Body, chosen: str | None) -> tuple[str, ...] | None:
    """Return the topics of a JoinGroup request; None if they cannot be read.

    Args:
        request: the request.
        chosen: the assignor that the group has chosen; None reads the member's first one.
    """
    if request["ProtocolType"] != CONSUMER:
        return None
    offered = request["Protocols"]
    found = next((each for each in offered if each["Name"] == chosen), offered[0] if offered else None)
    return None if found is None else topics_of(found["Metadata"])


def topics_of(metadata: bytes) -> tuple[str, ...] | None:
    """Return the topics of a member's subscription; None if it is in a foreign format."""
    try:
        return tuple(decode_subscription(metadata).body["Topics"])
    except WireError:
        return None


__all__ = ["CONSUMER", "ProtocolTypes", "subscription_of", "topics_of"]
