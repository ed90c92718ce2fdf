"""``/actions``: what an operator may do to the running daemon, if ``admin_actions`` is on.

Each action needs the verb ``admin`` on what it is done to, the name of the group once more as ``confirm``, and leaves a line in the log and
a record in the audit log, also if it fails.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from pixy.api.admin.access import ACTIONS, error
from pixy.api.admin.queries import Wrong, number, text
from pixy.api.edge.callers import address_share
from pixy.api.rest.responses import status_of
from pixy.auth.rules import Access
from pixy.config.model import App
from pixy.engine.guard import Guard
from pixy.engine.operator import Operator, Place
from pixy.errors import Forbidden, IllegalState, InvalidParameter, PixyError
from pixy.escaping import escaped

logger = logging.getLogger("pixy.api")

Action = Callable[[web.Request, str], Awaitable[dict[str, Any]]]


class Actions:
    """The handlers.

    Args:
        operator: acts.
        guard: knows rights, and has the audit log; None: everybody may do everything.
        config: whether there are actions at all, and the default cluster.
    """

    def __init__(self, operator: Operator, guard: Guard | None, config: App) -> None:
        self._operator = operator
        self._guard = guard
        self._config = config

    def routes(self) -> list[web.RouteDef]:
        """List the routes."""
        return [
            web.get("/actions", self.describe),
            web.post("/actions/pause", self._action("pause", self._pause)),
            web.post("/actions/resume", self._action("resume", self._resume)),
        ]

    async def describe(self, request: web.Request) -> web.Response:
        """Say whether there are actions, and whether the caller may use them on ``group`` (of ``cluster``), or on all of them."""
        guard, enabled = self._guard, self._config.admin_actions
        allowed = enabled
        if enabled and guard is not None:
            place = _place(request, self._config)
            topic = None if place.partition is None else place.partition[0]
            allowed = guard.allows(guard.caller(), Access("admin", place.cluster, topic, place.group or None))
        return web.json_response({"enabled": enabled, "allowed": allowed, "actions": list(ACTIONS)})

    def _action(self, name: str, action: Action) -> Callable[[web.Request], Awaitable[web.Response]]:
        """Return a handler that does something to a group, or refuses to."""

        async def handler(request: web.Request) -> web.Response:
            try:
                if not self._config.admin_actions:
                    raise Forbidden("actions are off; set admin_actions: true in the daemon's configuration")
                place = _place(request, self._config)
                by = self._who(request)
                with self._noted(name, place, by):
                    _check_confirmed(request, place.group)
                    return web.json_response(await action(request, by))
            except IllegalState as problem:
                return error(409, str(problem))
            except PixyError as problem:
                return error(status_of(problem), str(problem))

        return handler

    @contextmanager
    def _noted(self, name: str, place: Place, by: str) -> Iterator[None]:
        """Permit an action, and leave a line in the log and a record in the audit log."""
        what = f"{name} of group {place.group}"
        if place.partition is not None:
            what += " in {}/{}".format(*place.partition)
        try:
            if self._guard is None:
                yield
            else:
                with self._guard.act(self._guard.caller(), self._access(place), name):
                    yield
        except PixyError as problem:
            logger.warning("admin action by %s: %s: refused: %s", *map(escaped, (by, what, str(problem))))
            raise
        logger.warning("admin action by %s: %s: done", *map(escaped, (by, what)))

    @staticmethod
    def _access(place: Place) -> Access:
        topic = None if place.partition is None else place.partition[0]
        return Access("admin", place.cluster, topic, place.group)

    def _who(self, request: web.Request) -> str:
        if self._guard is not None:
            return self._guard.caller().principal.name
        return address_share(request) or "somebody without a name"

    # -- the actions ----------------------------------------------------------------------------------

    async def _pause(self, request: web.Request, by: str) -> dict[str, Any]:
        return await self._operator.pause(_place(request, self._config), by)

    async def _resume(self, request: web.Request, _by: str) -> dict[str, Any]:
        return await self._operator.resume(_place(request, self._config))


def _place(request: web.Request, config: App) -> Place:
    """Read what an action is done to: ``group``, and maybe ``cluster``, or ``topic`` and ``partition``."""
    topic = text(request, "topic")
    if bool(topic) != ("partition" in request.query):
        raise Wrong("topic and partition go together")
    partition = (topic, number(request, "partition", 0, 0, 2**31 - 1)) if topic else None
    return Place(config.cluster_name(text(request, "cluster")), text(request, "group"), partition)


def _check_confirmed(request: web.Request, name: str) -> None:
    if not name:
        raise InvalidParameter("group is missing")
    if text(request, "confirm") != name:
        raise InvalidParameter("confirm must repeat the name of the group: nothing was done")


__all__ = ["Actions"]
