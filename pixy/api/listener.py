"""What the listeners have in common."""

from __future__ import annotations

from actors import Actor, handles
from pixy.engine.service import Bind, Draining
from pixy.errors import StartError

_WATCH = 0.5


class _Watch:
    pass


class Listener(Actor):
    """A server as an actor: it binds when asked, drains, and fails when its socket dies."""

    def __init__(self) -> None:
        super().__init__()
        self._bound = False

    @handles(Bind)
    async def _bind(self, _message: Bind) -> str:
        address = await self.bind()
        self._bound = True
        self.set_timer("watch", _WATCH, _Watch())
        return address

    @handles(Draining)
    async def _drain(self, _message: Draining) -> None:
        await self.drain()

    @handles(_Watch)
    def _watch(self, _message: _Watch) -> None:
        reason = self.dead()
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
        """Tell whoever asks that the end is near; go on answering."""

    def dead(self) -> str:
        """Why this listener does not serve any more; empty while it does."""
        raise NotImplementedError

    async def close(self) -> None:
        """Stop serving."""
        raise NotImplementedError


def split_address(address: str) -> tuple[str | None, int]:
    """Host (None for all) and port of ``host:port``, ``:port`` or ``[::1]:port``.

    Raises:
        StartError: it is not an address.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise StartError(f"bad address: {address!r} is not host:port")
    return host.strip("[]") or None, int(port)


__all__ = ["Listener", "split_address"]
