"""The REST API's access to the consumer instances of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from actors import ActorDeadError, ActorRef, MailboxFull, Request
from pixy.engine import shares
from pixy.engine.instances.actor import Instance
from pixy.engine.instances.messages import InstanceRequest, InstanceSpec, ReadBatch, ReadRecords
from pixy.engine.instances.registry import CountInstances, CreateInstance, GetInstance
from pixy.errors import TooManyRequests, Unavailable, UnknownInstance

R = TypeVar("R")

_LIMIT = "instances.max_waiting_requests"
_MAX_KNOWN = 10_000


class InstanceClient:
    """The instances of one cluster.

    Args:
        registry: finds the ``ActorRef[Instances]``, which a restart of the cluster replaces.
    """

    def __init__(self, registry: Callable[[], Awaitable[ActorRef[Any]]]) -> None:
        self._registry = registry
        self._known: dict[tuple[str, str, str], ActorRef[Instance]] = {}

    async def create(
        self, group: str, name: str | None, spec: InstanceSpec, *, owner: str = "", most: int = 0
    ) -> str:
        """Create an instance and return its name.

        Args:
            group: the id of its group.
            name: None: generate one.
            spec: the options it is created with.
            owner: to whom it belongs: only calls with the same owner find it.
            most: instances that the owner may have; 0: any number.

        Raises:
            InstanceExists: the group has an instance of that name.
            InvalidParameter: the name is not allowed.
            TooManyRequests: there are ``instances.max_instances`` instances.
        """
        return await self._ask_registry(CreateInstance(group, name, spec, owner, most, shares.caller.get()))

    async def count(self) -> dict[str, int]:
        """The number of instances in each state: see :class:`GetInstanceState`."""
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
        ref = self._known.get((group, name, owner))
        if ref is None or not ref.is_alive():
            self._known.pop((group, name, owner), None)
            ref = await self._ask_registry(GetInstance(group, name, owner))
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[group, name, owner] = ref
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
