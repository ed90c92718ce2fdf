"""The observer as an actor with a thread of its own, so that forwarding never waits for decoding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from actors import ThreadedActor, handles
from pixy.tap.config import TapConfig
from pixy.tap.event_queue import EventBatch, EventQueue
from pixy.tap.messages import GetView, Tick, ViewName
from pixy.tap.observer import Observer, Output

TABLE_REBALANCES: Final = 5
"""Rebalances below the table on the terminal."""


class ObserverActor(ThreadedActor):
    """Feed event batches to the observer and answer requests for views."""

    mailbox_capacity = 200
    use_daemon_thread = True

    def __init__(self, config: TapConfig, queue: EventQueue, output: Output | None) -> None:
        super().__init__()
        self._queue = queue
        self._observer = Observer(config, output)
        self._views: dict[ViewName, Callable[[str | None, float], Any]] = {
            "snapshot": self._snapshot,
            "timeline": lambda group, now: self._observer.registry.timeline.to_json(now, group),
            "clients": lambda _, __: self._observer.inventory.to_json(),
            "connections": lambda _, now: self._observer.connections.to_json(now),
            "topics": lambda _, __: self._observer.usage(),
            "latency": lambda _, __: self._observer.latency.to_json(),
            "timings": lambda _, __: self._observer.latency.timings(),
            "talkers": lambda _, __: self._observer.traffic.top(),
            "errors": lambda _, __: self._observer.traffic.errors(),
            "slow": lambda _, __: list(self._observer.traffic.slow),
            "committed": lambda _, __: self._observer.offsets.known(),
            "findings": lambda _, now: self._observer.findings.to_json(now),
            "metrics": self._metrics,
            "table": self._table,
        }

    @handles(EventBatch)
    def _take_batch(self, batch: EventBatch) -> None:
        try:
            for event in batch.events:
                self._observer.take(event)
        finally:
            self._queue.done(batch)

    @handles(Tick)
    def _tick(self, _: Tick) -> None:
        self._observer.tick(self._queue.clock())

    @handles(GetView)
    def _view(self, message: GetView) -> Any:
        return self._views[message.view](message.group, self._queue.clock())

    def _snapshot(self, group: str | None, now: float) -> dict[str, Any]:
        return {**self._observer.snapshot(now, group), "backlog": self._queue.backlog}

    def _metrics(self, _: str | None, now: float) -> str:
        from pixy.tap.metrics import exposition

        return exposition(self._observer, self._queue.backlog, now)

    def _table(self, group: str | None, now: float) -> dict[str, Any]:
        return {
            **self._snapshot(group, now),
            "timeline": self._observer.registry.timeline.to_json(now)[-TABLE_REBALANCES:],
            "clients": self._observer.inventory.to_json(),
        }


__all__ = ["TABLE_REBALANCES", "ObserverActor"]
