"""Probes, faults, effects and the base class for Hypothesis."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any, ClassVar

import pytest
from hypothesis import settings, strategies
from hypothesis.stateful import rule, run_state_machine_as_test

from actors import Actor, Backoff, MailboxFull, Supervision, Terminated, Timeout, handles
from actors.testing import (
    Crash,
    Delay,
    Drop,
    EffectsKit,
    Injected,
    Reorder,
    Sim,
    SimulationFailed,
    SystemMachine,
    effects_of,
    explore,
    simulate,
)
from actors.testing.effects import (
    Asked,
    Called,
    Failed,
    Replied,
    Restarting,
    Spawned,
    Stopped,
    TimerCancelled,
    TimerSet,
    Told,
    Unwatched,
    Watched,
)
from tests.effort import examples

QUICK = Supervision(backoff=Backoff(first=0.01, most=0.02))


class Echo(Actor):
    def on_receive(self, message: Any) -> Any:
        return message


# -- probes -----------------------------------------------------------------------------------------


def test_a_probe_expects_in_virtual_time() -> None:
    async def scenario(sim: Sim) -> None:
        probe = sim.probe()
        probe.ref.tell("a")
        probe.ref.tell(1)
        sim.loop.call_later(100, probe.ref.tell, [2])
        assert await probe.expect("a") == "a"
        assert await probe.expect(lambda message: message > 0) == 1
        await probe.expect_none(for_=99)
        assert await probe.expect(list, timeout=2) == [2] and sim.loop.time() == pytest.approx(100)
        assert probe.messages == ["a", 1, [2]] and probe.sender is None
        with pytest.raises(AssertionError, match="no message within 3 s"):
            await probe.expect()
        probe.ref.tell("b")
        with pytest.raises(AssertionError, match="expected <class 'int'>, got 'b'"):
            await probe.expect(int)
        probe.ref.tell("c")
        with pytest.raises(AssertionError, match="expected nothing, got 'c'"):
            await probe.expect_none()
        probe.ref.tell(3)
        assert await probe.fish(int) == 3
        with pytest.raises(AssertionError, match="no message"):
            await probe.fish(int, timeout=1)

    explore(scenario, seeds=range(9))


def test_a_probe_replies() -> None:
    class Client(Actor):
        async def on_receive(self, to: Any) -> Any:
            return await to.ask("question", block=False)

    async def scenario(sim: Sim) -> None:
        probe = sim.probe()
        client = sim.system.spawn(Client, name="client")
        answer = client.ask(probe.ref, block=False)
        with pytest.raises(AssertionError, match="no expected ask"):
            probe.reply(1)
        await probe.expect("question")
        assert probe.sender is client
        probe.reply(42)
        assert await answer == 42
        answer = client.ask(probe.ref, block=False)
        await probe.expect("question")
        probe.fail(KeyError("k"))
        with pytest.raises(KeyError):
            await answer

    explore(scenario, seeds=range(9))


# -- faults -----------------------------------------------------------------------------------------


def test_a_crash_by_path_type_and_number() -> None:
    failed: list[Any] = []

    class Fragile(Echo):
        def on_failure(self, kind: Any, value: Any, traceback: Any) -> None:
            failed.append((self.path, self.failed_message, type(value)))

    crash = Crash("/fragile", int, nth=2)

    async def scenario(sim: Sim) -> None:
        ref = sim.system.spawn(Fragile, name="fragile", supervision=QUICK)
        other = sim.system.spawn(Fragile, name="other", supervision=QUICK)
        for message in ("x", 1, 2, 3):
            ref.tell(message)
            other.tell(message)
        await asyncio.sleep(1)
        with pytest.raises(Injected):
            sim.inject(Crash("/other", times=1))
            await other.ask("y", block=False)
        assert await other.ask("y", block=False) == "y"

    for seed in range(5):
        simulate(scenario, seed=seed, faults=[crash])
    assert failed == [("/fragile", 2, Injected)] * 5 and crash.hits == 0
    with pytest.raises(ValueError, match="probability"):
        Crash(probability=2)


def test_a_drop_fails_the_ask_or_is_silent() -> None:
    async def scenario(sim: Sim) -> int:
        ref = sim.system.spawn(Echo, name="echo")
        end = sim.inject(Drop(message=lambda message: message == "lost"))
        with pytest.raises(MailboxFull, match="fault"):
            await ref.ask("lost", block=False)
        assert await ref.ask("kept", block=False) == "kept"
        end()
        sim.inject(Drop("/echo", silent=True, message=str))
        with pytest.raises(Timeout):
            await ref.ask("lost", block=False, timeout=5)
        some = sim.inject(Drop("/echo", int, probability=0.5))
        got = await asyncio.gather(
            *(_await(ref.ask(number, block=False)) for number in range(100)), return_exceptions=True
        )
        some()
        return sum(isinstance(each, int) for each in got)

    assert 25 < simulate(scenario, seed=1).value < 75
    assert simulate(scenario, seed=1).value == simulate(scenario, seed=1).value


async def _await(future: Any) -> Any:
    return await future


def test_delays_keep_the_order_of_each_sender_and_mix_senders() -> None:
    class Sender(Actor):
        def on_receive(self, to: Any) -> None:
            for number in range(5):
                to.tell((self._cell.name, number))

    async def scenario(sim: Sim) -> list[Any]:
        probe = sim.probe("sink")
        for name in "ab":
            sim.system.spawn(Sender, name=name).tell(probe.ref)
        await asyncio.sleep(10)
        for name in "ab":
            assert [number for who, number in probe.messages if who == name] == [0, 1, 2, 3, 4]
        return [who for who, _ in probe.messages]

    # The invariants check the order as well.
    orders = {tuple(simulate(scenario, seed=seed, faults=[Reorder("/sink")]).value) for seed in range(20)}
    assert len(orders) > 10

    async def one(sim: Sim) -> None:
        probe = sim.probe("sink")
        for number in range(4):
            probe.ref.tell(number)
        await probe.expect(0)
        await probe.expect_none(for_=4.9)
        for number in (1, 2, 3):
            await probe.expect(number)

    explore(one, seeds=range(9), faults=[Delay("/sink", nth=2, seconds=5)])
    with pytest.raises(ValueError, match="increasing range"):
        Delay(seconds=(2, 1))


def test_an_ask_delayed_beyond_the_end_is_settled() -> None:
    async def scenario(sim: Sim) -> Any:
        return sim.system.spawn(Echo).ask(1, block=False)

    future = simulate(scenario, faults=[Delay(seconds=10_000)]).value
    assert future.exception() is not None


# -- effects ----------------------------------------------------------------------------------------


class Busy(Actor):
    def __init__(self, other: Any = None) -> None:
        super().__init__()
        self.other = other

    def on_start(self) -> None:
        self.set_timer("t", 5, "tick")

    def on_receive(self, message: Any) -> Any:
        match message:
            case "talk":
                self.other.tell("hi", urgent=True)
                self.other.ask("how?", block=False)
                self.watch(self.other)
                self.unwatch(self.other)
            case "spawn":
                self.spawn(Echo, name="child").tell(1)
            case "cancel":
                self.cancel_timer("t")
            case "later":
                self.take_reply().try_set(1)
            case "fail":
                raise ValueError("no")
            case "stop":
                self.stop()
            case "idle":
                self.pipe_to_self(asyncio.sleep(0))
                self.stop_if_idle()
        return message


def test_the_effects_of_one_actor() -> None:
    async def scenario(sim: Sim) -> None:
        sink = sim.probe("sink").ref
        kit = EffectsKit(sim, Busy, sink, supervision=QUICK)
        assert await kit.settled() == [TimerSet("t", 5, "tick")]
        assert await kit.tell("talk") == [
            Told("/sink", "hi", urgent=True),
            Asked("/sink", "how?"),
            Watched("/sink"),
            Unwatched("/sink"),
        ]
        assert await kit.ask("spawn") == [
            Spawned("/subject/child", Echo),
            Told("/subject/child", 1),
            Replied("spawn"),
        ]
        assert await kit.ask("later") == [Called("take_reply"), Replied(1)]
        assert await kit.tell("cancel") == [TimerCancelled("t")]
        failed, replied = (await kit.ask("fail"))[0], (await kit.tell("fail"))
        assert isinstance(failed, Failed) and failed.directive == "reply"
        assert isinstance(replied[0], Failed) and replied[0].directive == "restart"
        assert isinstance(replied[1], Restarting)
        await asyncio.sleep(1)
        assert await kit.settled() == [TimerSet("t", 5, "tick")]
        assert await kit.tell("stop") == [Called("stop"), Stopped(None)]
        kit = EffectsKit(sim, Busy, sink)
        await kit.settled()
        assert await kit.tell("idle") == [Called("pipe_to_self"), Called("stop_if_idle"), Stopped(None)]

    explore(scenario, seeds=range(9))


def test_effects_in_one_call() -> None:
    assert effects_of(Busy, "cancel", 7, ask=True) == [
        TimerSet("t", 5, "tick"),
        TimerCancelled("t"),
        Replied("cancel"),
        Replied(7),
    ]


class Registered(Actor):
    known: ClassVar[list[type]] = []

    def __init_subclass__(cls, *, kind: str, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.kind = kind
        Registered.known.append(cls)


class Counted(Registered, kind="counted"):
    kind: str

    @handles(int)
    def count(self, message: int) -> str:
        self.set_timer("t", message, self.kind)
        return self.kind


def test_the_effects_of_a_class_that_is_registered_as_a_subclass() -> None:
    assert effects_of(Counted, 5, ask=True) == [TimerSet("t", 5, "counted"), Replied("counted")]
    assert Registered.known == [Counted], "the class that records the effects is not announced"


# -- hypothesis -------------------------------------------------------------------------------------


class Counter(Actor):
    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    async def on_receive(self, message: Any) -> Any:
        if message is None:
            return self.total
        self.total += message
        return None


class Counting(SystemMachine):
    factor = 1

    def start(self) -> None:
        self.counter = self.system.spawn(Counter)
        self.expected = 0

    @rule(amount=strategies.integers(0, 9))
    def add(self, amount: int) -> None:
        self.counter.tell(amount)
        self.expected += amount * self.factor

    @rule()
    def check(self) -> None:
        assert self.run(self.counter.ask(None, block=False)) == self.expected

    @rule(seconds=strategies.floats(0, 100))
    def wait(self, seconds: float) -> None:
        self.settle(seconds)


QUICKLY = settings(max_examples=20, stateful_step_count=10, deadline=None, database=None)
TestCounting = Counting.TestCase
TestCounting.settings = QUICKLY


class WrongCounting(Counting):
    factor = 2


@pytest.mark.slow
def test_a_wrong_model_is_found_and_shrinks(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AssertionError) as caught:
        run_state_machine_as_test(WrongCounting, settings=settings(QUICKLY, max_examples=examples(100)))
    text = "\n".join(getattr(caught.value, "__notes__", ())) + capsys.readouterr().out
    assert "amount=1" in text and "Sim(seed=0, mode='actors')" in text


# -- imports -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_runtime_does_not_import_the_tools() -> None:
    code = (
        "import sys, actors; "
        "assert not {'actors.testing', 'pytest', 'hypothesis'} & set(sys.modules); "
        "import actors.testing.plugin, actors.testing; "
        "assert 'hypothesis' not in sys.modules and 'actors.testing.simulation' not in sys.modules; "
        "assert all(hasattr(actors.testing, name) for name in actors.testing.__all__)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_unknown_names_are_attribute_errors() -> None:
    import actors.testing

    with pytest.raises(AttributeError, match="nothing"):
        _ = actors.testing.nothing
    assert SimulationFailed is actors.testing.SimulationFailed


def test_a_crash_does_not_hit_the_news_of_a_childs_end() -> None:
    """A parent that lost it would know a child that no fault of the real world leaves there."""

    class Parent(Actor):
        def on_start(self) -> None:
            self.heard: list[Any] = []
            self.child = self.spawn(Actor)
            self.watch(self.child)

        def on_child_stopped(self, ref: Any) -> None:
            self.heard.append("stopped")

        def on_receive(self, message: Any) -> Any:
            if isinstance(message, Terminated):
                self.heard.append("terminated")
                return None
            return (self.child, self.heard)[message]

    async def scenario(sim: Sim) -> None:
        parent = sim.system.spawn(Parent, name="parent")
        child = await parent.ask(0, block=False)
        await child.stop(block=False)
        await asyncio.sleep(1)
        with pytest.raises(Injected, match="crash 1 of /parent, on int"):
            await parent.ask(1, block=False)
        assert sorted(await parent.ask(1, block=False)) == ["stopped", "terminated"]

    simulate(scenario, faults=[Crash("/parent", nth=2)])
