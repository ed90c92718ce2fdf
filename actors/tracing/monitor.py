"""A stream of what happens in a system, for a console: see :mod:`actors.tracing.protocol`.

Watchers with the same filter share a group: it looks at its actors once per tick and packs each
frame once, whoever reads it. Without a watcher (or with paused ones only) there is no timer, no
subscription to events, and nothing is looked at.

All of it belongs to the system's loop: call it there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any

from actors._errors import ActorError
from actors._events import Event
from actors.tracing import protocol
from actors.tracing.asks import wait_graph
from actors.tracing.flow import Flow
from actors.tracing.group import Group, frame
from actors.tracing.protocol import Redact
from actors.tracing.watcher import SlowWatcher, Watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from actors._system import ActorSystem
    from actors.tracing.spans import Trace, Tracer

INTERVAL = 1.0
"""Seconds between two ticks."""

MAX_ROWS = 10_000
"""Actors that one watcher may see."""

MAX_PAGES = 200
"""Pages of one snapshot: all of them have to fit into a watcher's buffer."""

MAX_WATCHERS = 64
MAX_EVENTS = 1_000
"""Events kept between two ticks; more are counted."""

MAX_TRACES = 100
"""Finished traces kept between two ticks; more are counted."""


class Monitor:
    """Serves watchers: ``async with monitor.watch(pattern="/service/*") as watcher``.

    Args:
        system: what to look at.
        tracer: whose finished traces are sent, if any. It has to be installed by whoever wants it.
        redact: what is shown of a message or an error in an event; by default its type's name.
        interval: seconds between two ticks.
    """

    def __init__(
        self,
        system: ActorSystem,
        *,
        tracer: Tracer | None = None,
        redact: Redact = protocol.type_name,
        interval: float = INTERVAL,
    ) -> None:
        self.system = system
        self.tracer = tracer
        self.redact = redact
        self.interval = interval
        self.disconnected = 0
        """Watchers that were cut off because they were slow."""
        self._groups: dict[tuple[str, int, int], Group] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._unsubscribe: list[Callable[[], None]] = []
        self._events: deque[Event] = deque()
        self._traces: deque[Trace] = deque()
        self._lost_events = self._lost_traces = 0
        self.flow = Flow(system)
        self._counting = contextlib.ExitStack()
        self._counts = False

    def watch(
        self,
        pattern: str = "*",
        *,
        page: int = 500,
        max_rows: int = MAX_ROWS,
        asks: bool = False,
        flow: bool = False,
    ) -> Watcher:
        """A watcher; it begins with ``async with``.

        Args:
            pattern: a shell pattern for paths, such as ``/service/*``; ``*`` matches slashes, too.
            page: rows of one frame of a snapshot.
            max_rows: actors to see at most, those that were there first.
            asks: send the wait graph with each tick, too.
            flow: send the edges between classes, too. Counting them begins with the first watcher
                that wants them; every message costs more meanwhile.

        Raises:
            ValueError: the bounds do not fit (see ``MAX_ROWS`` and ``MAX_PAGES``).
        """
        if not 1 <= max_rows <= MAX_ROWS:
            raise ValueError(f"max_rows is 1 to {MAX_ROWS}, not {max_rows}")
        if page < 1 or -(-max_rows // page) > MAX_PAGES:
            raise ValueError(f"pages of {page} rows: {max_rows} rows make more than {MAX_PAGES}")
        return Watcher(self, pattern, page, max_rows, asks=asks, flow=flow)

    @property
    def watchers(self) -> int:
        """How many watch, paused ones included."""
        return sum(len(group.watchers) for group in self._groups.values())

    def close(self) -> None:
        """End all streams."""
        for group in tuple(self._groups.values()):
            for watcher in tuple(group.watchers):
                watcher.leave()

    # -- watchers come and go -------------------------------------------------------------------

    def join(self, watcher: Watcher) -> None:
        """A watcher begins.

        Raises:
            ActorError: there are ``MAX_WATCHERS`` already.
        """
        if self.watchers >= MAX_WATCHERS:
            raise ActorError(f"{MAX_WATCHERS} watchers watch already")
        group = self._groups.get(watcher.filter)
        if group is None:
            group = self._groups[watcher.filter] = Group(self.system, *watcher.filter)
        group.watchers.append(watcher)
        self.catch_up(watcher)

    def catch_up(self, watcher: Watcher) -> None:
        """A watcher begins, or goes on after a pause: it gets a snapshot."""
        group = self._groups[watcher.filter]
        if not any(each is not watcher for each in group.active()):
            group.look(self.system.clock())  # nobody kept it up to date
        for packed in group.snapshot():
            watcher.put(packed)
        self.adjust()

    def leave(self, watcher: Watcher) -> None:
        """A watcher ends."""
        group = self._groups.get(watcher.filter)
        if group is not None and watcher in group.watchers:
            group.watchers.remove(watcher)
            if not group.watchers:
                del self._groups[watcher.filter]
        self.adjust()

    def adjust(self) -> None:
        """Have the timer and the subscriptions if somebody watches, else not."""
        active = [each for group in self._groups.values() for each in group.active()]
        wanted = bool(active)
        if not any(each.flow for each in active):
            self._counting.close()
        elif not self._counts:
            self._counting.enter_context(self.flow.watch())
            self._counting.callback(setattr, self, "_counts", False)
            self._counts = True
        if wanted and self._timer is None:
            self._timer = self.system.loop.call_later(self.interval, self._tick)
            self._unsubscribe = [self.system.events.subscribe(self._happened)]
            if self.tracer is not None:
                self._unsubscribe.append(self.tracer.listen(self._traced))
        elif not wanted and self._timer is not None:
            self._timer.cancel()
            self._timer = None
            for end in self._unsubscribe:
                end()
            self._unsubscribe = []
            self._events.clear()
            self._traces.clear()
            self._lost_events = self._lost_traces = 0

    # -- what is collected between ticks; from any thread -----------------------------------------

    def _happened(self, event: Event) -> None:
        if len(self._events) < MAX_EVENTS:
            self._events.append(event)
        else:
            self._lost_events += 1

    def _traced(self, trace: Trace) -> None:
        if len(self._traces) < MAX_TRACES:
            self._traces.append(trace)
        else:
            self._lost_traces += 1

    # -- the tick -------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._timer = self.system.loop.call_later(self.interval, self._tick)
        now = self.system.clock()
        events = [(protocol.path_of(each), self._shown(each)) for each in _drain(self._events)]
        traces = _drain(self._traces)
        lost = self._lost_events, self._lost_traces
        self._lost_events = self._lost_traces = 0
        opened: dict[str, bytes] = {}
        for group in tuple(self._groups.values()):
            if group.active():
                group.send(_frames(group, now, events, traces, lost))
                for watcher in group.active():
                    self._send_details(watcher, now, opened)
        self._send_graphs(now)

    def _send_graphs(self, now: int) -> None:
        active = [each for group in self._groups.values() for each in group.active()]
        if asking := [each for each in active if each.asks]:
            packed = frame("asks", now, **wait_graph(self.system))
            for watcher in asking:
                watcher.put(packed)
        if flowing := [each for each in active if each.flow]:
            edges = [protocol.edge(each) for each in self.flow.edges()]
            packed = frame("flow", now, edges=edges, beyond=self.flow.beyond)
            for watcher in flowing:
                watcher.put(packed)

    def _shown(self, event: Event) -> dict[str, Any]:
        try:
            return protocol.event(event, self.redact)
        except Exception as error:  # somebody's own redact must not end the stream
            return {"type": type(event).__name__, "redact_failed": type(error).__name__}

    def _send_details(self, watcher: Watcher, now: int, packed: dict[str, bytes]) -> None:
        for path in watcher.opened:
            if path not in packed:
                packed[path] = self.details(path, now)
            watcher.put(packed[path])

    def details(self, path: str, now: int) -> bytes:
        """A ``details`` frame."""
        ref = self.system.lookup(path)
        actor = None if ref is None else protocol.details(ref._cell)
        return frame("details", now, path=path, actor=actor)


def _frames(
    group: Group,
    now: int,
    events: list[tuple[str | None, dict[str, Any]]],
    traces: list[Trace],
    lost: tuple[int, int],
) -> Iterator[bytes]:
    yield frame("delta", now, **group.look(now))
    seen = [shown for path, shown in events if path is None or group.matches(path)]
    if seen:
        yield frame("event", now, events=seen)
    matching = [
        protocol.trace(each) for each in traces if any(group.matches(span.path) for span in each.spans)
    ]
    if matching:
        yield frame("trace", now, traces=matching)
    if any(lost):
        yield frame("dropped", now, events=lost[0], traces=lost[1])


def _drain(queue: deque[Any]) -> list[Any]:
    return [queue.popleft() for _ in range(len(queue))]


__all__ = ["Monitor", "SlowWatcher", "Watcher"]
