"""Read the configuration, keys and certificates again while the daemon serves: on SIGHUP, and when a file changes.

What is read again is used at once: rules, limits, groups of callers, severities of loggers; API keys and keys of tokens;
certificates, for new connections. Other changed keys are named in the log: they need a restart. What is wrong is said
in one line, and the part that it belongs to stays as it was. Files that somebody is writing are read when he has finished, and
hold up no others. A certificate that is not valid yet is read again once it is.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any, TypeVar

from pixy.auth.authenticator import Authenticator
from pixy.cli.logs import set_severities
from pixy.cli.watched_files import TRIES, WatchedFiles
from pixy.config import App
from pixy.config.secrets import sections
from pixy.config.validity import invalid_note
from pixy.engine.engine import Engine
from pixy.errors import ConfigError, NotValidNow, PixyError

logger = logging.getLogger("pixy")

T = TypeVar("T")

_APPLIED = ("rules", "limits", "auth.groups", "logging")
"""Keys whose changes are applied."""
_GENERATED = "client_id"
_PAUSE = 0.2
"""Seconds between two attempts."""


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
        self._config = WatchedFiles("configuration", config_file)
        self._keys = WatchedFiles("keys", app.auth.keys_file)
        self._token_keys = WatchedFiles("keys of tokens", app.auth.jwt.jwks_file)
        self._certificates = WatchedFiles(
            "certificates", tls.certificate_path, tls.key_path, tls.client_ca_path
        )
        self._all = (self._config, self._keys, self._token_keys, self._certificates)
        self._wanted = asyncio.Event()

    def request(self) -> None:
        """Reload soon. Several requests in a row are one."""
        self._wanted.set()

    async def run(self, engine: Engine) -> None:
        """Reload whenever it is requested, or files have changed, once they look the same twice; until cancelled."""
        while True:
            files: tuple[WatchedFiles, ...] = self._all
            try:
                async with asyncio.timeout(self._until_look()):
                    await self._wanted.wait()
            except TimeoutError:
                files = await asyncio.to_thread(self._look)
                if not files:
                    continue
            else:
                await self._settle()
            # Cleared first: a request during the reload may be about a file that it has read already.
            self._wanted.clear()
            try:
                await self.reload(engine, files)
            except Exception:
                logger.exception("reloading failed, not everything that has changed is in use")

    def _look(self) -> tuple[WatchedFiles, ...]:
        """Return the files to read: if some have changed, all but those that somebody is writing. Blocks."""
        changed = {each for each in self._all if each.look() and self._interval}
        if self._is_due():
            changed.add(self._certificates)
        return tuple(each for each in self._all if each in changed or (changed and each.at_rest))

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
        await asyncio.to_thread(self._look)
        for _ in range(TRIES - 1):
            await asyncio.sleep(_PAUSE)
            await asyncio.to_thread(self._look)
            if all(each.at_rest for each in self._all):
                return

    async def reload(self, engine: Engine, files: Collection[WatchedFiles] = ()) -> None:
        """Read files again, and log what came of it.

        Args:
            engine: gets what they say.
            files: those to read; empty: all.
        """
        steps = {
            self._config: self._reload_config,
            self._keys: self._reload_keys,
            self._token_keys: self._reload_token_keys,
            self._certificates: self._reload_certificates,
        }
        outcomes = {each: await step(engine) for each, step in steps.items() if not files or each in files}
        engine.reopen_logs()
        if False in outcomes.values():
            logger.warning(
                "reloaded only in part: correct what the errors before this line name, and reload again"
            )
            return
        if not (done := [each for each in outcomes if outcomes[each]]):
            return
        *others, last = dict.fromkeys("keys" if each is self._token_keys else each.what for each in done)
        logger.info("reloaded the %s", f"{', '.join(others)} and {last}" if others else last)

    async def _steady(self, files: WatchedFiles, read: Callable[[], Awaitable[T]]) -> T:
        """Read files that do not change meanwhile. Raises ConfigError if they always do, and what ``read`` raises."""
        for _ in range(TRIES):
            before = await asyncio.to_thread(files.now)
            found = await _attempt(read())
            if await asyncio.to_thread(files.now) == before:
                files.were_read(before)
                if isinstance(found, PixyError):
                    raise found
                return found
            await asyncio.sleep(_PAUSE)
        files.were_tried()
        raise ConfigError("the files change while they are read")

    async def _reload_config(self, engine: Engine) -> bool:
        try:
            app = await self._steady(self._config, lambda: asyncio.to_thread(self._read))
        except PixyError as error:
            _complain("rules, limits and severities", error)
            return False
        done = await self._try("rules and limits", lambda: asyncio.to_thread(engine.reload_rules, app))
        set_severities(app.logging)
        if changed := changed_keys(self._running, values_of(app)):
            logger.warning("reloading: these changes need a restart: %s", ", ".join(changed))
        return done

    async def _reload_keys(self, engine: Engine) -> bool:
        return await self._use_keys(engine, self._keys, Authenticator.read_api_keys)

    async def _reload_token_keys(self, engine: Engine) -> bool:
        return await self._use_keys(engine, self._token_keys, Authenticator.read_token_keys)

    async def _use_keys(
        self, engine: Engine, files: WatchedFiles, read: Callable[[Authenticator], Callable[[], None]]
    ) -> bool:
        try:
            use = await self._steady(files, lambda: engine.read_keys(read))
        except PixyError as error:
            _complain(files.what, error)
            return False
        use()
        return True

    async def _reload_certificates(self, engine: Engine) -> bool | None:
        """Read the certificates again. Return whether they are in use; None: they wait, or have expired, and valid ones stay."""
        self._valid_from = None
        try:
            await self._steady(self._certificates, engine.reload_certificates)
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


__all__ = ["Reloader", "changed_keys", "values_of"]
