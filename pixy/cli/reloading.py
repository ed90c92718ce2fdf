"""Read the configuration, keys and certificates again while the daemon serves: on SIGHUP, and when a file changes.

What is read again is used at once: rules, limits, groups of callers, severities of loggers; API keys and keys of tokens;
certificates, for new connections. Other changed keys are named in the log: they need a restart. What is wrong is said
in one line, and the part that it belongs to stays as it was. Files that somebody is writing are read when he has finished. A
certificate that is not valid yet is read again once it is.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from pixy.cli.logs import set_severities
from pixy.config import App
from pixy.config.secrets import sections
from pixy.config.validity import invalid_note
from pixy.engine.engine import Engine
from pixy.errors import NotValidNow, PixyError

logger = logging.getLogger("pixy")

T = TypeVar("T")

_APPLIED = ("rules", "limits", "auth.groups", "logging")
"""Keys whose changes are applied."""
_GENERATED = "client_id"
_TRIES = 5
"""Attempts at reading files that somebody is writing."""
_PAUSE = 0.2
"""Seconds between two attempts."""

Fingerprint = tuple[tuple[int, int, int] | None, ...]


def values_of(app: App) -> dict[str, Any]:
    """Return every value of a configuration by its key, in a form that later changes of ``app`` do not reach."""
    return {
        f"{path}{field.name}": repr(getattr(section, field.name))
        for section, path in sections(app)
        for field in dataclasses.fields(section)
        if not dataclasses.is_dataclass(getattr(section, field.name)) and field.name != "proxies"
    }


def changed_keys(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the keys whose changes need a restart. A generated client id is another one each time.

    Args:
        before: as returned by :func:`values_of`.
        after: likewise, of the configuration as it is now.
    """
    return sorted(
        key
        for key in before.keys() | after.keys()
        if key not in _APPLIED
        and before.get(key) != after.get(key)
        and not (
            key.endswith(_GENERATED) and "'kp_" in str(before.get(key)) and "'kp_" in str(after.get(key))
        )
    )


def fingerprint(paths: Iterable[str]) -> Fingerprint:
    """Return the time, size and inode of each file, to see whether it has changed; None for a missing one. Blocks."""

    def of(path: str) -> tuple[int, int, int] | None:
        try:
            found = os.stat(path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    return tuple(map(of, paths))


class Reloader:
    """Reads everything again for one engine.

    Args:
        app: the configuration that the engine was started with, as it was read.
        read: reads the configuration again. Blocks. Raises ConfigError.
        config_file: its path; empty if there is none.
    """

    def __init__(self, app: App, read: Callable[[], App], config_file: str) -> None:
        self._running = values_of(app)
        self._read = read
        self._interval = app.reload_interval
        self._tls = tls = app.tls
        self._valid_from: float | None = None
        """When a certificate becomes valid that waits for that, in seconds since 1970."""
        auth = app.auth
        keys = (auth.keys_file, auth.jwt.jwks_file)
        certificates = (tls.certificate_path, tls.key_path, tls.client_ca_path)
        self._paths = tuple(filter(None, (config_file, *keys, *certificates)))
        self._wanted = asyncio.Event()
        # At once: a change between now and the first look must not be taken for the state that was read.
        self._seen = fingerprint(self._paths)

    def request(self) -> None:
        """Reload soon. Several requests in a row are one."""
        self._wanted.set()

    async def run(self, engine: Engine) -> None:
        """Reload whenever it is requested, or a file has changed, once the files look the same twice; until cancelled."""
        looked = self._seen
        while True:
            try:
                async with asyncio.timeout(self._until_look()):
                    await self._wanted.wait()
            except TimeoutError:
                before, looked = looked, await asyncio.to_thread(fingerprint, self._paths)
                changed = bool(self._interval) and looked != self._seen
                if looked != before or not (changed or self._is_due()):
                    continue
            else:
                await self._settle()
            # Cleared first: a request during the reload may be about a file that it has read already.
            self._wanted.clear()
            self._seen = looked = await asyncio.to_thread(fingerprint, self._paths)
            try:
                await self.reload(engine)
            except Exception:
                logger.exception("reloading failed, not everything that has changed is in use")

    def _is_due(self) -> bool:
        return self._valid_from is not None and time.time() >= self._valid_from

    def _until_look(self) -> float | None:
        """Return the seconds until the next look; None: until somebody requests it."""
        if self._valid_from is None:
            return self._interval or None
        left = max(_PAUSE, self._valid_from - time.time())
        return min(left, self._interval or left)

    async def _settle(self) -> None:
        """Wait until the files look the same twice: whoever requests a reload may still be writing one, and half a file may be valid."""
        looked: Fingerprint | None = None
        for _ in range(_TRIES):
            before, looked = looked, await asyncio.to_thread(fingerprint, self._paths)
            if looked == before:
                return
            await asyncio.sleep(_PAUSE)

    async def reload(self, engine: Engine) -> None:
        """Read everything again, and log what came of it."""
        for _ in range(_TRIES):
            before = await asyncio.to_thread(fingerprint, self._paths)
            app = await _attempt(asyncio.to_thread(self._read))
            keys = await _attempt(engine.read_keys())
            if await asyncio.to_thread(fingerprint, self._paths) == before:
                break
            await asyncio.sleep(_PAUSE)
        else:
            logger.error("reloading: the files change while they are read, and everything stays as it was")
            return
        done = not isinstance(app, PixyError) and not isinstance(keys, PixyError)
        if isinstance(app, PixyError):
            _complain("rules, limits and severities", app)
        else:
            done &= await self._try("rules and limits", lambda: asyncio.to_thread(engine.reload_rules, app))
            set_severities(app.logging)
            changed = changed_keys(self._running, values_of(app))
            if changed:
                logger.warning("reloading: these changes need a restart: %s", ", ".join(changed))
        if isinstance(keys, PixyError):
            _complain("keys", keys)
        else:
            keys()
        certificates = await self._reload_certificates(engine)
        engine.reopen_logs()
        if done and certificates is not False:
            read = ", keys and certificates" if certificates else " and keys"
            logger.info("reloaded the configuration%s", read)
        else:
            logger.warning(
                "reloaded only in part: correct what the errors before this line name, and reload again"
            )

    async def _reload_certificates(self, engine: Engine) -> bool | None:
        """Read the certificates again. Return whether they are in use; None: they wait, or have expired, and valid ones stay."""
        self._valid_from = None
        try:
            await engine.reload_certificates()
        except NotValidNow as error:
            self._valid_from = error.since
            logger.warning("reloading: the certificates stay as they were: %s", error)
            return None
        except PixyError as error:
            _complain("certificates", error)
            return False
        if note := await asyncio.to_thread(invalid_note, self._tls):
            logger.warning("reloading: %s", note)
        return True

    async def _try(self, what: str, step: Callable[[], Awaitable[None]]) -> bool:
        try:
            await step()
        except PixyError as error:
            _complain(what, error)
            return False
        return True


async def _attempt(reading: Awaitable[T]) -> T | PixyError:
    try:
        return await reading
    except PixyError as error:
        return error


def _complain(what: str, error: Exception) -> None:
    logger.error("reloading: the %s stay as they were: %s", what, " ".join(str(error).split()))


__all__ = ["Reloader", "changed_keys", "fingerprint", "values_of"]
