"""The access log: a line for each request, also for those that are refused before anybody looks at what they ask for.

Refusals always have a line, up to a bound for strangers and one for known callers (:class:`pixy.auth.buckets.RefusalBound`); of the
other requests a share has one. Writing holds nobody up (:mod:`pixy.json_lines`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final

from pixy.auth.buckets import RefusalBound
from pixy.auth.principal import Caller, traceparent
from pixy.config import model
from pixy.config.security import AccessLog as Config
from pixy.errors import StartError
from pixy.json_lines import File, JsonLines

MAX_TEXT: Final = 500
"""Characters of a path or an error."""
GONE: Final = 499
"""The status of a request whose client has gone before it was answered."""


class AccessLog:
    """Writes lines about requests. For one thread.

    Args:
        config: the section ``access_log``, with a path.
        wall: seconds since 1970.
        clock: seconds.
        chance: a number from 0 to 1, another one each time.
    """

    def __init__(
        self,
        config: Config,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._path = config.path
        self._sample = config.sample
        self._wall = wall
        self.clock = clock
        self._chance = chance
        self._refusals = RefusalBound(clock)
        self._lines = JsonLines(File(config.path, "access_log.path"), config.max_queued, wall)

    def start(self) -> None:
        """Open the file and begin to write. Raises StartError."""
        try:
            self._lines.start()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise StartError(f"access_log.path: {self._path}: {reason}") from error

    def stop(self) -> None:
        """Write what waits, and end. Blocks, for some seconds at most."""
        self._lines.stop()

    def reopen(self) -> None:
        """Go on in a new file of the same name: the earlier one was renamed."""
        self._lines.target.reopen()

    def answered(
        self,
        listener: str,
        method: str,
        path: str,
        status: int | str,
        began: float,
        *,
        refused: bool,
        address: str,
        caller: Caller | None = None,
        trace: str = "",
        error: str = "",
    ) -> None:
        """Note a request that is over.

        Args:
            listener: its name, such as ``rest`` or ``grpc``.
            method: of HTTP, or of the gRPC service.
            path: of the HTTP request, without its query; empty for gRPC.
            status: of HTTP, or gRPC's name of it.
            began: when it began, by :attr:`clock`.
            refused: whether it was refused, so that it has a line whatever the sample.
            address: of the peer.
            caller: who was recognized.
            trace: the caller's W3C ``traceparent``.
            error: why it was refused.
        """
        if not (self._keeps_refusal(known=caller is not None and caller.known) if refused else self._draws()):
            return
        self._lines.put(
            {
                "time": self._wall(),
                "listener": listener,
                "method": method[:MAX_TEXT],
                "path": path[:MAX_TEXT],
                "status": status,
                "principal": None if caller is None else caller.principal.name,
                "address": address,
                "trace": traceparent(trace),
                "ms": round((self.clock() - began) * 1000, 3),
                "error": error[:MAX_TEXT],
            }
        )

    def refused(self, listener: str, status: int | str, address: str, error: str) -> None:
        """Note a connection, or a request of which no more is known, that was refused.

        Args:
            listener: its name.
            status: that it was answered with.
            address: of the peer.
            error: why.
        """
        if self._keeps_refusal(known=False):
            self._lines.put(
                {
                    "time": self._wall(),
                    "listener": listener,
                    "status": status,
                    "address": address,
                    "error": error[:MAX_TEXT],
                }
            )

    def _draws(self) -> bool:
        return self._sample >= 1 or self._chance() < self._sample

    def _keeps_refusal(self, *, known: bool) -> bool:
        if self._refusals.keeps(known=known):
            return True
        self._lines.drop()
        return False


def access_log_of(app: model.App) -> AccessLog | None:
    """Return the log that a configuration asks for, if it does."""
    return AccessLog(app.access_log) if app.access_log.path else None


__all__ = ["GONE", "AccessLog", "access_log_of"]
