"""What the REST API calls for consumer instances: one object per cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from actors import ActorDeadError, ActorRef, MailboxFull
from pixy.engine.instances.messages import Batch, InstanceSpec, ReadRecords
from pixy.engine.instances.registry import CountInstances, CreateInstance, GetInstance
from pixy.errors import TooManyRequests, Unavailable, UnknownInstance

_BOUND = "instances.max_waiting_requests"
_MAX_KNOWN = 10_000


class InstanceClient:
    """The instances of one cluster.

    Args:
        registry: finds the ``ActorRef[Instances]``.
    """

    def __init__(self, registry: Callable[[], Awaitable[ActorRef[Any]]]) -> None:
        self._registry = registry
        self._known: dict[tuple[str, str], ActorRef[Any]] = {}

    async def create(self, group: str, name: str | None, spec: InstanceSpec) -> str:
        """Make an instance; its name.

        Raises:
            InstanceExists: the group has one of that name.
            InvalidParameter: the name can not be one.
            TooManyRequests: there are ``instances.max_instances``.
        """
        made: str = await self._ask_registry(CreateInstance(group, name, spec))
        return made

    async def count(self) -> dict[str, int]:
        """How many wait in a read, are idle, and were never used."""
        found: dict[str, int] = await self._ask_registry(CountInstances())
        return found

    async def find(self, group: str, name: str) -> ActorRef[Any]:
        """The instance. Raises UnknownInstance."""
        ref = self._known.get((group, name))
        if ref is None or not ref.is_alive():
            self._known.pop((group, name), None)
            found: ActorRef[Any] = await self._ask_registry(GetInstance(group, name))
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[group, name] = ref = found
        return ref

    async def ask(self, group: str, name: str, message: Any) -> Any:
        """Ask an instance one of :mod:`pixy.engine.instances.messages`.

        Raises:
            UnknownInstance: it is not there, or ended meanwhile.
        """
        ref = await self.find(group, name)
        try:
            return await ref.ask(message, block=False)
        except ActorDeadError as error:
            raise self._gone(ref) from error
        except MailboxFull as error:
            raise TooManyRequests(_BOUND) from error

    async def read(self, group: str, name: str, request: ReadRecords) -> Batch:
        """Read records. A caller that is cancelled meanwhile gets nothing and loses nothing."""
        ref = await self.find(group, name)
        future = ref.ask(request, block=False)
        try:
            batch: Batch = await future
        except ActorDeadError as error:
            raise self._gone(ref) from error
        except MailboxFull as error:
            raise TooManyRequests(_BOUND) from error
        except asyncio.CancelledError:
            offered = future.value()
            if offered is not None:
                offered.give_back()
            raise
        return batch

    @staticmethod
    def _gone(ref: ActorRef[Any]) -> Exception:
        if ref.is_alive():
            return Unavailable("the consumer instance is restarting, try again")
        return UnknownInstance()

    async def _ask_registry(self, message: Any) -> Any:
        registry = await self._registry()
        try:
            return await registry.ask(message, block=False)
        except ActorDeadError as error:
            raise Unavailable("restarting, try again") from error
        except MailboxFull as error:
            raise TooManyRequests("instances.max_instances") from error
