"""The REST API's access to the consumer instances of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from actors import ActorDeadError, ActorRef, MailboxFull, Request
from pixy.engine import shares
from pixy.engine.instances.actor import Instance
from pixy.engine.instances.messages import InstanceRequest, InstanceSpec, ReadBatch, ReadRecords
from pixy.engine.instances.owned import InstancePlace
from pixy.engine.instances.registry import CountInstances, CreateInstance, GetInstance
from pixy.errors import TooManyRequests, Unavailable, UnknownInstance

R = TypeVar("R")

_LIMIT = "instances.max_waiting_requests"
_MAX_KNOWN = 10_000
_MAX_SPELLINGS = 8
"""Spellings of a name, and owners, that are remembered; letter case does not matter in a name (KIP-80)."""


class InstanceClient:
    """The instances of one cluster.

    Args:
        registry: finds the ``ActorRef[Instances]``, which a restart of the cluster replaces.
    """

    def __init__(self, registry: Callable[[], Awaitable[ActorRef[Any]]]) -> None:
        self._registry = registry
        self._known: dict[tuple[str, str], dict[tuple[str, str], ActorRef[Instance]]] = {}
        """By group and name in lower case, then by name as it was asked for, and owner."""

    def check_group(self, group: str) -> None:
        """Permit requests about instances of a group that belong to another daemon: here, everybody may."""

    async def create(
        self,
        group: str,
        name: str | None,
        spec: InstanceSpec,
        *,
        owner: str = "",
        place: InstancePlace | None = None,
    ) -> str:
        """Create an instance and return its name.

        Args:
            group: the id of its group.
            name: None: generate one.
            spec: the options it is created with.
            owner: to whom it belongs: only calls with the same owner find it.
            place: its place among the owner's instances; None: nobody counts them.

        Raises:
            InstanceExists: the group has an instance of that name.
            InvalidParameter: the name is not allowed.
            TooManyRequests: there are ``instances.max_instances`` instances.
            Limited: the owner has as many as he may.
        """
        made = await self._ask_registry(CreateInstance(group, name, spec, owner, place, shares.caller.get()))
        # An earlier instance of that name may still be closing.
        self._known.pop((group, made.casefold()), None)
        return made

    async def count(self) -> dict[str, int]:
        """Return the number of instances in each state: see :class:`GetInstanceState`."""
        return await self._ask_registry(CountInstances())

    async def find(self, group: str, name: str, *, owner: str = "") -> ActorRef[Instance]:
        """Find an instance.

        Args:
            group: the id of its group.
            name: the instance's name.
            owner: to whom it belongs.

        Raises:
            UnknownInstance: there is no such instance, or it belongs to somebody else.
        """
        known = self._known.get((group, name.casefold()))
        ref = None if known is None else known.get((name, owner))
        return ref if ref is not None and ref.is_alive() else await self._look_up(group, name, owner)

    async def _look_up(self, group: str, name: str, owner: str) -> ActorRef[Instance]:
        """Ask the registry for an instance, and remember it. Raises UnknownInstance."""
        key = (group, name.casefold())
        known = self._known.get(key)
        if known is not None:
            known.pop((name, owner), None)
            if not known:
                del self._known[key]
        ref = await self._ask_registry(GetInstance(group, name, owner))
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        known = self._known.setdefault(key, {})
        if len(known) >= _MAX_SPELLINGS:
            known.clear()
        known[name, owner] = ref
        return ref

    async def _successor(
        self, group: str, name: str, owner: str, ended: ActorRef[Instance]
    ) -> ActorRef[Instance]:
        """Find the instance that has the name of one that closes by now. Raises UnknownInstance: there is none."""
        ref = await self._look_up(group, name, owner)
        if ref is ended:
            raise UnknownInstance
        return ref

    async def ask(self, group: str, name: str, request: InstanceRequest[R], *, owner: str = "") -> R:
        """Send a request to an instance and return its reply.

        Args:
            group: the id of its group.
            name: the instance's name.
            request: one of :mod:`pixy.engine.instances.messages`.
            owner: to whom the instance belongs.

        Raises:
            UnknownInstance: there is no such instance, or it ended meanwhile.
        """
        ref = await self.find(group, name, owner=owner)
        try:
            return await self._ask(ref, request)
        except UnknownInstance:
            return await self._ask(await self._successor(group, name, owner, ref), request)

    async def _ask(self, ref: ActorRef[Instance], request: InstanceRequest[R]) -> R:
        try:
            return await ref.ask(request, block=False)
        except ActorDeadError as error:
            raise self._ended(ref) from error
        except MailboxFull as error:
            raise TooManyRequests(_LIMIT) from error

    async def read(self, group: str, name: str, request: ReadRecords, *, owner: str = "") -> ReadBatch:
        """Read records. If the caller is cancelled, the next read returns the records.

        Args:
            group: the id of the instance's group.
            name: the instance's name.
            request: the limits of the read.
            owner: to whom the instance belongs.

        Raises:
            UnknownInstance: there is no such instance, or it ended meanwhile.
        """
        ref = await self.find(group, name, owner=owner)
        try:
            return await self._read(ref, request)
        except UnknownInstance:
            return await self._read(await self._successor(group, name, owner, ref), request)

    async def _read(self, ref: ActorRef[Instance], request: ReadRecords) -> ReadBatch:
        future = ref.ask(request, block=False)
        try:
            return await future
        except ActorDeadError as error:
            raise self._ended(ref) from error
        except MailboxFull as error:
            raise TooManyRequests(_LIMIT) from error
        except asyncio.CancelledError:
            offered = future.value()
            if offered is not None:
                offered.give_back()
            raise

    @staticmethod
    def _ended(ref: ActorRef[Any]) -> Exception:
        if ref.is_alive():
            return Unavailable("the consumer instance is restarting, try again")
        return UnknownInstance()

    async def _ask_registry(self, message: Request[R]) -> R:
        registry = await self._registry()
        try:
            return await registry.ask(message, block=False)
        except ActorDeadError as error:
            raise Unavailable("restarting, try again") from error
        except MailboxFull as error:
            raise TooManyRequests("instances.max_instances") from error
