"""``/actions``: what an operator may do to the running daemon, if ``admin_actions`` is on.

Each action needs the verb ``admin`` on what it is done to, the name of the group once more as ``confirm``, and leaves a line in the log and
a record in the audit log, also if it fails.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from aiohttp import web

from pixy.api.admin import hop
from pixy.api.admin.access import ACTIONS, Handler, error
from pixy.api.admin.queries import Wrong, number, offset, text
from pixy.api.edge.callers import address_share
from pixy.api.rest.responses import status_of
from pixy.auth.patterns import EVERYTHING
from pixy.auth.rules import Access
from pixy.config.model import App
from pixy.engine.guard import Guard
from pixy.engine.operator import Operator, Place
from pixy.engine.unanswered import Unanswered
from pixy.errors import Forbidden, IllegalState, InvalidParameter, PixyError
from pixy.escaping import escaped

logger = logging.getLogger("pixy.api")

_LATEST: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""
_PATH: Final = 600
"""Characters of an actor's path in the log and the audit log."""
_TIMES: Final = {"end": -1, "beginning": -2}

_CREATES: Final = "reset"
"""The action that makes a group of Kafka's where there is none."""

_WHERE: Final = ("group", "confirm", "cluster")
_DESCRIBED: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "pause": (
        (*_WHERE, "topic", "partition"),
        "offer no more messages of a group, or of one of its partitions; acks count",
    ),
    "resume": ((*_WHERE, "topic", "partition"), "offer messages again"),
    "give-back": (
        (*_WHERE, "topic", "partition", "offset"),
        "take a message from the client that has it: the next request gets it",
    ),
    "drain": (_WHERE, "have this daemon's member leave the group; the next request has it join again"),
    "reset": (
        (*_WHERE, "topic", "time"),
        "set the group's offsets in a topic by a time: milliseconds since 1970, beginning or end",
    ),
    "restart": (("path", "confirm"), "restart an actor; confirm is the last part of its path"),
    "sampler": (
        ("on", "confirm"),
        "search for code that blocks the event loop, or stop that: on is true or false, confirm is sampler",
    ),
}
"""Parameters and meaning of each action."""

