"""What an assistant may ask the daemon, as tools of the Model Context Protocol: their names, arguments and answers. Read-only.

This module does not need the MCP SDK; :mod:`pixy.api.admin.mcp_endpoint` serves the tools with it.
"""

from __future__ import annotations

import asyncio
import heapq
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from actors.console import BadQuery
from pixy.api.admin.debug import SORTS, row_of
from pixy.console.actor_figures import SLICE, statistics_of
from pixy.console.readiness import Readiness
from pixy.console.sources import Sources
from pixy.console.watch import Watch
from pixy.engine.life.groups import Message
from pixy.engine.life.lives import Lives
from pixy.errors import InvalidParameter, PixyError

MOST: Final = 100
"""Rows in one answer; the answer says how many there are, and how to get the next ones."""
LONGEST: Final = 200_000
"""Characters of one answer."""
PATIENCE: Final = 15.0
"""Seconds that an answer may take."""
_LONGEST_ARGUMENT: Final = 300

_Ask = Callable[[Mapping[str, str]], Awaitable[dict[str, Any]]]

_CLUSTER: Final = {
    "type": "string",
    "description": "name of a Kafka cluster in the daemon's configuration; all of them by default",
}
_GROUP: Final = {"type": "string", "description": "name of a consumer group"}
_TOPIC: Final = {"type": "string", "description": "name of a topic"}
_PARTITION: Final = {"type": "integer", "minimum": 0, "description": "number of a partition"}
_PAGE: Final = {"type": "integer", "minimum": 1, "description": f"page of {MOST} rows; 1 by default"}


