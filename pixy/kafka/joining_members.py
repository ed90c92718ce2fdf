"""Members that stop while they join.

librdkafka (2.16) says nothing to the coordinator when a consumer is closed, or unsubscribes, while its JoinGroup, SyncGroup or
first heartbeat (KIP-848) is under way. The group keeps the member until its session expires: its partitions are not consumed,
other members wait for it in each rebalance, and nobody can set the group's offsets. So we have the coordinator remove it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from pixy.errors import KafkaError
from pixy.kafka.group_offsets import GroupOffsets
from pixy.kafka.settings import Settings, logger
from pixy.wire.client import Member
from pixy.wire.errors import ErrorCode

ID_PATIENCE = 1.0
"""Seconds that a member which stops waits for its id. The coordinator holds a place for whoever it has given one (KIP-394)."""
_LOOK = 0.005
_TRIES, _PAUSE = 3, 0.1
"""A member whose joining request is still on its way is not known yet."""
_UNKNOWN = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})


class JoiningMember:
    """Removes one member from its group, if it stops while it joins. Blocking.

    Args:
        settings: the consumer's.
        member: returns what the consumer knows of its membership.
        wake: has the consumer go on with what it does.
    """

    def __init__(self, settings: Settings, member: Callable[[], Member], wake: Callable[[], None]) -> None:
        self._group = settings["group.id"]
        self._classic = settings.get("group.protocol") != "consumer"
        self._static = bool(settings.get("group.instance.id"))
        self._member = member
        self._wake = wake

    def find(self) -> Member | None:
        """Return the member that the group is to forget, before librdkafka is told to leave; None for a static one, which stays, and before it asks."""
        if self._static:
            return None
        deadline = time.monotonic() + ID_PATIENCE
        while not (found := self._member()).member_id and time.monotonic() < deadline:
            self._wake()
            time.sleep(_LOOK)
        return found if found.member_id else None

    def remove(self, member: Member, offsets: GroupOffsets) -> None:
        """Have the coordinator forget the member, after librdkafka was told to leave. Never raises: a failure is logged.

        Args:
            member: found before.
            offsets: the connection to the coordinator.
        """
        tries = _TRIES if member.generation_id <= 0 else 1
        for attempt in range(tries):
            try:
                answer = offsets.leave(member, classic=self._classic)
            except KafkaError as error:
                logger.info(
                    "group %s: member %s may stay until its session expires: %s",
                    self._group,
                    member.member_id,
                    error,
                )
                return
            if answer not in _UNKNOWN:
                return
            if attempt + 1 < tries:
                time.sleep(_PAUSE)


__all__ = ["ID_PATIENCE", "JoiningMember"]
