"""The monitor's stream: snapshots, deltas, details, events, filters, slow watchers; idle without watchers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from actors import Actor, ActorError, ActorSystem, ThreadedActor
from actors.tracing import Tracer, monitor as module, protocol, view as viewing, watcher as watching
from actors.tracing.census import SLICE
from actors.tracing.monitor import Monitor, SlowWatcher, Watcher, decode
from tests.unit.actors.virtual_time import virtual_system, virtual_time

TICK = 0.02


class Worker(Actor):
    async def on_receive(self, message: Any) -> Any:
        if isinstance(message, asyncio.Event):
            await message.wait()
        if isinstance(message, float):
            await asyncio.sleep(message)
        if message == "fail":
            raise ValueError("secret")
        return message


class Table:
    """A console's table of actors, built from snapshots and deltas."""

    def __init__(self) -> None:
        self.rows: dict[int, dict[str, Any]] = {}

    def apply(self, frame: dict[str, Any]) -> None:
        for new in frame["new"]:
            assert new["id"] not in self.rows, "an actor is new once"
            self.rows[new["id"]] = new
        for row in frame["dirty"]:
            self.rows[row["id"]].update(row)
        for gone in frame.get("gone", ()):
            del self.rows[gone]

    @property
    def paths(self) -> set[str]:
        return {row["path"] for row in self.rows.values()}

    def row(self, path: str) -> dict[str, Any]:
        return next(row for row in self.rows.values() if row["path"] == path)


async def frames(watcher: Watcher, kind: str, count: int = 1) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(30):
        async for packed in watcher:
            frame = decode(packed)
            if frame["kind"] == kind:
                found.append(frame)
                if len(found) == count:
                    break
    return found


async def one(watcher: Watcher, kind: str) -> dict[str, Any]:
    (frame,) = await frames(watcher, kind)
    return frame


@virtual_time
async def test_a_paged_snapshot_is_followed_by_changes() -> None:
    async with virtual_system() as system:
        refs = [system.spawn(Worker, name=f"w{number}") for number in range(5)]
        table = Table()
        async with Monitor(system, interval=TICK).watch(page=2, max_rows=100) as watcher:
            pages = await frames(watcher, "snapshot", 3)
            assert [(page["page"], page["pages"]) for page in pages] == [(1, 3), (2, 3), (3, 3)]
            assert len({page["at"] for page in pages}) == 1
            for page in pages:
                table.apply(page)
            assert table.paths == {f"/w{number}" for number in range(5)}
            for frame in await frames(watcher, "delta", 2):  # the actors have started in the meantime
                table.apply(frame)
            quiet = await one(watcher, "delta")
            assert (quiet["new"], quiet["dirty"], quiet["gone"]) == ([], [], [])
            await refs[1].ask(1, block=False)
            await refs[2].stop(block=False)
            system.spawn(Worker, name="late")
            changed = await one(watcher, "delta")
            assert [new["path"] for new in changed["new"]] == ["/late"]
            assert len(changed["dirty"]) == 2 and len(changed["gone"]) == 1
            table.apply(changed)
            assert table.paths == {"/w0", "/w1", "/w3", "/w4", "/late"}
            assert table.row("/w1")["processed"] == 1


@virtual_time
async def test_rates_and_quantiles_cover_the_last_window_only() -> None:
    async with virtual_system() as system:
        ref = system.spawn(Worker, name="w")
        await ref.ask(0.05, block=False)
        for number in range(49):
            await ref.ask(number, block=False)
        table = Table()
        async with Monitor(system, interval=TICK).watch() as watcher:
            table.apply(await one(watcher, "snapshot"))
            assert table.row("/w")["processed"] == 50 and table.row("/w")["out_rate"] == 0
            for _ in range(10):
                await ref.ask(0.001, block=False)
            busy = await one(watcher, "delta")
            table.apply(busy)
            row = table.row("/w")
            assert row["processed"] == 60
            assert row["out_rate"] == pytest.approx(10 / busy["window"])
            assert row["in_rate"] == pytest.approx(row["out_rate"])
            # Quantiles are the upper bounds of buckets, each twice the one before.
            assert 0.001 < row["run_p50"] == row["run_p99"] < 0.002
            assert 0 < row["wait_p50"] == row["wait_p99"] < 0.001
            table.apply(await one(watcher, "delta"))
            row = table.row("/w")
            assert row["processed"] == 60 and row["out_rate"] == 0 and row["run_p99"] == 0
            assert (await one(watcher, "delta"))["dirty"] == []


