"""Stream the state of a system to a console; :mod:`actors.tracing.protocol` describes the frames.

Watchers with the same filter share a view, which looks at its actors once per tick and packs each frame once,
however many watchers read it. It does so in slices, between which the loop turns: no callback takes longer for more
actors. Without an active watcher there is no timer, no subscription to events, and no
look at the actors.

Everything here belongs to the thread of the system's loop; call it there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any

from actors._core.interruption import failed_itself
from actors._errors import ActorError
from actors._events import Event
from actors.tracing import protocol
from actors.tracing.census import SLICE, slices, turning
from actors.tracing.codec import decode
from actors.tracing.flow import Flow
from actors.tracing.protocol import Redact
from actors.tracing.view import View, pack
from actors.tracing.waits import wait_graph_steps
from actors.tracing.watcher import SlowWatcher, Watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from actors._system import ActorSystem
    from actors.tracing.spans import Tracer
    from actors.tracing.traces import Trace

Shown = tuple[str | None, dict[str, Any]]
"""An event as plain data, and the path of the actor that it concerns."""

INTERVAL = 1.0
"""Seconds between two ticks."""

MAX_ROWS = 10_000
"""Most actors that one watcher can see."""

MAX_PAGES = 200
"""Most pages of one snapshot: all of them have to fit into a watcher's buffer."""

MAX_WATCHERS = 64
"""Most watchers of one monitor, paused ones included."""

MAX_EVENTS = 1_000
"""Most events kept between two ticks; further ones are only counted."""

MAX_TRACES = 100
"""Most finished traces kept between two ticks; further ones are only counted."""


