"""The base class of the listeners (the gRPC and REST servers) and their addresses."""

from __future__ import annotations

import asyncio

from actors import Actor, Future, handles
from pixy.api.tls import ServerTls
from pixy.config import addresses
from pixy.engine.service import Bind, Draining, Reload, Retire
from pixy.errors import StartError

_WATCH = 0.5
"""Seconds between two checks that the socket works."""

RETIRE_LOOK = 0.05
"""Seconds between two looks whether connections have ended."""


class _Watch:
    pass


class Listener(Actor):
    """A server as an actor: it binds when asked, drains, and fails when its socket fails."""

    def __init__(self) -> None:
        super().__init__()
        self._bound = False
        self._retired = False
        self.tls: ServerTls | None = None
        """The listener's certificates; set by :meth:`bind` if it uses TLS."""

    @handles(Bind)
    async def _bind(self, _message: Bind) -> None:
        reply = self.take_reply()
        try:
            address = await self.bind()
        except StartError as error:
            reply.try_fail(
                error
            )  # a person's mistake: the answer says it, a traceback in the log says no more
            return
        self._bound = True
        self.set_timer("watch", _WATCH, _Watch())
        reply.try_set(address)

    @handles(Draining)
    async def _drain(self, _message: Draining) -> None:
        await self.drain()

    @handles(Retire)
    def _retire(self, message: Retire) -> None:
        self._retired = True
        self.start_task(self._move_on(message.within, self.take_reply()))

    async def _move_on(self, within: float, reply: Future[None]) -> None:
        try:
            await self.retire(within)
        finally:
            reply.try_set(None)

    @handles(Reload)
    async def _reload(self, _message: Reload) -> None:
        reply = self.take_reply()
        try:
            if self.tls is not None:
                await asyncio.to_thread(self.tls.load)
        except StartError as error:
            reply.try_fail(error)
        else:
            reply.try_set(None)

    @handles(_Watch)
    def _watch(self, _message: _Watch) -> None:
        reason = "" if self._retired else self.dead()
        if reason:
            raise StartError(reason)
        self.set_timer("watch", _WATCH, _Watch())

    async def on_stop(self) -> None:  # type: ignore[override]
        """Close the socket."""
        if self._bound:
            await self.close()

    async def bind(self) -> str:
        """Open the socket and serve; return the address. Raises StartError."""
        raise NotImplementedError

    async def drain(self) -> None:
        """Report to health checks that the daemon is about to stop; keep answering."""

    async def retire(self, within: float) -> None:
        """Accept no more connections, and end those that there are once their requests are answered: another worker takes over.

        Args:
            within: the longest wait for their ends, in seconds.
        """

    def dead(self) -> str:
        """Return the reason why this listener no longer serves; empty while it does."""
        raise NotImplementedError

    async def close(self) -> None:
        """Stop serving."""
        raise NotImplementedError


def split_address(address: str) -> tuple[str | None, int]:
    """Split ``host:port``, ``:port`` or ``[::1]:port`` into the host (None for all) and the port.

    Raises:
        StartError: ``address`` has none of these forms.
    """
    try:
        return addresses.split_address(address)
    except ValueError as error:
        raise StartError(str(error)) from None


__all__ = ["RETIRE_LOOK", "Listener", "split_address"]