@virtual_time
async def test_waiting_messages_are_shown_with_their_age() -> None:
    gate = asyncio.Event()
    async with virtual_system() as system:
        ref = system.spawn(Worker, name="w")
        await ref
        async with Monitor(system, interval=TICK).watch() as watcher:
            before = await one(watcher, "snapshot")
            await asyncio.sleep(TICK / 4)
            for message in (gate, "a", "b"):
                ref.tell(message)
            (row,) = (await one(watcher, "delta"))["dirty"]
            assert row["depth"] == 2 and row["current"] == "Event"
            assert before["at"] < row["oldest"] and before["at"] < row["since"]
            gate.set()
            (row,) = (await one(watcher, "delta"))["dirty"]
            assert (row["depth"], row["oldest"], row["current"], row["since"]) == (0, 0, None, 0)


@virtual_time
async def test_details_of_opened_actors_only() -> None:
    gate = asyncio.Event()
    async with virtual_system() as system:
        ref = system.spawn(Worker, name="w")
        system.spawn(Worker, name="other")
        monitor = Monitor(system, interval=TICK)
        ref.tell("before")
        asked = ref.ask(gate, block=False)
        async with monitor.watch() as watcher:
            await asyncio.sleep(3 * TICK)
            watcher.open("/w")
            watcher.open("/nobody")
            found = {frame["path"]: frame["actor"] for frame in await frames(watcher, "details", 2)}
            assert found["/nobody"] is None
            actor = found["/w"]
            assert actor["current"] == "Event" and actor["processed"] == 1
            assert actor["recent"][0][0] == "str"
            assert actor["asks"][0]["state"] == "handling" and actor["asks"][0]["message"] == "Event"
            assert sum(actor["run"]["counts"]) == 1 and actor["mailbox"]["capacity"] == 10_000
            assert "message.wait()" in actor["stack"]
            gate.set()
            await asked
            watcher.close("/nobody")
            later = await frames(watcher, "details", 4)
            assert later[-1]["path"] == "/w" and later[-1]["actor"]["asks"] == []
            with pytest.raises(ValueError, match="open already"):
                for number in range(watching.MAX_OPENED + 1):
                    watcher.open(f"/{number}")


@virtual_time
async def test_events_are_redacted_and_filtered() -> None:
    async with virtual_system() as system:
        plain, custom = (
            Monitor(system, interval=TICK),
            Monitor(system, interval=TICK, redact=lambda payload: f"<{payload}>"),
        )
        broken = Monitor(system, interval=TICK, redact=lambda _payload: 1 / 0)
        gone = system.spawn(Worker, name="a-gone")
        await gone.stop(block=False)
        async with plain.watch("/a*") as first, custom.watch("/a*") as second, broken.watch() as third:
            system.spawn(Worker, name="b-fails").tell("fail")
            gone.notify("my secret")
            seen = (await one(first, "event"))["events"]
            assert [each["type"] for each in seen] == ["DeadLetter"]
            assert seen[0]["message"] == "str" and seen[0]["recipient"] == "/a-gone"
            assert (await one(second, "event"))["events"][0]["message"] == "<my secret>"
            assert {"type": "DeadLetter", "redact_failed": "ZeroDivisionError"} in (
                await one(third, "event")
            )["events"]
        async with plain.watch() as watcher:
            system.spawn(Worker, name="c-fails").tell("fail")
            frame = await one(watcher, "event")
            failed = next(each for each in frame["events"] if each["type"] == "ActorFailed")
            assert failed["error"] == "ValueError" and "secret" not in str(frame)


@virtual_time
async def test_too_many_events_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_EVENTS", 3)
    async with virtual_system() as system:
        gone = system.spawn(Worker)
        await gone.stop(block=False)
        async with Monitor(system, interval=TICK).watch() as watcher:
            for number in range(10):
                gone.notify(number)
            assert len((await one(watcher, "event"))["events"]) == 3
            assert (await one(watcher, "dropped"))["events"] == 7


@virtual_time
async def test_finished_traces() -> None:
    async with virtual_system() as system:
        tracer = Tracer(sample=1)
        system.instrument(tracer)
        monitor = Monitor(system, tracer=tracer, interval=TICK)
        ref = system.spawn(Worker, name="w")
        async with monitor.watch("/w") as watcher, monitor.watch("/other") as other:
            await ref.ask(1, block=False)
            (trace,) = (await one(watcher, "trace"))["traces"]
            assert trace["complete"] and trace["spans"][0]["path"] == "/w"
            await asyncio.sleep(2 * TICK)
            assert "trace" not in {decode(frame)["kind"] for frame in other._frames}