@dataclass(frozen=True, slots=True)
class Tool:
    """A question that an assistant may ask.

    Attributes:
        name: as the assistant calls it.
        title: for people.
        about: tells the assistant what the answer contains.
        arguments: JSON schemas by name; strings and whole numbers only.
        required: the arguments that must be there.
        ask: answers.
    """

    name: str
    title: str
    about: str
    arguments: Mapping[str, Mapping[str, Any]]
    required: tuple[str, ...]
    ask: _Ask

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments."""
        return {
            "type": "object",
            "properties": {name: dict(each) for name, each in self.arguments.items()},
            "required": list(self.required),
            "additionalProperties": False,
        }


class Tools:
    """The tools, answered from one engine.

    Args:
        watch: looks at the engine.
        readiness: knows whether it can serve.
        lives: tells lives of messages, and checks the caller's rights to them.
        cluster_name: returns the name of a cluster; of an empty name the default one's. Raises UnknownCluster.
    """

    def __init__(
        self, watch: Watch, readiness: Readiness, lives: Lives, cluster_name: Callable[[str], str]
    ) -> None:
        self._watch = watch
        self._sources = Sources(watch)
        self._readiness = readiness
        self._lives = lives
        self._cluster_name = cluster_name
        self.by_name: Final = {each.name: each for each in self._all()}

    def _all(self) -> list[Tool]:
        where = {"cluster": _CLUSTER, "group": _GROUP, "topic": _TOPIC}
        return [
            Tool(
                "findings",
                "Causes of trouble",
                "Causes of trouble that the daemon has found, errors first: each with a cause, what to do, since when (seconds since "
                "1970), where, and its evidence. Begin here. Also the state of each Kafka cluster and its brokers.",
                where,
                (),
                self._findings,
            ),
            Tool(
                "groups",
                "Consumer groups",
                "Consumer groups that the daemon consumes for, those in trouble first: partitions, waiting requests, un-acked "
                "messages and the age of the oldest, lag, its rate (messages a second) and seconds until it is drained.",
                {"name": {"type": "string", "description": "a part of the groups' names"}, "page": _PAGE},
                (),
                self._groups,
            ),
            Tool(
                "group",
                "One consumer group",
                "One consumer group: its topics with waiting requests, its partitions with position, lag and un-acked messages, its "
                "findings, and which members own which partitions, other daemons' and programs' included.",
                {"group": _GROUP, "cluster": _CLUSTER, "page": _PAGE},
                ("group",),
                self._group,
            ),
            Tool(
                "unacked_messages",
                "Messages that are out",
                "Messages of a group that were offered and not acknowledged: partition, offset, age, attempts, the client that has or "
                "had it, and seconds until it is offered again. With topic and partition, `after` goes on behind an offset.",
                {**where, "partition": _PARTITION, "after": {"type": "integer", "minimum": 0, "description": "an offset"}},
                ("group",),
                self._unacked,
            ),
            Tool(
                "trace_message",
                "The life of one message",
                "What happened to one message: when and by whom it was produced, to which clients of which groups it was offered, "
                "retries, acks and commits, and what is not known and why. Never its value.",
                {**where, "partition": _PARTITION, "offset": {"type": "integer", "minimum": 0, "description": "its offset"}},
                ("topic", "partition", "offset"),
                self._trace,
            ),
            Tool(
                "health",
                "Readiness",
                "Whether the daemon is ready, with each check and its reason: Kafka, groups that cannot consume, the event loop.",
                {},
                (),
                self._health,
            ),
            Tool(
                "actors",
                "Busy actors",
                "Actors of the daemon: what each handles and since when, its mailbox (depth, age of the oldest message), failures, "
                "restarts. By default those with the fullest mailboxes.",
                {
                    "pattern": {"type": "string", "description": "shell pattern of paths, such as /service/default/*"},
                    "sort": {"type": "string", "enum": list(SORTS)},
                },
                (),
                self._actors,
            ),
        ]  # fmt: skip

    async def call(self, name: str, arguments: Mapping[str, Any] | None) -> str:
        """Answer a question with JSON.

        Args:
            name: of a tool.
            arguments: as the assistant has sent them.

        Raises:
            PixyError: there is no such tool, an argument is wrong, the caller may not, or something does not answer.
        """
        tool = self.by_name.get(name)
        if tool is None:
            raise InvalidParameter(f"there is no tool {name[:100]!r}; there are {', '.join(self.by_name)}")
        query = _checked(tool, arguments or {})
        try:
            async with asyncio.timeout(PATIENCE):
                answer = await tool.ask(query)
        except BadQuery as problem:
            raise InvalidParameter(str(problem)) from None
        except TimeoutError:
            raise InvalidParameter(f"no answer within {PATIENCE:g} s") from None
        text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"), default=str)
        if len(text) > LONGEST:
            raise InvalidParameter(
                f"the answer has more than {LONGEST} characters: choose a group, topic or partition"
            )
        return text

    # -- the answers ---------------------------------------------------------------------------------

    async def _findings(self, query: Mapping[str, str]) -> dict[str, Any]:
        found = await self._sources.findings(query)
        found["findings"] = found["findings"][:MOST]
        return found

    async def _groups(self, query: Mapping[str, str]) -> dict[str, Any]:
        return await self._sources.groups(
            {"scope": query.get("name", ""), "page": query.get("page", "1"), "size": str(MOST)}
        )

    async def _group(self, query: Mapping[str, str]) -> dict[str, Any]:
        found = await self._sources.group({**query, "size": str(MOST)})
        members: dict[str, Any] = {}
        for each in found["topics"][:10]:
            topic = each["topic"]
            try:
                owned = await self._watch.inspector.members(found["cluster"], topic, found["group"])
            except PixyError as problem:
                members[topic] = {"unknown": str(problem)}
            else:
                members[topic] = dict(sorted(owned.items())[:MOST])
        return {**found, "members": members}

    async def _unacked(self, query: Mapping[str, str]) -> dict[str, Any]:
        return await self._sources.out({**query, "size": str(MOST)})

    async def _trace(self, query: Mapping[str, str]) -> dict[str, Any]:
        message = Message(
            self._cluster_name(query.get("cluster", "")),
            query["topic"],
            int(query["partition"]),
            int(query["offset"]),
        )
        story = await self._lives.trace(message, query.get("group", ""), None)
        return story.document()

    async def _health(self, _query: Mapping[str, str]) -> dict[str, Any]:
        found = await self._readiness.check()
        return {**found, "checks": found["checks"][:MOST]}

    async def _actors(self, query: Mapping[str, str]) -> dict[str, Any]:
        found = await statistics_of(self._watch.system, query.get("pattern") or "**")
        key = SORTS[query.get("sort") or "mailbox"]
        keys: list[Any] = []
        for at in range(0, len(found), SLICE):
            keys += map(key, found[at : at + SLICE])
            await asyncio.sleep(0)
        first = heapq.nsmallest(MOST, range(len(found)), key=keys.__getitem__)
        return {"total": len(found), "actors": [row_of(found[at]) for at in first]}


def _checked(tool: Tool, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return arguments as a query. Raises InvalidParameter."""
    query: dict[str, str] = {}
    for name, value in arguments.items():
        schema = tool.arguments.get(name)
        if schema is None:
            known = ", ".join(tool.arguments) or "none"
            raise InvalidParameter(f"{tool.name} has no argument {name[:100]!r}; its arguments are: {known}")
        if value is None:
            continue
        if schema["type"] == "integer":
            if type(value) is not int or not schema["minimum"] <= value < 2**63:
                raise InvalidParameter(f"{name} must be a whole number of {schema['minimum']} or more")
        elif not isinstance(value, str) or len(value) > _LONGEST_ARGUMENT:
            raise InvalidParameter(f"{name} must be a string of at most {_LONGEST_ARGUMENT} characters")
        elif value and value not in schema.get("enum", (value,)):
            raise InvalidParameter(f"{name} must be one of {', '.join(schema['enum'])}")
        query[name] = str(value)
    for name in tool.required:
        if not query.get(name):
            raise InvalidParameter(f"{tool.name} needs the argument {name}")
    return query


__all__ = ["LONGEST", "MOST", "Tool", "Tools"]
