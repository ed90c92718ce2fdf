"""Who watches what: topics, their watchers, and the tick that reads each topic once for all its watchers.

A topic is a source with a query. The hub reads it once per tick and encodes it once, however many pages watch it. A
watcher keeps only the newest frame of each topic: a slow page skips frames, so nothing piles up. Without a
watcher there is no task, no timer and no look at the actors.

Everything here belongs to the thread of the system's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from actors._errors import ActorError
from actors.console.extension import BadQuery, Query, Source

logger = logging.getLogger("actors")

INTERVAL = 1.0
"""Seconds between two ticks."""

SOURCE_TIMEOUT = 10.0
"""Seconds that a source may take. Its topic skips ticks meanwhile; the other topics do not wait for it."""

MAX_WATCHERS = 64
"""Most pages that watch at one time."""

MAX_TOPICS = 8
"""Most topics of one watcher."""

MAX_FRAME = 4 * 1024 * 1024
"""Most characters of one frame; a source that returns more is an error."""

TOPICS_A_TICK = 64
"""Most topics that are read between two ticks, at even distances. With more of them, each is read less often."""

MAX_READS = 8
"""Most requests for JSON that are answered at one time; further ones are refused."""

Activity = Callable[[], contextlib.AbstractContextManager[object]]
"""Switches on what a source needs, such as counting messages, for as long as someone watches it."""


Turn = Callable[[], Awaitable[object]]
"""Waits until others have had their turn of the loop."""


async def next_turn() -> None:
    """Let the loop turn once."""
    await asyncio.sleep(0)


class TooMany(ActorError):
    """A bound of the console is reached; the text says which."""


class Watcher:
    """The frames that wait for one page: at most one, the newest, of each topic."""

    def __init__(self) -> None:
        self.topics: dict[int, Topic] = {}
        self.skipped = 0
        """Number of frames that a newer one has replaced before the page took them."""
        self.closed = False
        self._frames: dict[int, str] = {}
        self._ready = asyncio.Event()

    def put(self, number: int, text: str) -> None:
        """Leave a frame for the page, in place of an older one of the same subscription."""
        self.skipped += number in self._frames
        self._frames[number] = f'{{"id":{number},{text[1:]}'
        self._ready.set()

    def forget(self, number: int) -> None:
        """Drop the frame of a subscription that has ended."""
        self._frames.pop(number, None)

    def close(self) -> None:
        """Wake up whoever takes the frames, for the last time."""
        self.closed = True
        self._ready.set()

    async def take(self) -> list[str]:
        """Wait for frames and take them; an empty list means the end."""
        await self._ready.wait()
        self._ready.clear()
        frames, self._frames = list(self._frames.values()), {}
        return [] if self.closed else frames


class Topic:
    """A source with a query, and who watches it."""

    def __init__(self, name: str, query: Query) -> None:
        self.name = name
        self.query = query
        self.watchers: dict[tuple[Watcher, int], None] = {}
        self.text: str | None = None
        self.task: asyncio.Task[None] | None = None


class Hub:
    """The topics that are watched.

    Args:
        sources: by name.
        activities: by the source's name; entered when its first topic comes, left when its last goes.
        on_watched: entered with the first watched topic of all, left with the last.
        interval: seconds between two ticks.
        turn: waits for the turn to read a topic, or to handle a message of a page.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        *,
        activities: Mapping[str, Activity] | None = None,
        on_watched: Activity = contextlib.nullcontext,
        interval: float = INTERVAL,
        turn: Turn = next_turn,
    ) -> None:
        self.sources = sources
        self.interval = interval
        self.watchers: dict[Watcher, None] = {}
        self.late = 0.0
        """Seconds that the last tick came too late: how long the loop made it wait."""
        self._activities = activities or {}
        self._on_watched = on_watched
        self._topics: dict[tuple[str, tuple[tuple[str, str], ...]], Topic] = {}
        self._active: dict[str, contextlib.ExitStack] = {}
        self._ticker: asyncio.Task[None] | None = None
        self._due: dict[Topic, None] = {}
        """Topics that wait to be read, in this order."""
        self._reader: asyncio.Task[None] | None = None
        self.turn = turn
        self._reads = 0

    # -- watchers -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def joined(self) -> Any:
        """Let a watcher in for a ``with`` block.

        Raises:
            TooMany: there are ``MAX_WATCHERS`` already.
        """
        if len(self.watchers) >= MAX_WATCHERS:
            raise TooMany(f"{MAX_WATCHERS} pages watch already")
        watcher = Watcher()
        self.watchers[watcher] = None
        try:
            yield watcher
        finally:
            del self.watchers[watcher]
            watcher.close()
            for number in tuple(watcher.topics):
                self.unwatch(watcher, number)

    def watch(self, watcher: Watcher, number: int, name: str, query: Query) -> None:
        """Send a watcher the frames of a topic, the first one as soon as it is read.

        Args:
            watcher: the watcher.
            number: its own number for this subscription; a former one of that number ends.
            name: the source's name.
            query: for the source.

        Raises:
            BadQuery: there is no such source.
            TooMany: the watcher has ``MAX_TOPICS`` already.
        """
        self.unwatch(watcher, number)
        if name not in self.sources:
            raise BadQuery(f"there is no source {name[:100]!r}")
        if len(watcher.topics) >= MAX_TOPICS:
            raise TooMany(f"a page watches {MAX_TOPICS} topics at most")
        key = name, tuple(sorted(query.items()))
        topic = self._topics.get(key)
        if topic is None:
            topic = self._topics[key] = Topic(name, query)
        topic.watchers[watcher, number] = None
        watcher.topics[number] = topic
        self._adjust()
        if topic.text is not None:
            watcher.put(number, topic.text)
        else:
            self._read_soon(topic)

    def unwatch(self, watcher: Watcher, number: int) -> None:
        """End a subscription; do nothing if there is none of that number."""
        watcher.forget(number)
        topic = watcher.topics.pop(number, None)
        if topic is None:
            return
        del topic.watchers[watcher, number]
        if not topic.watchers:
            del self._topics[topic.name, tuple(sorted(topic.query.items()))]
            self._due.pop(topic, None)
            if topic.task is not None:
                topic.task.cancel()
        self._adjust()

    def close(self) -> None:
        """End the streams of all watchers."""
        for watcher in tuple(self.watchers):
            watcher.close()

    @property
    def ticking(self) -> bool:
        """Tell whether anything is watched."""
        return self._ticker is not None

    def _adjust(self) -> None:
        """Switch on what the topics need, and off what none needs any more."""
        wanted = {topic.name: self._activities.get(topic.name) for topic in self._topics.values()}
        for name in [each for each in self._active if each and each not in wanted]:
            self._active.pop(name).close()
        if not wanted:
            if self._ticker is not None:
                self._ticker.cancel()
                self._ticker = None
            if self._reader is not None:
                self._reader.cancel()
                self._reader = None
            if "" in self._active:
                self._active.pop("").close()
            return
        if "" not in self._active:
            self._enter("", self._on_watched)
        for name, activity in wanted.items():
            if activity is not None and name not in self._active:
                self._enter(name, activity)
        if self._ticker is None:
            self._ticker = asyncio.get_running_loop().create_task(self._tick(), name="actors.console")

    def _enter(self, name: str, activity: Activity) -> None:
        stack = self._active[name] = contextlib.ExitStack()
        stack.enter_context(activity())

    # -- reading ------------------------------------------------------------------------------

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + self.interval
            await asyncio.sleep(self.interval)
            self.late = max(0.0, loop.time() - due)
            for topic in self._topics.values():
                self._read_soon(topic)

    def _read_soon(self, topic: Topic) -> None:
        self._due.setdefault(topic)
        if self._reader is None or self._reader.done():
            self._reader = asyncio.get_running_loop().create_task(
                self._read_due(), name="actors.console.reader"
            )

    async def _read_due(self) -> None:
        """Begin to read the topics that wait, one after another."""
        while self._due:
            await self.turn()
            topic = next(iter(self._due), None)
            if topic is not None:
                del self._due[topic]
                self._start(topic)
            await asyncio.sleep(self.interval / TOPICS_A_TICK)

    def _start(self, topic: Topic) -> None:
        if topic.task is None or topic.task.done():
            topic.task = asyncio.get_running_loop().create_task(
                self._refresh(topic), name="actors.console.topic"
            )

    async def _refresh(self, topic: Topic) -> None:
        topic.text = await self._text(topic.name, topic.query)
        for watcher, number in tuple(topic.watchers):
            watcher.put(number, topic.text)

    async def read(self, name: str, query: Query) -> str:
        """Read a source once, for a request.

        Args:
            name: the source's name.
            query: for it.

        Raises:
            BadQuery: there is no such source.
            TooMany: ``MAX_READS`` requests are being answered.
        """
        if name not in self.sources:
            raise BadQuery(f"there is no source {name[:100]!r}")
        if self._reads >= MAX_READS:
            raise TooMany(f"{MAX_READS} requests are being answered already")
        self._reads += 1
        try:
            return await self._text(name, query)
        finally:
            self._reads -= 1

    async def _text(self, name: str, query: Query) -> str:
        """Read and encode a source: an object with ``at`` (seconds since 1970) and ``data`` or ``error``."""
        at = time.time()
        try:
            async with asyncio.timeout(SOURCE_TIMEOUT):
                data = await self.sources[name](query)
            text = json.dumps(
                {"at": at, "data": data}, default=_type_name, separators=(",", ":"), allow_nan=False
            )
            if len(text) <= MAX_FRAME:
                return text
            error = f"{name} has more than {MAX_FRAME} characters to say: narrow the scope"
        except BadQuery as wrong:
            error = str(wrong)
        except TimeoutError:
            error = f"{name} has not answered within {SOURCE_TIMEOUT:g} s"
        except Exception as failure:
            logger.warning("the console's source %s failed", name, exc_info=failure)
            error = f"{name} failed: {type(failure).__name__}"
        return json.dumps({"at": at, "error": error[:1000]}, separators=(",", ":"))


def _type_name(thing: object) -> str:
    return type(thing).__name__


__all__ = ["Hub", "TooMany", "Turn", "Watcher", "next_turn"]
