"""Reads from ZooKeeper which member owns which partition, for ``/topics/<topic>/consumers``, and who is a member."""

from __future__ import annotations

import asyncio
import logging

from pixy.errors import UnknownGroup
from pixy.membership.zookeeper.keeper import Keeper, KeeperError, NoNode
from pixy.membership.zookeeper.layout import Layout, check_name

logger = logging.getLogger("pixy.membership")

Owners = dict[str, list[int]]
"""Partitions by the id of their owner."""

_AT_ONCE = 64
"""Znodes that are read concurrently."""


async def read_owners(keeper: Keeper, layout: Layout, topic: str) -> Owners:
    """Read who claims the partitions of a topic.

    Args:
        keeper: the connection.
        layout: of the group.
        topic: its name.

    Raises:
        UnknownGroup: there is no such group, or it does not consume the topic.
        KeeperError: ZooKeeper could not be asked.
    """
    parent = layout.topic(topic)
    try:
        names = await keeper.children(parent)
    except NoNode:
        try:
            await keeper.children(layout.path)
        except NoNode:
            raise UnknownGroup(f"unknown consumer group {layout.group}") from None
        raise UnknownGroup(f"topic {topic} is not consumed by {layout.group}") from None
    except KeeperError as error:
        raise type(error)(f"failed to fetch partition owners data: {error}") from error
    numbers = sorted(int(name) for name in names if name.isdecimal())
    owners: Owners = {}
    for at in range(0, len(numbers), _AT_ONCE):
        some = numbers[at : at + _AT_ONCE]
        found = await asyncio.gather(*(_read_owner(keeper, f"{parent}/{number}") for number in some))
        for number, owner in zip(some, found, strict=True):
            if owner is not None:
                owners.setdefault(owner, []).append(number)
    return owners


async def read_members(keeper: Keeper, layout: Layout) -> set[str]:
    """Read who is a member of a group: who has registered, or else who still claims a partition of some topic.

    Args:
        keeper: the connection.
        layout: of the group, which need not exist.

    Raises:
        KeeperError: ZooKeeper could not be asked.
    """
    try:
        members = set(await _children(keeper, layout.ids))
    except KeeperError as error:
        raise type(error)(f"failed to fetch the members of {layout.group}: {error}") from error
    if members:
        return members
    for topic in await _children(keeper, layout.owners):
        try:
            members.update(await read_owners(keeper, layout, topic))
        except UnknownGroup:
            continue  # deleted a moment ago
    return members


async def _children(keeper: Keeper, path: str) -> list[str]:
    try:
        return await keeper.children(path)
    except NoNode:
        return []


async def _read_owner(keeper: Keeper, path: str) -> str | None:
    try:
        return (await keeper.get(path)).data.decode(errors="replace")
    except NoNode:
        return None  # released a moment ago


async def read_all_owners(keeper: Keeper, chroot: str, topic: str) -> dict[str, Owners]:
    """Read who claims the partitions of a topic, in each group that has an owner of one.

    Args:
        keeper: the connection.
        chroot: see :func:`pixy.membership.zookeeper.layout.normalize_chroot`.
        topic: its name.

    Raises:
        KeeperError: ZooKeeper could not be asked.
    """
    try:
        groups = await keeper.children(Layout(chroot, "").root)
    except KeeperError as error:
        raise type(error)(f"failed to fetch consumer groups: {error}") from error
    owners: dict[str, Owners] = {}
    for group in sorted(groups):
        try:
            found = await read_owners(keeper, Layout(chroot, check_name(group)), topic)
        except UnknownGroup:
            continue
        if found:
            owners[group] = found
    return owners
