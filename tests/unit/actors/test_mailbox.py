"""Bounds, lanes, overflow policies, senders that wait, stash and statistics."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Any

import pytest

from actors import (
    DROP_NEW,
    DROP_OLD,
    FAIL,
    Actor,
    ActorDeadError,
    ActorRef,
    ActorSystem,
    ControlMessage,
    DeadLetter,
    Dropped,
    MailboxFull,
    NoAnswer,
    Overflow,
    ReceiveTimeout,
    StashFull,
    Timeout,
    Wait,
)
from tests.unit.actors.virtual_time import virtual_time


class Gated(Actor):
    """Records the messages it handles; the first one waits until the gate opens."""

    mailbox_capacity = 3

    def __init__(self, gate: asyncio.Event, seen: list[Any]) -> None:
        super().__init__()
        self.gate, self.seen = gate, seen

    async def on_receive(self, message: Any) -> Any:
        self.seen.append(message)
        await self.gate.wait()
        return message


async def busy(system: ActorSystem, overflow: Overflow) -> tuple[Any, asyncio.Event, list[Any]]:
    """An actor that handles "busy" and whose mailbox holds 0, 1, 2: it is full."""
    gate, seen = asyncio.Event(), []

    class Here(Gated):
        pass

    Here.overflow = overflow
    ref = system.spawn(Here, gate, seen, name="busy")
    ref.tell("busy")
    while not seen:
        await asyncio.sleep(0)
    for number in range(3):
        ref.tell(number)
    return ref, gate, seen


async def test_fail_refuses_and_counts() -> None:
    async with ActorSystem() as system:
        ref, gate, _ = await busy(system, FAIL)
        with pytest.raises(MailboxFull, match=r"mailbox of /busy is full \(3 messages\).*await ref.send"):
            ref.tell("x")
        with pytest.raises(MailboxFull):
            await ref.ask("x", block=False)
        assert ref.notify("x") is False
        assert ref.statistics().mailbox.rejected == 3
        gate.set()


async def test_drop_new_drops_the_new_message_and_answers_its_asker() -> None:
    dropped: list[Dropped] = []
    async with ActorSystem() as system:
        system.events.subscribe(dropped.append, Dropped)
        ref, gate, seen = await busy(system, DROP_NEW)
        ref.tell("new")
        with pytest.raises(MailboxFull):
            await ref.ask("asked", block=False)
        assert [(event.message, event.reason) for event in dropped] == [
            ("new", "drop_new"),
            ("asked", "drop_new"),
        ]
        assert ref.statistics().mailbox.dropped == 2
        gate.set()
        await ref.stop(block=False)
    assert seen == ["busy", 0, 1, 2]


async def test_drop_old_drops_the_oldest_message_but_never_a_stop() -> None:
    async with ActorSystem() as system:
        ref, gate, seen = await busy(system, DROP_OLD)
        stopped = ref.stop(block=False)
        for word in ("a", "b", "c", "d"):
            ref.tell(word)
        gate.set()
        assert await stopped is True
    assert seen == ["busy"], "the stop stood before all that was left"


async def test_drop_old_keeps_the_newest() -> None:
    async with ActorSystem() as system:
        ref, gate, seen = await busy(system, DROP_OLD)
        ref.tell(3)
        gate.set()
        await ref.stop(block=False)
    assert seen == ["busy", 1, 2, 3]


async def test_send_waits_for_room_in_the_order_of_the_senders() -> None:
    async with ActorSystem() as system:
        ref, gate, seen = await busy(system, FAIL)
        senders = [asyncio.create_task(ref.send(number)) for number in range(3, 8)]
        await asyncio.sleep(0)
        assert ref.statistics().mailbox.waiting == 5
        senders[1].cancel()
        gate.set()
        await asyncio.gather(*senders, return_exceptions=True)
        await ref.stop(block=False)
    assert seen == ["busy", 0, 1, 2, 3, 5, 6, 7], "the cancelled one is not delivered"


async def test_send_times_out_and_a_stop_ends_the_wait() -> None:
    async with ActorSystem(stop_grace=0.01) as system:
        ref, _gate, seen = await busy(system, FAIL)
        with pytest.raises(MailboxFull):
            await ref.send("late", timeout=0.01)
        waiting = asyncio.create_task(ref.send("never"))
        await asyncio.sleep(0)
        await system.stop()
        with pytest.raises(ActorDeadError):
            await waiting
    assert "late" not in seen and "never" not in seen


async def test_the_wait_policy_holds_a_thread_and_an_ask_but_never_the_loop() -> None:
    async with ActorSystem() as system:
        ref, gate, seen = await busy(system, Wait(timeout=5))
        with pytest.raises(MailboxFull):
            ref.tell("on the loop")
        thread = threading.Thread(target=ref.tell, args=("from a thread",))
        thread.start()
        while ref.statistics().mailbox.waiting < 1:
            await asyncio.sleep(0.001)
        reply = ref.ask("asked", block=False)
        gate.set()
        assert await reply == "asked"
        await asyncio.to_thread(thread.join)
    assert seen == ["busy", 0, 1, 2, "from a thread", "asked"]


async def test_the_wait_policy_gives_up_in_a_thread() -> None:
    async with ActorSystem() as system:
        ref, gate, seen = await busy(system, Wait(timeout=0.01))
        with pytest.raises(MailboxFull):
            await asyncio.to_thread(ref.tell, "too late")
        gate.set()
        await ref.stop(block=False)
    assert "too late" not in seen


async def test_lanes_are_served_system_first_then_priority() -> None:
    class Now(ControlMessage):
        pass

    now = Now()
    async with ActorSystem() as system:
        ref, gate, seen = await busy(system, FAIL)
        ref.tell("urgent", urgent=True)
        ref.tell(now)
        assert ref.statistics().mailbox.priority == 2
        gate.set()
        await ref.stop(block=False)
    assert seen == ["busy", "urgent", now, 0, 1, 2]


async def test_the_priority_lane_is_bounded_too() -> None:
    async with ActorSystem() as system:
        ref, gate, _ = await busy(system, FAIL)
        for number in range(48):
            ref.tell(number, urgent=True)
        with pytest.raises(MailboxFull, match="48 messages"):
            ref.tell("one more", urgent=True)
        gate.set()


class Opening(Actor):
    """Stashes all messages until it is opened."""

    stash_capacity = 3

    def __init__(self, seen: list[Any]) -> None:
        super().__init__()
        self.seen = seen

    def on_receive(self, message: Any) -> Any:
        if message == "open":
            self.become(self.opened)
            self.unstash_all()
            return None
        self.stash()
        return "never sent"

    def opened(self, message: Any) -> Any:
        if message == "boom":
            raise RuntimeError("boom")
        self.seen.append(message)
        return message


@pytest.mark.parametrize("ahead", [0, 3])
async def test_an_actor_that_puts_its_message_aside_again_and_again_can_be_stopped(ahead: int) -> None:
    handled: list[object] = []

    class Retrying(Actor):
        def on_receive(self, message: object) -> None:
            handled.append(message)
            if message == "try" and len(handled) < 10_000:
                self.stash()
                self.unstash_all()

    async with ActorSystem() as system:
        ref = system.spawn(Retrying)
        ref.tell("try")
        for number in range(ahead):
            ref.tell(number)
        await ref.stop(block=False)
    others = [message for message in handled if message != "try"]
    assert others == list(range(ahead)), "what was sent before the stop is handled before it"
    assert len(handled) < 200


async def test_what_is_put_aside_through_many_steps_stays_before_later_messages() -> None:
    handled: list[str] = []

    class Steps(Actor):
        step = 0

        def on_receive(self, message: str) -> None:
            if self.step == 40:
                handled.append(message)
                return
            self.stash()
            if message == "b":
                self.step += 1
                self.unstash_all()

    async with ActorSystem() as system:
        ref = system.spawn(Steps)
        for text in ("a", "b", "later"):
            ref.tell(text)
        await ref.stop(block=False)
    assert handled == ["a", "b", "later"]


async def test_stash_keeps_order_and_askers() -> None:
    seen: list[Any] = []
    async with ActorSystem() as system:
        ref = system.spawn(Opening, seen)
        first, second = ref.ask(1, block=False), ref.ask(2, block=False)
        ref.tell(3)
        with pytest.raises(StashFull):
            await ref.ask(4, block=False)
        assert ref.statistics().mailbox.stashed == 3
        ref.tell("open")
        ref.tell(5)
        assert [await first, await second] == [1, 2]
        await ref.stop(block=False)
    assert seen == [1, 2, 3, 5]


class Closing(Opening):
    """Has a last hook, so its stop takes longer."""

    def on_stop(self) -> None:
        self.seen.append("stopped")


@pytest.mark.parametrize("kind", [Opening, Closing])
async def test_stashed_asks_are_answered_when_the_actor_stops(kind: type[Opening]) -> None:
    """A handler has seen them; the asker of a message behind the stop knows that no handler has."""
    letters: list[Any] = []
    async with ActorSystem() as system:
        system.events.subscribe(lambda event: letters.append(event.message), DeadLetter)
        ref = system.spawn(kind, [])
        kept = ref.ask("kept", block=False)
        ref.stop(block=False)
        late = ref.ask("late", block=False)
        with pytest.raises(NoAnswer, match="stopped with the message put aside"):
            await kept
        with pytest.raises(ActorDeadError) as unseen:
            await late
        assert type(unseen.value) is ActorDeadError
    assert letters == ["kept", "late"]


async def test_unbecome_goes_back() -> None:
    class Moody(Actor):
        def on_receive(self, message: Any) -> Any:
            if message == "change":
                self.become(self.other, discard_old=False)
            return "first"

        def other(self, message: Any) -> Any:
            if message == "back":
                self.unbecome()
            return "other"

    async with ActorSystem() as system:
        ref = system.spawn(Moody)
        words = ["x", "change", "x", "back", "x"]
        answers = [await ref.ask(word, block=False) for word in words]
    assert answers == ["first", "first", "other", "other", "first"]


@virtual_time
async def test_receive_timeout_comes_after_silence_only() -> None:
    got: list[Any] = []

    class Idle(Actor):
        def on_start(self) -> None:
            self.set_receive_timeout(0.05)

        def on_receive(self, message: Any) -> None:
            got.append(message)
            if isinstance(message, ReceiveTimeout):
                self.set_receive_timeout(None)

    async with ActorSystem() as system:
        ref = system.spawn(Idle)
        for number in range(8):
            ref.tell(number)
            await asyncio.sleep(0.01)
        while not isinstance(got[-1], ReceiveTimeout):
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.08)
    assert got == [*range(8), ReceiveTimeout()]


async def test_statistics_count_handled_failed_and_waiting_messages() -> None:
    class Mixed(Actor):
        def on_receive(self, message: Any) -> None:
            if message == "bad":
                raise ValueError(message)

    async with ActorSystem() as system:
        ref = system.spawn(Mixed)
        for message in ("a", "b"):
            await ref.ask(message, block=False)
        with pytest.raises(ValueError, match="bad"):
            await ref.ask("bad", block=False)
        given_up = ref.ask("c", block=False)
        given_up.cancel()
        await ref.ask("d", block=False)
        found = ref.statistics()
    assert (found.processed, found.failed, found.abandoned) == (4, 1, 1)
    assert found.wait.total == found.run.total == 4
    assert 0 < found.run.quantile(0.99) < 1 and found.state == "running"


async def test_timed_asks_expire_and_are_not_executed() -> None:
    async with ActorSystem() as system:
        ref, gate, seen = await busy(system, FAIL)
        asked = ref.ask("late", block=False, timeout=0.01, urgent=True)
        with pytest.raises(Timeout):
            await asked
        gate.set()
        await ref.stop(block=False)
    assert "late" not in seen


class Interrupted(deque[Any]):
    """A lane that lets another thread go first, once."""

    meanwhile: Any = None

    def append(self, envelope: Any) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            other = threading.Thread(target=meanwhile)
            other.start()
            other.join()
        super().append(envelope)


@pytest.mark.parametrize("send", [ActorRef.tell, lambda ref, message: ref.ask(message, block=False)])
async def test_the_last_place_is_taken_by_a_thread_while_the_loop_puts_a_message(send: Any) -> None:
    async with ActorSystem() as system:
        actor, gate, seen = await busy(system, FAIL)
        mailbox = actor.actor_inbox
        mailbox.normal.pop()
        lane = mailbox.normal = Interrupted(mailbox.normal)
        lane.meanwhile = lambda: actor.tell("from the thread")
        with pytest.raises(MailboxFull):
            refused = send(actor, "from the loop")
            await refused  # an ask
        assert len(mailbox.normal) == mailbox.capacity
        gate.set()
        await actor.stop(block=False)
        assert seen == ["busy", 0, 1, "from the thread"]


async def test_messages_that_a_callback_unstashes_are_handled() -> None:
    """The actor sleeps: no message of its own wakes it."""

    class Connecting(Actor):
        connected = False

        def on_receive(self, message: str) -> Any:
            return message if self.connected else self.stash()

    async with ActorSystem() as system:
        ref = system.spawn(Connecting)
        asked = ref.ask("hello", block=False)
        while not ref.statistics().mailbox.stashed:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        actor: Any = ref._cell.actor
        actor.connected = True
        asyncio.get_running_loop().call_soon(actor.unstash_all)
        for _ in range(20):
            await asyncio.sleep(0)
        assert asked.done() and asked.value() == "hello"


async def test_with_drop_old_a_tell_stays_behind_an_earlier_send_that_waits() -> None:
    async with ActorSystem() as system:
        ref, gate, seen = await busy(system, DROP_OLD)
        sends = [asyncio.ensure_future(ref.send(f"sent {number}")) for number in range(2)]
        await asyncio.sleep(0)
        for number in range(3):
            ref.tell(f"told {number}")
        assert ref.statistics().mailbox.dropped == 3
        await asyncio.gather(*sends)
        gate.set()
        while len(seen) < 6:
            await asyncio.sleep(0)
        assert seen == ["busy", "sent 0", "sent 1", "told 0", "told 1", "told 2"]


async def test_with_drop_old_a_tell_behind_a_send_that_was_given_up_takes_the_room() -> None:
    async with ActorSystem() as system:
        ref, gate, seen = await busy(system, DROP_OLD)
        sending = asyncio.ensure_future(ref.send("given up"))
        await asyncio.sleep(0)
        sending.cancel()
        await asyncio.sleep(0)
        ref.tell("told")
        assert [each[0] for each in ref._cell.mailbox.normal] == [1, 2, "told"]
        gate.set()
        while len(seen) < 4:
            await asyncio.sleep(0)
        assert seen == ["busy", 1, 2, "told"]


async def test_with_drop_old_a_tell_behind_senders_that_wait_is_a_dead_letter_if_the_actor_dies() -> None:
    async with ActorSystem() as system:
        letters: list[Any] = []
        system.events.subscribe(lambda letter: letters.append(letter.message), DeadLetter)
        ref, _, _ = await busy(system, DROP_OLD)
        sends = [asyncio.ensure_future(ref.send(f"sent {number}")) for number in range(2)]
        await asyncio.sleep(0)
        ref.tell("told")
        asked = ref.ask("asked", block=False)
        stopped = ref.stop(block=False)
        ref._cell.task.cancel()
        await stopped
        with pytest.raises(ActorDeadError):
            await asked
        await asyncio.gather(*sends, return_exceptions=True)
        assert letters.count("told") == 1