@virtual_time
async def test_asks_and_flow_go_to_watchers_that_ask_for_them() -> None:
    gate = asyncio.Event()
    async with virtual_system() as system:
        monitor = Monitor(system, interval=TICK)
        ref = system.spawn(Worker, name="w")
        async with monitor.watch() as other:
            assert system.hooks_in_use is None
            async with monitor.watch(asks=True, flow=True) as watcher:
                assert system.hooks_in_use is not None
                await ref.ask(1, block=False)
                asked = ref.ask(gate, block=False)
                edges = (await one(watcher, "flow"))["edges"]
                assert [(edge["receiver"], edge["message"]) for edge in edges] == [("Worker", "int")]
                asks = (await one(watcher, "asks"))["asks"]
                assert [(ask["target"], ask["message"]) for ask in asks] == [("/w", "Event")]
                gate.set()
                await asked
                watcher.pause()
                assert system.hooks_in_use is None
                watcher.resume()
                assert system.hooks_in_use is not None
            assert system.hooks_in_use is None
            kinds = {decode(frame)["kind"] for frame in other._frames}
            assert "delta" in kinds and not kinds & {"flow", "asks"}


class Threaded(ThreadedActor):
    def on_receive(self, message: Any) -> Any:
        return message


async def test_threaded_actors_are_traced_and_counted() -> None:
    async with ActorSystem() as system:
        tracer = Tracer(sample=1)
        system.instrument(tracer)
        refs = [system.spawn(Threaded, name=f"t{number}") for number in range(3)]
        async with Monitor(system, tracer=tracer, interval=TICK).watch(flow=True) as watcher:
            for number in range(300):
                refs[number % 3].tell(number)
            for ref in refs:
                await ref.ask("last", block=False)
            count = 0
            async with asyncio.timeout(30):
                while count < 303:  # a thread counts a message after the reply
                    count = sum(edge["count"] for edge in (await one(watcher, "flow"))["edges"])
        assert count == 303
        assert not tracer._open and not tracer._begun and len(tracer.traces()) >= 256


@virtual_time
async def test_nothing_runs_unwatched_or_paused() -> None:
    async with virtual_system() as system:
        tracer = Tracer()
        monitor = Monitor(system, tracer=tracer, interval=TICK)

        def idle() -> bool:
            handles = [each for each in system.loop._scheduled if not each.cancelled()]  # type: ignore[attr-defined]
            ticking = any(each._callback == monitor._tick for each in handles)
            assert ticking == bool(tracer._listeners) == bool(system.events._subscribers)
            return not ticking

        assert idle()
        async with monitor.watch() as first, monitor.watch("/x") as second:
            assert not idle() and monitor.watchers == 2
            first.pause()
            assert not idle()
            second.pause()
            assert idle()
            ref = system.spawn(Worker, name="w")
            await ref
            while first._frames:
                await anext(first)
            first.resume()
            assert not idle()
            assert (await one(first, "snapshot"))["new"][0]["path"] == "/w"
        assert idle() and monitor.watchers == 0 and not monitor._views


@virtual_time
async def test_watchers_with_one_filter_share_their_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[str] = []
    encode = viewing.encode
    monkeypatch.setattr(viewing, "encode", lambda frame: packed.append(frame["kind"]) or encode(frame))
    async with virtual_system() as system:
        system.spawn(Worker)
        monitor = Monitor(system, interval=TICK)
        async with monitor.watch() as first:
            await asyncio.sleep(2.5 * TICK)
            async with monitor.watch() as second:
                packed.clear()
                first.open("/w")
                second.open("/w")
                await asyncio.sleep(1.5 * TICK)
                first.close("/w")
                second.close("/w")
                assert packed.count("details") == 2 + packed.count("delta")
                packed.clear()
                table = Table()
                table.apply(await one(second, "snapshot"))
                delivered = len([each for each in second._frames if decode(each)["kind"] == "delta"])
                for frame in await frames(second, "delta", 3):
                    table.apply(frame)
                assert packed == ["delta"] * (3 - delivered)
                assert first._frames[-1] is not None
                assert len(table.rows) == 1


