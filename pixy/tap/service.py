"""The tap as one object to start, ask and stop. The command line and the tests both use it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from actors import ESCALATE, ActorDeadError, ActorError, ActorRef, ActorSystem, StopReport, Timeout
from pixy.errors import StartError
from pixy.tap.config import Address, TapConfig
from pixy.tap.dump_actor import DumpTarget
from pixy.tap.http_view import Bind, HttpView
from pixy.tap.messages import DrainTap, GetView, OpenPorts, ViewName
from pixy.tap.observer import Output
from pixy.tap.supervisor import Tap
from pixy.tap.tls import Certificates

_STOP_TIMEOUT = 5.0
logger = logging.getLogger("pixy.tap")


class TapService:
    """Run a tap: ``async with TapService(config) as tap: print(tap.listening)``.

    Args:
        config: the tap's configuration.
        http: address of the HTTP view; None serves none.
        dump: what to dump and where to; None for no dump.
    """

    def __init__(
        self, config: TapConfig, *, http: Address | None = None, dump: DumpTarget | None = None
    ) -> None:
        self._config, self._http, self._dump = config, http, dump
        self.listening: list[tuple[Address, Address]] = []
        """Pairs of listening address and broker, in the order of the configuration."""
        self.http: Address | None = None
        """Address of the HTTP view, once it is served."""
        self.system = ActorSystem("tap")
        self._outputs: list[Output] = []
        self._certificates: Certificates | None = None
        self._tap: ActorRef[Tap]

    async def __aenter__(self) -> TapService:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    def add_output(self, output: Callable[[dict[str, Any]], None]) -> None:
        """Call ``output`` with every event, in the observer's thread. Add outputs before the start.

        One that raises an exception is removed and logged; the tap goes on.
        """
        self._outputs.append(output)

    async def start(self) -> None:
        """Open the ports.

        Raises:
            StartError: a port cannot be opened, or certificates cannot be used; the service is then stopped.
        """
        try:
            self._certificates = await asyncio.to_thread(Certificates, self._config)
        except StartError:
            await self.system.stop(_STOP_TIMEOUT)
            raise
        output = self._emit if self._outputs else None
        self._tap = self.system.spawn(
            Tap, self._config, self._certificates, output, self._dump, name="tap", supervision=ESCALATE
        )
        try:
            self.listening = await self._tap.ask(OpenPorts(), block=False)
            if self._http is not None:
                view = self.system.spawn(HttpView, self._http, self._tap, name="http", supervision=ESCALATE)
                self.http = await view.ask(Bind(), block=False)
        except StartError:
            await self.stop()
            raise

    async def reload_certificates(self) -> None:
        """Read the certificates again, for new connections.

        Raises:
            StartError: they cannot be used; the earlier ones stay in use.
        """
        if self._certificates is not None:
            await asyncio.to_thread(self._certificates.load)

    async def ask(self, view: ViewName = "snapshot", group: str | None = None) -> Any:
        """Return a view as JSON (``metrics``: as text).

        Args:
            view: the view's name.
            group: restricts ``snapshot`` and ``timeline`` to this group.
        """
        return await self._tap.ask(GetView(view, group), block=False, timeout=10.0)

    async def failed(self) -> Exception:
        """Wait until an actor of the tap has failed for good, and return its error."""
        return await asyncio.shield(self.system.failure)

    async def stop(self) -> StopReport:
        """Close all connections and ports."""
        try:
            await self._tap.ask(DrainTap(), block=False, timeout=_STOP_TIMEOUT)
        except (ActorDeadError, ActorError, Timeout):
            pass  # the tap has failed, or was never started
        return await self.system.stop(_STOP_TIMEOUT)

    def _emit(self, document: dict[str, Any]) -> None:
        for output in tuple(self._outputs):
            try:
                output(document)
            except Exception:  # an output is a guest: the observer goes on without one that fails
                self._outputs.remove(output)
                logger.exception("an output failed and gets no more events")
