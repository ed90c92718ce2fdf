"""Where one message stands in each group: as this daemon's owners say, and by the committed offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pixy.auth.patterns import EVERYTHING
from pixy.engine.admin_messages import PartitionOffset
from pixy.engine.consume import sparse_acks
from pixy.engine.consume.views import MessageView
from pixy.engine.inspector import Inspector
from pixy.engine.life.story import Standing, Unknown
from pixy.errors import PixyError

MOST_GROUPS: Final = 100
"""Groups whose offsets are asked for one message, those of this daemon first."""
_AT_ONCE: Final = 8
_PATIENCE: Final = 5.0
"""Seconds for the offsets of all groups."""


@dataclass(frozen=True, slots=True)
class Message:
    """A place in a log."""

    cluster: str
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


@dataclass(frozen=True, slots=True)
class Clock:
    """``now`` is the loop's time, and ``wall`` the seconds since 1970, of one moment."""

    now: float
    wall: float

    def date(self, at: float) -> float:
        """Convert a time of the loop to seconds since 1970."""
        return self.wall + at - self.now


async def standings(
    inspector: Inspector, message: Message, only: str, visible: Callable[[str], bool], clock: Clock
) -> tuple[list[Standing], list[Unknown]]:
    """Find out where a message stands in groups.

    Args:
        inspector: asks.
        message: which.
        only: the one group that is asked for; empty for all.
        visible: whether the caller may see a group.
        clock: the present.

    Returns:
        The groups that have anything to do with the message's partition, and what could not be found out.
    """
    unknown: list[Unknown] = []
    names, views = await _live(inspector, message, only, visible, unknown)
    names += await _listed(inspector, message, only, names, unknown)
    seen = [each for each in names if visible(each)]
    if not visible(only or EVERYTHING):  # the same whether there are any or not
        unknown.append(Unknown("other groups", "groups that you may not see are left out, if there are any"))
    if len(seen) > MOST_GROUPS:
        unknown.append(
            Unknown(
                "offsets of further groups", f"{len(seen) - MOST_GROUPS} were not asked; name one with group="
            )
        )
    committed = await _committed(inspector, message, seen[:MOST_GROUPS], unknown)
    found = [
        standing(name, message.offset, views.get(name), committed.get(name), clock)
        for name in seen
        if name in views or name in committed
    ]
    return found, unknown


async def _live(
    inspector: Inspector,
    message: Message,
    only: str,
    visible: Callable[[str], bool],
    unknown: list[Unknown],
) -> tuple[list[str], dict[str, MessageView]]:
    try:
        refs = await inspector.groups(message.cluster)
    except PixyError as error:
        unknown.append(Unknown("groups of this daemon", str(error)))
        return [], {}
    refs = {name: ref for name, ref in refs.items() if only in ("", name) and visible(name)}
    views = await inspector.messages(refs, message.topic, message.partition, message.offset)
    return sorted(views), views


async def _listed(
    inspector: Inspector, message: Message, only: str, known: list[str], unknown: list[Unknown]
) -> list[str]:
    """Return further groups that Kafka knows."""
    if only:
        return [] if only in known else [only]
    try:
        return [each for each in await inspector.group_names(message.cluster) if each not in known]
    except PixyError as error:
        unknown.append(Unknown("groups of others", f"Kafka does not list them: {error}"))
        return []


async def _committed(
    inspector: Inspector, message: Message, names: list[str], unknown: list[Unknown]
) -> dict[str, PartitionOffset]:
    found: dict[str, PartitionOffset] = {}
    failed: list[str] = []
    places = asyncio.Semaphore(_AT_ONCE)

    async def ask(name: str) -> None:
        async with places:
            try:
                offsets = await inspector.offsets(message.cluster, message.topic, name)
            except PixyError as error:
                failed.append(f"{name}: {error}")
                return
        for each in offsets:
            if each.partition == message.partition and each.offset >= 0:
                found[name] = each

    tasks = [asyncio.create_task(ask(name)) for name in names]
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=_PATIENCE)
        for task in late:
            task.cancel()
        if late:
            failed.append(f"{len(late)} groups: no answer within {_PATIENCE:g} s")
    if failed:
        unknown.append(Unknown("committed offsets", "; ".join(failed[:5])))
    return found


def standing(
    group: str, offset: int, view: MessageView | None, committed: PartitionOffset | None, clock: Clock
) -> Standing:
    """Judge where a message stands in a group.

    Args:
        group: its name.
        offset: of the message.
        view: what the owner here says; None if this daemon does not own the partition.
        committed: the group's offset; None if there is none, or nobody could tell.
        clock: the present.
    """
    detail: dict[str, Any] = {}
    state = _by_commit(offset, committed)
    if committed is not None:
        detail["committed"] = state == "done"
    if view is None:
        return Standing(group, state, "", None if committed is None else committed.offset, detail)
    detail |= {"position": view.position, "owned_since": clock.date(view.since)}
    offer = view.offer
    if offer is not None:
        detail |= {
            "client": offer.client,
            "attempts": offer.attempts,
            "first_offered": clock.date(offer.first),
            "last_offered": clock.date(offer.offered),
            "deadline": clock.date(offer.deadline) if offer.out else None,
        }
    return Standing(group, view.state, "here", None if committed is None else committed.offset, detail)


def _by_commit(offset: int, committed: PartitionOffset | None) -> str:
    if committed is None:
        return "not committed"
    if offset < committed.offset:
        return "done"
    try:
        ranges = sparse_acks.acknowledged(committed.offset, committed.metadata, committed.end)
    except ValueError:
        return "not done"  # another program's metadata
    return "done" if any(start <= offset < stop for start, stop in ranges) else "not done"


__all__ = ["MOST_GROUPS", "Clock", "Message", "standing", "standings"]