class Monitor:
    """Serve watchers: ``async with monitor.watch(pattern="/service/*") as watcher``.

    Args:
        system: the system to look at.
        tracer: sends its finished traces; the caller installs it in the system. None sends no traces.
        redact: maps a message or an error in an event to the text that is sent; by default its type's name.
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
        """Number of watchers that were cut off because they were slow."""
        self._views: dict[tuple[str, int, int], View] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ticking = False
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
        """Create a watcher; its stream begins with ``async with``.

        Args:
            pattern: shell pattern for paths, such as ``/service/*``; ``*`` also matches slashes.
            page: most rows in one frame of a snapshot, at least 1.
            max_rows: most actors to see, 1 to ``MAX_ROWS``; those found first stay.
            asks: send the wait graph with each tick.
            flow: send the edges between actor classes with each tick. Counting starts with the first watcher
                that wants edges, and makes every message slower meanwhile.

        Raises:
            ValueError: ``max_rows`` is out of range, or ``max_rows`` actors need more than ``MAX_PAGES``
                pages.
        """
        if not 1 <= max_rows <= MAX_ROWS:
            raise ValueError(f"max_rows must be 1 to {MAX_ROWS}, not {max_rows}")
        if page < 1 or -(-max_rows // page) > MAX_PAGES:
            raise ValueError(f"{max_rows} rows need more than {MAX_PAGES} pages of {page} rows")
        return Watcher(self, pattern, page, max_rows, asks=asks, flow=flow)

    @property
    def watchers(self) -> int:
        """The number of watchers, paused ones included."""
        return sum(len(view.watchers) for view in self._views.values())

    def close(self) -> None:
        """End the streams of all watchers."""
        for view in tuple(self._views.values()):
            for watcher in tuple(view.watchers):
                watcher.leave()

    # -- called by watchers ----------------------------------------------------------------------

    def join(self, watcher: Watcher) -> None:
        """Add a watcher and send it a snapshot.

        Raises:
            ActorError: there are ``MAX_WATCHERS`` already.
        """
        if self.watchers >= MAX_WATCHERS:
            raise ActorError(f"there are {MAX_WATCHERS} watchers already")
        view = self._views.get(watcher.filter)
        if view is None:
            view = self._views[watcher.filter] = View(self.system, *watcher.filter)
        view.watchers.append(watcher)
        self.catch_up(watcher)

    def catch_up(self, watcher: Watcher) -> None:
        """Send a snapshot to a watcher that is new or was paused, a few turns of the loop later."""
        watcher.current = False
        self.adjust()
        self._run(self._send_snapshot(self._views[watcher.filter], watcher))

    def leave(self, watcher: Watcher) -> None:
        """Remove a watcher."""
        view = self._views.get(watcher.filter)
        if view is not None and watcher in view.watchers:
            view.watchers.remove(watcher)
            if not view.watchers:
                del self._views[watcher.filter]
        self.adjust()

    def adjust(self) -> None:
        """Start the timer and the subscriptions for the first active watcher, stop them after the last."""
        active = [each for view in self._views.values() for each in view.active()]
        wanted = bool(active)
        if not any(each.flow for each in active):
            self._counting.close()
        elif not self._counts:
            self._counting.enter_context(self.flow.watch())
            self._counting.callback(setattr, self, "_counts", False)
            self._counts = True
        if wanted and self._timer is None:
            self._timer = self.system.loop.call_later(self.interval, self._tick)
            self._unsubscribe = [self.system.events.subscribe(self._on_event)]
            if self.tracer is not None:
                self._unsubscribe.append(self.tracer.listen(self._on_trace))
        elif not wanted and self._timer is not None:
            self._timer.cancel()
            self._timer = None
            for task in tuple(self._tasks):
                task.cancel()
            for end in self._unsubscribe:
                end()
            self._unsubscribe = []
            self._events.clear()
            self._traces.clear()
            self._lost_events = self._lost_traces = 0

    # -- collected between ticks, from any thread ------------------------------------------------

    def _on_event(self, event: Event) -> None:
        if len(self._events) < MAX_EVENTS:
            self._events.append(event)
        else:
            self._lost_events += 1

    def _on_trace(self, trace: Trace) -> None:
        if len(self._traces) < MAX_TRACES:
            self._traces.append(trace)
        else:
            self._lost_traces += 1

    # -- the tick -------------------------------------------------------------------------------

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.system.loop.create_task(work, name="actors.tracing.monitor")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _tick(self) -> None:
        self._timer = self.system.loop.call_later(self.interval, self._tick)
        if not self._ticking:  # a round over very many actors may take longer than the interval
            self._ticking = True
            self._run(self._send_all())

    async def _send_snapshot(self, view: View, watcher: Watcher) -> None:
        async with view.turn:
            if watcher.current or watcher.paused or watcher not in view.watchers:
                return
            if not view.current():  # nobody kept the view up to date
                await turning(view.census.round(self.system.clock()))
            for packed in view.snapshot():
                watcher.put(packed)
                await asyncio.sleep(0)
            watcher.current = True

    async def _send_all(self) -> None:
        try:
            now = self.system.clock()
            events, traces = _drain(self._events), _drain(self._traces)
            lost = self._lost_events, self._lost_traces
            self._lost_events = self._lost_traces = 0
            shown: list[Shown] = []
            for part in slices(iter(events), SLICE):
                shown += [(protocol.path_of(each), self._shown(each)) for each in part]
                await asyncio.sleep(0)
            opened: dict[str, bytes] = {}
            for view in tuple(self._views.values()):
                if view.active():
                    await self._send_view(view, now, shown, traces, lost)
                    for watcher in view.current():
                        await self._send_details(watcher, now, opened)
            await self._send_graphs(now)
        finally:
            self._ticking = False

    async def _send_view(
        self, view: View, now: int, events: list[Shown], traces: list[Trace], lost: tuple[int, int]
    ) -> None:
        async with view.turn:
            if not view.current():
                return
            for step in view.deltas(now):
                if step is not None:
                    view.send(step)
                await asyncio.sleep(0)
        for part in slices((shown for path, shown in events if path is None or view.matches(path)), SLICE):
            view.send(pack("event", now, events=part))
            await asyncio.sleep(0)
        for each in traces:
            if any(view.matches(span.path) for span in each.spans):
                view.send(pack("trace", now, traces=[protocol.trace(each)]))
                await asyncio.sleep(0)
        if any(lost):
            view.send(pack("dropped", now, events=lost[0], traces=lost[1]))

    async def _send_graphs(self, now: int) -> None:
        def wanting(what: str) -> list[Watcher]:
            return [each for view in self._views.values() for each in view.current() if getattr(each, what)]

        if wanting("asks"):
            packed = pack("asks", now, **await turning(wait_graph_steps(self.system)))
            for watcher in wanting("asks"):
                watcher.put(packed)
        if wanting("flow"):
            edges = [protocol.edge(each) for each in await turning(self.flow.edge_steps())]
            packed = pack("flow", now, edges=edges, beyond=self.flow.beyond)
            for watcher in wanting("flow"):
                watcher.put(packed)

    def _shown(self, event: Event) -> dict[str, Any]:
        try:
            return protocol.event(event, self.redact)
        except BaseException as error:  # a failing redact function must not end the stream
            failed_itself(error)
            return {"type": type(event).__name__, "redact_failed": type(error).__name__}

    async def _send_details(self, watcher: Watcher, now: int, packed: dict[str, bytes]) -> None:
        for path in tuple(watcher.opened):
            if path not in packed:
                packed[path] = self.details(path, now)
                await asyncio.sleep(0)
            watcher.put(packed[path])

    def details(self, path: str, now: int) -> bytes:
        """Pack a ``details`` frame.

        Args:
            path: the path of the actor.
            now: the current time in nanoseconds of the system's clock.
        """
        ref = self.system.lookup(path)
        actor = None if ref is None else protocol.details(ref._cell)
        return pack("details", now, path=path, actor=actor)


def _drain(queue: deque[Any]) -> list[Any]:
    return [queue.popleft() for _ in range(len(queue))]


__all__ = ["Monitor", "SlowWatcher", "Watcher", "decode"]
