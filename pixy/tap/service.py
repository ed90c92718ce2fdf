"""The tap as one object: start it, ask it, stop it. The command line and the tests use it alike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from actors import ESCALATE, ActorDeadError, ActorError, ActorRef, ActorSystem, StopReport, Timeout
from pixy.errors import StartError
from pixy.tap.actors import Ask, Drain, Listen, Tap
from pixy.tap.config import Address, TapConfig
from pixy.tap.http_view import HttpView
from pixy.tap.observer import Output

_STOP_TIMEOUT = 5.0


class TapService:
    """``async with TapService(config) as tap: print(tap.listening)``."""

    def __init__(self, config: TapConfig, *, http: Address | None = None) -> None:
        self._config, self._http = config, http
        self.listening: list[tuple[Address, Address]] = []
        """Where the tap listens, and for which broker, in the order of the configuration."""
        self.http: Address | None = None
        """Where the HTTP view is."""
        self.system = ActorSystem("tap")
        self._outputs: list[Output] = []
        self._tap: ActorRef[Tap]

    async def __aenter__(self) -> TapService:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    def add_output(self, output: Callable[[dict[str, Any]], None]) -> None:
        """Have every event told, in the observer's thread; call it before the start."""
        self._outputs.append(output)

    async def start(self) -> None:
        """Open the ports. Raises StartError; nothing is left."""
        self._tap = self.system.spawn(
            Tap, self._config, self._tell if self._outputs else None, name="tap", supervision=ESCALATE
        )
        try:
            self.listening = await self._tap.ask(Listen(), block=False)
            if self._http is not None:
                view = self.system.spawn(HttpView, self._http, self._tap, name="http", supervision=ESCALATE)
                self.http = await view.ask("bind", block=False)
        except StartError:
            await self.stop()
            raise

    async def ask(self, what: str = "snapshot", group: str | None = None) -> Any:
        """A view, see :data:`pixy.tap.actors.VIEWS`, as JSON."""
        return await self._tap.ask(Ask(what, group), block=False, timeout=10.0)

    async def failed(self) -> Exception:
        """Wait until a part has given up for good; why."""
        return await asyncio.shield(self.system.failure)

    async def stop(self) -> StopReport:
        """Close all connections and ports."""
        try:
            await self._tap.ask(Drain(), block=False, timeout=_STOP_TIMEOUT)
        except (ActorDeadError, ActorError, Timeout):
            pass  # it has failed, or never started
        return await self.system.stop(_STOP_TIMEOUT)

    def _tell(self, document: dict[str, Any]) -> None:
        for output in self._outputs:
            output(document)
