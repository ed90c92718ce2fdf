"""Report a system to OpenTelemetry as metrics. Needs the extra ``otel``; without a provider of an SDK it does nothing.

Everything is told apart by actor class only, never by path or message: a label that grows with the traffic is what breaks
a metrics store. Counters are the instrument's own, by class, because those of an actor end with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

try:
    from opentelemetry import metrics as api
except ImportError as error:
    raise ImportError(
        "actors.tracing.otel_metrics needs OpenTelemetry: pip install opentelemetry-api"
    ) from error

from actors._core.instruments import Instrument
from actors._events import ActorFailed, ActorStarted, DeadLetter, Dropped
from actors.tracing._switch import Switch

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._core.envelope import Envelope
    from actors._system import ActorSystem

SCOPE = "actors"
"""The instrumentation scope of the metrics."""

OTHER = "other"
"""The class of actors whose classes came after ``classes`` others."""

SECONDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""The bounds of the histograms' buckets, unless the SDK's views say otherwise."""


class _Class:
    """Counters of one class of actors."""

    __slots__ = ("attributes", "failed", "handled", "ran", "shared", "waited")

    def __init__(self, system: str, name: str) -> None:
        self.handled = self.failed = self.waited = self.ran = 0
        self.attributes = {"actors.system": system, "actors.class": name}
        self.shared = name is OTHER
        """Whether actors on the loop and actors with threads may count here."""

    def add(self, failed: bool, waited: int, ran: int) -> None:
        """Count a message; the times are in nanoseconds."""
        self.handled += 1
        if failed:
            self.failed += 1
        self.waited += waited
        self.ran += ran