@virtual_time
async def test_a_slow_watcher_is_cut_off_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "BUFFER_FRAMES", 5)
    async with virtual_system() as system:
        monitor = Monitor(system, interval=TICK)
        async with monitor.watch() as slow, monitor.watch() as quick:
            assert len(await frames(quick, "delta", 10)) == 10
            assert monitor.disconnected == 1 and monitor.watchers == 1
            with pytest.raises(SlowWatcher):
                await anext(slow)
    monkeypatch.setattr(watching, "BUFFER_FRAMES", 500)
    monkeypatch.setattr(watching, "BUFFER_BYTES", 10)
    async with virtual_system() as system:
        monitor = Monitor(system)
        async with monitor.watch() as slow:
            with pytest.raises(SlowWatcher):
                await anext(slow)
        assert monitor._timer is None


@virtual_time
async def test_the_limit_of_rows_keeps_the_actors_already_shown() -> None:
    async with virtual_system() as system:
        first = system.spawn(Worker, name="m")
        table = Table()
        async with Monitor(system, interval=TICK).watch(max_rows=2, page=2) as watcher:
            table.apply(await one(watcher, "snapshot"))
            for name in ("a", "b", "c"):
                system.spawn(Worker, name=name)
            frame = await one(watcher, "delta")
            table.apply(frame)
            assert table.paths == {"/m", "/a"} and frame["hidden"] == 2
            await first.stop(block=False)
            frame = await one(watcher, "delta")
            table.apply(frame)
            assert table.paths == {"/a", "/b"} and frame["hidden"] == 1


@virtual_time
async def test_an_actor_replaced_under_its_path_is_another_one() -> None:
    async with virtual_system() as system:
        old = system.spawn(Worker, name="w")
        async with Monitor(system, interval=TICK).watch() as watcher:
            before = (await one(watcher, "snapshot"))["new"][0]["id"]
            await old.stop(block=False)
            system.spawn(Worker, name="w")
            frame = await one(watcher, "delta")
            assert frame["gone"] == [before] and frame["new"][0]["id"] != before


@virtual_time
async def test_bounds_and_closing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with virtual_system() as system:
        monitor = Monitor(system, interval=TICK)
        for bad in ({"page": 0}, {"page": 1}, {"max_rows": 0}, {"max_rows": module.MAX_ROWS + 1}):
            with pytest.raises(ValueError):
                monitor.watch(**bad)
        monkeypatch.setattr(module, "MAX_WATCHERS", 1)
        async with monitor.watch() as watcher:
            with pytest.raises(ActorError, match="already"):
                async with monitor.watch():
                    pass
            system.loop.call_later(2 * TICK, monitor.close)
            async with asyncio.timeout(30):
                kinds = [decode(frame)["kind"] async for frame in watcher]
            assert kinds[0] == "snapshot" and monitor._timer is None
        for junk in (b"", b"\xc1", b"\x01", b"\x80"):
            with pytest.raises(ValueError, match="not a frame"):
                decode(junk)


def test_importing_the_runtime_does_not_import_msgpack() -> None:
    code = "import sys, actors; sys.exit('msgpack' in sys.modules or 'actors.tracing' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=30).returncode == 0


@virtual_time
async def test_no_callback_looks_at_more_than_a_slice_of_the_actors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick over 10,000 busy actors took 124 ms in one callback; now the loop turns after each ``SLICE`` of them."""
    looks: Counter[int] = Counter()  # by the callback of the loop
    turn = 0
    read = protocol.Sample.read

    def counted(sample: protocol.Sample, window: float) -> bool:
        looks[turn] += 1
        return read(sample, window)

    run = asyncio.Handle._run

    def numbered(handle: asyncio.Handle) -> None:
        nonlocal turn
        turn += 1
        run(handle)

    monkeypatch.setattr(asyncio.Handle, "_run", numbered)
    monkeypatch.setattr(protocol.Sample, "read", counted)
    async with virtual_system() as system:
        refs = [system.spawn(Worker, name=f"w{number}") for number in range(5 * SLICE)]
        await asyncio.sleep(1)
        table = Table()
        async with Monitor(system, interval=TICK).watch() as watcher:
            while len(table.rows) < len(refs):
                table.apply(await one(watcher, "snapshot"))
            for ref in refs:
                ref.tell(1)
            while not all(row["processed"] for row in table.rows.values()):
                table.apply(await one(watcher, "delta"))
    assert max(looks.values()) <= SLICE and sum(looks.values()) >= 2 * len(refs)