Action = Callable[[web.Request, Place, str], Awaitable[dict[str, Any]]]


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
        self._unanswered = Unanswered() if guard is None else guard.unanswered

    def routes(self) -> list[web.RouteDef]:
        """List the routes."""
        actions: dict[str, Action] = {
            "pause": self._pause,
            "resume": self._resume,
            "give-back": self._give_back,
            "drain": self._drain,
            "reset": self._reset,
        }
        assert actions.keys() == set(ACTIONS) == _DESCRIBED.keys() - {"restart", "sampler"}
        made = [web.post(f"/actions/{name}", self._action(name, each)) for name, each in actions.items()]
        return [
            web.get("/actions", self.describe),
            *made,
            web.post("/actions/restart", self._of_daemon("restart", self._restart)),
            web.post("/actions/sampler", self._of_daemon("sampler", self._sampler)),
        ]

    async def describe(self, request: web.Request) -> web.Response:
        """Describe the actions, and whether the caller may use them: on ``group`` (of ``cluster``) or any group, and on the daemon.

        For who may act on the daemon: whether the sampler runs, and whether the actor at ``path`` can be restarted.
        """
        place = self._place(request)
        allowed = self._allows(Access("admin", place.cluster, place.topic or None, place.group or None))
        daemon: dict[str, Any] = {"allowed": self._allows(*self._everything())}
        if daemon["allowed"]:
            daemon["sampler"] = self._operator.sampling
            if path := text(request, "path"):
                daemon["restartable"] = self._operator.restartable(path)
        described = [
            {
                "action": name,
                "method": "POST",
                "path": f"/actions/{name}",
                "parameters": parameters,
                "does": does,
            }
            for name, (parameters, does) in _DESCRIBED.items()
        ]
        return web.json_response(
            {
                "enabled": self._config.admin_actions,
                "allowed": allowed,
                "daemon": daemon,
                "actions": described,
            }
        )

    def _allows(self, *accesses: Access) -> bool:
        """Whether there are actions, and the caller may use them there."""
        guard = self._guard
        return self._config.admin_actions and (
            guard is None or all(guard.allows(guard.caller(), each) for each in accesses)
        )

    def _everything(self) -> list[Access]:
        """The rights that the daemon itself needs. An actor's path tells of any cluster."""
        return [Access("admin", name, EVERYTHING, EVERYTHING) for name in self._config.proxies]

    def _on_daemon(self) -> Access:
        return Access("admin", self._config.cluster_name(""), EVERYTHING, EVERYTHING)

    def _of_daemon(self, name: str, action: Callable[[web.Request, str], dict[str, Any]]) -> Handler:
        """Return a handler that does something to the daemon itself. Who may do everything was checked before (:class:`Gatekeeper`)."""

        async def handler(request: web.Request) -> web.Response:
            try:
                self._check_on()
                by, path = self._who(request), text(request, "path")[:_PATH]
                with self._noted(f"{name} {path}".strip(), "the daemon", self._on_daemon(), by):
                    return web.json_response(action(request, by))
            except IllegalState as problem:
                return error(409, str(problem))
            except PixyError as problem:
                return error(status_of(problem), str(problem))

        return handler

    def _check_on(self) -> None:
        if not self._config.admin_actions:
            raise Forbidden("actions are off; set admin_actions: true in the daemon's configuration")

    def _action(self, name: str, action: Action) -> Callable[[web.Request], Awaitable[web.Response]]:
        """Return a handler that does something to a group, or refuses to."""

        async def handler(request: web.Request) -> web.Response:
            try:
                self._check_on()
                place = self._place(request)
                by = self._who(request)
                # Whoever goes meanwhile stops nothing half-way, and the logs tell what came of it.
                done = await self._unanswered.carry_out(self._act(name, action, request, place, by))
                return web.json_response(done)
            except IllegalState as problem:
                return error(409, str(problem))
            except PixyError as problem:
                return error(status_of(problem), str(problem))

        return handler

    async def _act(
        self, name: str, action: Action, request: web.Request, place: Place, by: str
    ) -> dict[str, Any]:
        access = Access("admin", place.cluster, place.topic or None, place.group)
        with self._noted(name, str(place), access, by):
            _check_confirmed(request, place.group, "group")
            return await action(request, place, by)

    @contextmanager
    def _noted(self, name: str, what: str, access: Access, by: str) -> Iterator[None]:
        """Permit an action, and leave a line in the log and a record in the audit log."""
        try:
            if self._guard is None:
                yield
            else:
                with self._guard.act(self._guard.caller(), access, name, creates=name == _CREATES):
                    yield
        except PixyError as problem:
            logger.warning(
                "admin action by %s: %s of %s: refused: %s",
                *map(escaped, (by, name, what, str(problem))),
            )
            raise
        logger.warning("admin action by %s: %s of %s: done", *map(escaped, (by, name, what)))

    def _place(self, request: web.Request) -> Place:
        """Read what an action is done to."""
        topic = text(request, "topic")
        partition = number(request, "partition", 0, 0, 2**31 - 1) if "partition" in request.query else None
        if partition is not None and not topic:
            raise Wrong("partition needs topic")
        cluster = self._config.cluster_name(text(request, "cluster"))
        return Place(cluster, text(request, "group"), topic, partition)

    def _who(self, request: web.Request) -> str:
        if self._guard is not None:
            return self._guard.caller().principal.name
        # Only another worker reaches a listener whose connections have no address.
        return address_share(request) or request.headers.get(hop.ADDRESS, "") or "somebody without a name"

    # -- the actions ----------------------------------------------------------------------------------

    async def _pause(self, _request: web.Request, place: Place, by: str) -> dict[str, Any]:
        _check_parts(place, (False, False), (True, True))
        return await self._operator.pause(place, by)

    async def _resume(self, _request: web.Request, place: Place, _by: str) -> dict[str, Any]:
        _check_parts(place, (False, False), (True, True))
        return await self._operator.resume(place)

    async def _give_back(self, request: web.Request, place: Place, _by: str) -> dict[str, Any]:
        _check_parts(place, (True, True))
        return await self._operator.give_back(place, offset(request))

    async def _drain(self, _request: web.Request, place: Place, _by: str) -> dict[str, Any]:
        _check_parts(place, (False, False))
        return await self._operator.drain(place)

    async def _reset(self, request: web.Request, place: Place, _by: str) -> dict[str, Any]:
        _check_parts(place, (True, False))
        named = text(request, "time")
        if named in _TIMES:
            return await self._operator.reset(place, _TIMES[named])
        if not named.isascii() or not named.isdecimal() or len(named) > 15 or int(named) > _LATEST:
            raise Wrong("time must be milliseconds since 1970, beginning or end")
        return await self._operator.reset(place, int(named))

    def _restart(self, request: web.Request, by: str) -> dict[str, Any]:
        path = text(request, "path")
        _check_confirmed(request, path.rpartition("/")[2], "actor")
        return self._operator.restart(path, by)

    def _sampler(self, request: web.Request, _by: str) -> dict[str, Any]:
        _check_confirmed(request, "sampler", "sampler")
        wanted = text(request, "on")
        if wanted not in ("true", "false"):
            raise Wrong("on must be true or false")
        return self._operator.sample(wanted == "true")


def _check_parts(place: Place, *allowed: tuple[bool, bool]) -> None:
    """Raise Wrong unless a request names topic and partition as its action needs them."""
    if (bool(place.topic), place.partition is not None) not in allowed:
        words = {(False, False): "neither", (True, True): "both", (True, False): "only topic"}
        wanted = " or ".join(words[each] for each in allowed)
        raise Wrong(f"of topic and partition, this action takes {wanted}")


def _check_confirmed(request: web.Request, name: str, what: str) -> None:
    if not name:
        raise InvalidParameter(f"{what} is missing")
    if text(request, "confirm") != name:
        raise InvalidParameter(f"confirm must repeat the name of the {what}: nothing was done")


__all__ = ["Actions"]