class OTelMetrics(Switch, Instrument):
    """Counts messages, failures and restarts, and shows living actors and their mailboxes. Also a context manager.

    The gauges are read in the thread of the SDK's reader, whenever it collects.

    Args:
        system: the system to report; its name is the attribute ``actors.system``.
        provider: the meter provider; the global one if None.
        classes: the number of actor classes that are told apart; later ones count as ``other``.
        durations: whether to record also how long each message waits and runs, as histograms. OpenTelemetry's SDK
            takes some 12 microseconds a message for that, the counters less than one.

    Raises:
        ValueError: ``classes`` is below 1.
    """

    def __init__(
        self,
        system: ActorSystem,
        provider: api.MeterProvider | None = None,
        *,
        classes: int = 100,
        durations: bool = False,
    ) -> None:
        if classes < 1:
            raise ValueError(f"one actor class at least is told apart, not {classes}")
        self._system = system
        self._most = classes
        self._classes: dict[str, _Class] = {}
        self._lock = threading.RLock()  # a signal handler's messages count, too
        self._end: list[Callable[[], None]] = []
        meter = (provider or api.get_meter_provider()).get_meter(SCOPE)
        self._waits = self._runs = None
        if durations:
            self._waits = _histogram(
                meter, "actors.message.wait", "Time from sending a message to its handling."
            )
            self._runs = _histogram(meter, "actors.message.run", "Time that handling a message took.")
        self._failures = meter.create_counter(
            "actors.failures", "{failure}", "Failures of actors, by directive."
        )
        self._restarts = meter.create_counter("actors.restarts", "{restart}", "Restarts of actors.")
        self._dead = meter.create_counter(
            "actors.dead_letters", "{message}", "Messages to actors that have stopped."
        )
        self._dropped = meter.create_counter(
            "actors.dropped", "{message}", "Messages that full mailboxes dropped."
        )
        meter.create_observable_counter(
            "actors.messages", [self._handled], "{message}", "Messages that actors have handled, by outcome."
        )
        meter.create_observable_counter(
            "actors.message.wait.total", [self._waited], "s", "Time that handled messages have waited."
        )
        meter.create_observable_counter(
            "actors.message.run.total", [self._ran], "s", "Time that handling messages has taken."
        )
        meter.create_observable_up_down_counter("actors.living", [self._living], "{actor}", "Living actors.")
        meter.create_observable_up_down_counter(
            "actors.mailbox.messages", [self._waiting], "{message}", "Messages that wait in mailboxes."
        )
        meter.create_observable_gauge(
            "actors.mailbox.fullness",
            [self._fullness],
            "1",
            "The fullest mailbox: its messages by its capacity.",
        )

    def start(self) -> None:
        """Count from now on; do nothing if already started."""
        if self._end:
            return
        subscribe = self._system.events.subscribe
        self._end = [
            self._system.instrument(self),
            subscribe(self._on_failed, ActorFailed),
            subscribe(self._on_started, ActorStarted),
            subscribe(lambda _: self._dead.add(1, self._of_system), DeadLetter),
            subscribe(lambda _: self._dropped.add(1, self._of_system), Dropped),
        ]

    def stop(self) -> None:
        """Count no longer, and report nothing more. The caller flushes and shuts down the provider."""
        ends, self._end = self._end, []
        for end in ends:
            end()

    # -- counting, in the threads of the actors ---------------------------------------------------

    def end(
        self, cell: Cell, envelope: Envelope, began: int, ended: int, error: BaseException | None
    ) -> None:
        """Count a message that was handled; see :meth:`actors.Instrument.end`."""
        name = cell.actor_class.__name__
        counted = self._classes.get(name) or self._class(name)
        waited, ran = began - envelope[2], ended - began
        if cell.threaded or counted.shared:
            with self._lock:
                counted.add(error is not None, waited, ran)
        else:  # on the loop nobody else counts for this class
            counted.add(error is not None, waited, ran)
        if self._waits is not None and self._runs is not None:
            self._waits.record(waited / 1e9, counted.attributes)
            self._runs.record(ran / 1e9, counted.attributes)

    def _class(self, name: str) -> _Class:
        with self._lock:
            if name not in self._classes and len(self._classes) >= self._most:
                name = OTHER
            return self._classes.setdefault(name, _Class(self._system.name, name))

    @property
    def _of_system(self) -> dict[str, str]:
        return {"actors.system": self._system.name}

    def _on_failed(self, event: ActorFailed) -> None:
        attributes = self._class(event.actor_class).attributes
        self._failures.add(1, {**attributes, "actors.directive": event.directive})

    def _on_started(self, event: ActorStarted) -> None:
        if event.restarts:
            self._restarts.add(1, self._class(event.actor_class).attributes)

    # -- looking, in the thread of the SDK's reader -----------------------------------------------

    def _handled(self, _: Any) -> Iterable[api.Observation]:
        for counted in tuple(self._classes.values()) if self._end else ():
            failed = counted.failed
            yield api.Observation(counted.handled - failed, {**counted.attributes, "actors.outcome": "ok"})
            yield api.Observation(failed, {**counted.attributes, "actors.outcome": "failed"})

    def _waited(self, _: Any) -> Iterable[api.Observation]:
        for counted in tuple(self._classes.values()) if self._end else ():
            yield api.Observation(counted.waited / 1e9, counted.attributes)

    def _ran(self, _: Any) -> Iterable[api.Observation]:
        for counted in tuple(self._classes.values()) if self._end else ():
            yield api.Observation(counted.ran / 1e9, counted.attributes)

    def _living(self, _: Any) -> Iterable[api.Observation]:
        return self._by_class(lambda _cell: 1, sum)

    def _waiting(self, _: Any) -> Iterable[api.Observation]:
        return self._by_class(lambda cell: len(cell.mailbox), sum)

    def _fullness(self, _: Any) -> Iterable[api.Observation]:
        return self._by_class(lambda cell: len(cell.mailbox.normal) / cell.mailbox.capacity, max)

    def _by_class(
        self, value: Callable[[Cell], float], together: Callable[[list[float]], float]
    ) -> Iterable[api.Observation]:
        values: dict[_Class, list[float]] = {each: [] for each in tuple(self._classes.values())}
        for cell in self._system.walk() if self._end else ():
            values.setdefault(self._class(cell.actor_class.__name__), []).append(value(cell))
        for counted, found in values.items() if self._end else ():
            yield api.Observation(together(found or [0]), counted.attributes)


def _histogram(meter: api.Meter, name: str, what: str) -> api.Histogram:
    return meter.create_histogram(name, "s", what, explicit_bucket_boundaries_advisory=SECONDS)


__all__ = ["OTelMetrics"]
