"""Report a system to OpenTelemetry as metrics."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections import Counter
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra 'test' has it")

from opentelemetry import metrics as api
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from actors import DROP_NEW, Actor, ActorDeadError, ActorSystem, Backoff, Supervision, ThreadedActor
from actors.tracing.otel_metrics import OTelMetrics

SOON = Supervision(backoff=Backoff(first=0.001, most=0.001, jitter=0.0))


class Plain(Actor):
    def on_receive(self, message: Any) -> Any:
        if message == "fail":
            raise ValueError(message)
        return message


class Waiting(Actor):
    async def on_receive(self, message: Any) -> Any:
        await asyncio.sleep(0)
        return message


class Held(Actor):
    mailbox_capacity = 4
    overflow = DROP_NEW

    async def on_receive(self, message: asyncio.Event) -> None:
        await message.wait()


class Threaded(ThreadedActor):
    def on_receive(self, message: Any) -> Any:
        return message


class Read:
    """A provider whose metrics are read by name: (class, outcome or directive) -> value."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader])

    def points(self) -> dict[str, list[Any]]:
        data = self._reader.get_metrics_data()
        return {
            metric.name: list(metric.data.data_points)
            for resource in (data.resource_metrics if data is not None else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def __call__(self) -> dict[str, dict[Any, Any]]:
        return {
            name: {
                tuple(
                    value for key, value in sorted(point.attributes.items()) if key != "actors.system"
                ): getattr(point, "value", None)
                for point in points
            }
            for name, points in self.points().items()
        }


async def test_messages_outlive_the_actors_that_have_handled_them() -> None:
    read = Read()
    async with ActorSystem("s") as system:
        with OTelMetrics(system, read.provider, durations=True):
            for kind in (Plain, Waiting, Threaded):
                for _ in range(2):
                    ref = system.spawn(kind)
                    for number in range(5):
                        assert await ref.ask(number, block=False) == number
                    await ref.stop(block=False)
            failing = system.spawn(Plain)
            with pytest.raises(ValueError):
                await failing.ask("fail", block=False)
            found = read()
            points = read.points()
    kinds = ("Plain", "Waiting", "Threaded")
    assert {key: value for key, value in found["actors.messages"].items() if value} == {
        **{(kind, "ok"): 10 for kind in kinds},
        ("Plain", "failed"): 1,
    }
    assert found["actors.living"] == {("Plain",): 1, ("Waiting",): 0, ("Threaded",): 0}
    for name in ("actors.message.wait", "actors.message.run"):
        assert {point.attributes["actors.class"]: point.count for point in points[name]} == {
            "Plain": 11,
            "Waiting": 10,
            "Threaded": 10,
        }
        assert all(point.attributes["actors.system"] == "s" for point in points[name])


async def test_failures_restarts_and_lost_messages() -> None:
    read = Read()
    async with ActorSystem() as system:
        with OTelMetrics(system, read.provider):
            ref = await system.spawn(Plain, supervision=SOON)
            for restarts in (1, 2):
                ref.tell("fail")
                while ref.statistics().restarts < restarts:
                    await asyncio.sleep(0.001)
                await ref.ask("again", block=False)
            await ref.stop(block=False)
            with pytest.raises(ActorDeadError):
                ref.tell("nobody")
            held, end = system.spawn(Held), asyncio.Event()
            for _ in range(7):
                held.tell(end)
                await asyncio.sleep(0)
            found = read()
            end.set()
    assert found["actors.failures"] == {("Plain", "restart"): 2}
    assert found["actors.restarts"] == {("Plain",): 2}
    assert found["actors.dead_letters"] == {(): 1} and found["actors.dropped"] == {(): 2}
    assert found["actors.mailbox.messages"] == {("Plain",): 0, ("Held",): 4}
    assert found["actors.mailbox.fullness"] == {("Plain",): 0, ("Held",): 1}
    assert "actors.message.run" not in found


async def test_the_number_of_classes_is_bounded() -> None:
    read = Read()
    kinds = [type(f"Kind{number}", (Plain,), {}) for number in range(20)]
    async with ActorSystem() as system:
        with OTelMetrics(system, read.provider, classes=3):
            for kind in kinds:
                await system.spawn(kind).ask("x", block=False)
            found, points = read(), read.points()
    assert Counter({key[0]: value for key, value in found["actors.messages"].items() if key[1] == "ok"}) == {
        "Kind0": 1,
        "Kind1": 1,
        "Kind2": 1,
        "other": 17,
    }
    assert found["actors.living"][("other",)] == 17
    assert all(len(each) <= 8 for each in points.values())


async def test_the_time_that_messages_wait_and_run_adds_up() -> None:
    now = 0

    class Working(Actor):
        def on_receive(self, milliseconds: int) -> None:
            nonlocal now
            now += milliseconds * 1_000_000

    read = Read()
    async with ActorSystem(clock=lambda: now) as system:
        with OTelMetrics(system, read.provider):
            ref = system.spawn(Working)
            ref.tell(20)
            now += 3_000_000
            await ref.ask(40, block=False)  # waits while the first one runs
            found = read()
    assert found["actors.message.run.total"] == {("Working",): pytest.approx(0.060)}
    assert found["actors.message.wait.total"] == {("Working",): pytest.approx(0.003 + 0.020)}


async def test_after_the_stop_nothing_is_counted_or_reported() -> None:
    read = Read()
    async with ActorSystem() as system:
        metrics = OTelMetrics(system, read.provider)
        assert not read().get("actors.living"), "not started"
        metrics.start()
        metrics.start()
        ref = system.spawn(Plain)
        await ref.ask(1, block=False)
        assert read()["actors.messages"][("Plain", "ok")] == 1
        metrics.stop()
        await ref.ask(2, block=False)
        assert not read().get("actors.messages") and system.hooks_in_use is None
        metrics.start()
        await ref.ask(3, block=False)
        assert read()["actors.messages"][("Plain", "ok")] == 2


async def test_a_reader_in_another_thread_may_look_at_any_time() -> None:
    read = Read()
    errors: list[BaseException] = []
    ended = threading.Event()

    def look() -> None:
        try:
            while not ended.is_set():
                read()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=look)
    async with ActorSystem() as system:
        with OTelMetrics(system, read.provider):
            thread.start()
            for _ in range(300):
                refs = [system.spawn(Plain) for _ in range(5)]
                for ref in refs:
                    await ref.ask(1, block=False)
                    await ref.stop(block=False)
            ended.set()
            await asyncio.to_thread(thread.join)
    assert not errors


async def test_without_an_sdk_nothing_happens() -> None:
    async with ActorSystem() as system:
        with OTelMetrics(system, api.NoOpMeterProvider()):
            assert await system.spawn(Plain).ask(1, block=False) == 1
        with pytest.raises(ValueError, match="one actor class at least"):
            OTelMetrics(system, classes=0)


def test_a_missing_package_names_the_extra() -> None:
    code = "import sys; sys.modules['opentelemetry'] = None; import actors.tracing.otel_metrics"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode and "pip install opentelemetry-api" in done.stderr
