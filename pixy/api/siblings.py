"""The other workers of this daemon, over unix sockets in its private folder.

Each worker listens there (:class:`pixy.api.rest.internal.WorkerServer`), and the supervisor tells all of them who is there.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hmac
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

import aiohttp
from multidict import CIMultiDictProxy

from pixy.engine.workers import Stray, Worker

logger = logging.getLogger("pixy.api")

ACKS: Final = "/_worker/acks"
ADMIN: Final = ".admin"
"""The end of the path of a worker's socket for operators, after that of its other socket."""
PROVING_HEADER: Final = "X-Kafka-Pixy-Worker"
"""Proves that a worker asks."""
_TIMEOUT: Final = 5.0
"""Seconds that a worker may take for an ack."""
_MOST: Final = 64
"""Connections to one worker for acks."""


@dataclass(frozen=True, slots=True)
class Sibling:
    """A worker.

    Attributes:
        number: its own; one that retires and the one that replaces it have the same.
        process: its process id.
        path: of its socket; with ``.admin`` at its end of that for operators.
        retiring: it has been replaced, and still has what its clients have not acknowledged, and consumer instances.
    """

    number: int
    process: int
    path: str
    retiring: bool = False


def is_worker(headers: CIMultiDictProxy[str], secret: str) -> bool:
    """Return whether a request proves to be another worker's, once.

    Args:
        headers: its own.
        secret: that all workers share.
    """
    given = headers.getall(PROVING_HEADER, ())
    return len(given) == 1 and hmac.compare_digest(given[0].encode("utf-8", "replace"), secret.encode())


class WorkerSockets:
    """Connections to the other workers: implements :class:`pixy.engine.workers.Siblings`.

    Args:
        worker: this one.
        path: of this one's socket.
    """

    def __init__(self, worker: Worker, path: str) -> None:
        self.worker = worker
        self.path = path
        self.everybody: tuple[Sibling, ...] = ()
        """All workers that serve or retire, this one among them."""
        self._sessions: dict[str, aiohttp.ClientSession] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def update(self, everybody: Iterable[Sibling]) -> None:
        """Note who is there."""
        self.everybody = tuple(everybody)
        known = {each.path for each in self.everybody}
        for path in [path for path in self._sessions if path not in known]:
            task = asyncio.ensure_future(self._sessions.pop(path).close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    @property
    def others(self) -> list[Sibling]:
        """All but this one."""
        return [each for each in self.everybody if each.path != self.path]

    def current(self, number: int) -> Sibling | None:
        """Return the worker of a number; None: it has crashed, and is about to be started again."""
        found = [each for each in self.everybody if each.number == number and not each.retiring]
        return found[-1] if found else None

    def retiring(self, number: int) -> list[Sibling]:
        """Return other workers of a number that retire."""
        return [each for each in self.others if each.number == number and each.retiring]

    async def ack(self, stray: Stray) -> bool:
        """See :class:`pixy.engine.workers.Siblings`."""
        asked = [asyncio.ensure_future(self._ack(each.path, stray)) for each in self.others]
        try:
            for each in asyncio.as_completed(asked):
                if await each:
                    return True
        finally:
            for task in asked:
                task.cancel()
        return False

    async def _ack(self, path: str, stray: Stray) -> bool:
        session = self._sessions.get(path)
        if session is None:
            session = self._sessions[path] = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(path, limit=_MOST),
                timeout=aiohttp.ClientTimeout(total=_TIMEOUT),
                headers={PROVING_HEADER: self.worker.secret},
            )
        query = urlencode({name: str(value) for name, value in dataclasses.asdict(stray).items()})
        try:
            async with session.post(f"http://worker{ACKS}?{query}") as answer:
                return answer.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            logger.info("an ack for group %s does not reach the worker at %s: %s", stray.group, path, error)
            return False

    async def close(self) -> None:
        """Close the connections."""
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()


__all__ = ["ACKS", "ADMIN", "PROVING_HEADER", "Sibling", "WorkerSockets", "is_worker"]
