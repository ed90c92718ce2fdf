"""The order of an actor's end, bounds of the runtime's own messages, and senders that wait for room."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from actors import (
    DROP_NEW,
    DROP_OLD,
    Actor,
    ActorDeadError,
    ActorRef,
    ActorSystem,
    AskCycle,
    Directive,
    Dropped,
    Future,
    MailboxFull,
    OnError,
    Supervision,
    Terminated,
    ThreadedActor,
    Timeout,
    Wait,
)
from actors._core import waiting
from actors._core.mailbox import URGENT_IN_A_ROW, Mailbox
from tests.unit.actors.virtual_time import virtual_system, virtual_time

# -- a full mailbox, and a sender that is preempted before it waits --------------------------------


def receive(self: Any, message: Any) -> None:
    if isinstance(message, threading.Event):
        message.wait(30)
    else:
        self.seen.append(message)


class Small(Actor):
    mailbox_capacity = 1
    overflow = Wait(timeout=5.0)
    on_receive = receive

    def __init__(self, seen: list[Any]) -> None:
        super().__init__()
        self.seen = seen


class SmallThread(ThreadedActor):
    use_daemon_thread = True
    mailbox_capacity = 1
    overflow = Wait(timeout=5.0)
    on_receive = receive

    def __init__(self, seen: list[Any]) -> None:
        super().__init__()
        self.seen = seen


@pytest.mark.parametrize("kind", [Small, SmallThread])
async def test_a_sender_that_finds_a_mailbox_full_and_then_drained_is_not_forgotten(
    kind: type[Actor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The window: the sender has seen a full lane and does not wait yet; the actor drains it and sleeps."""
    in_the_window, drained = threading.Event(), threading.Event()
    queue = waiting._queue

    def preempted(*args: Any) -> Any:
        in_the_window.set()
        assert drained.wait(30)
        return queue(*args)

    monkeypatch.setattr(waiting, "_queue", preempted)
    seen: list[Any] = []
    async with ActorSystem() as system:
        ref = await system.spawn(kind, seen)
        gate = threading.Event()
        if kind is SmallThread:
            ref.tell(gate)
            while len(ref.actor_inbox):
                await asyncio.sleep(0.001)
        ref.tell("first")
        sender = threading.Thread(target=ref.tell, args=("second",))
        sender.start()
        # The loop's own actor cannot drain its mailbox before this coroutine waits.
        assert in_the_window.wait(30)
        gate.set()
        while not ref.actor_inbox.asleep:
            await asyncio.sleep(0.001)
        assert seen == ["first"]
        drained.set()
        while sender.is_alive():
            await asyncio.sleep(0.001)
    assert seen == ["first", "second"], "the sender has waited in vain"


async def test_the_last_message_is_taken_while_a_sender_begins_to_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other window: the actor has looked for waiting senders and takes the only message afterwards."""
    seen: list[Any] = []
    async with ActorSystem() as system:
        ref = await system.spawn(Small, seen)
        mailbox = ref.actor_inbox
        ref.tell("first")
        room = waiting.wait_for_room(mailbox, ("second", None, 0, None, None, None))
        assert room is not None
        assert mailbox.normal.popleft()[0] == "first"  # as the loop does after its look at ``rare``
        while not seen:
            await asyncio.sleep(0)
        assert seen == ["second"] and room.done()


async def test_a_tell_on_the_loop_that_is_refused_does_not_get_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """The window: an actor with a thread makes room between the look at its full lane and the refusal."""
    seen: list[Any] = []
    async with ActorSystem() as system:
        ref = await system.spawn(Small, seen)
        rouse = Mailbox.rouse

        def make_room(mailbox: Mailbox) -> None:
            seen.extend(each[0] for each in tuple(mailbox.normal))
            mailbox.normal.clear()
            waiting.let_in(mailbox)
            rouse(mailbox)

        ref.tell("first")
        with monkeypatch.context() as patch:
            patch.setattr(Mailbox, "rouse", make_room)
            with pytest.raises(MailboxFull):
                ref.tell("second")
        await ref.stop(block=False)
    assert seen == ["first"], "the sender was told that the message is not in"


@pytest.mark.parametrize("error", [Timeout(), AskCycle(("/a", "/b", "/a"))])
def test_a_sender_that_gives_up_as_it_is_let_in_or_refused_hears_which(error: Exception) -> None:
    class Room(Future[None]):
        def __init__(self, refusal: Exception | None) -> None:
            super().__init__()
            self.refusal = refusal

        def get(self, *, timeout: float | None = None) -> None:
            _ = self.try_set(None) if self.refusal is None else self.try_fail(self.refusal)
            raise error

    mailbox: Any = None
    waiting.block_for_room(mailbox, Room(None), 0.0)
    with pytest.raises(ActorDeadError):
        waiting.block_for_room(mailbox, Room(ActorDeadError("stopped")), 0.0)


class Waited(Actor):
    """Has one message, and lets the senders of more wait."""

    mailbox_capacity = 1
    overflow = Wait()

    def __init__(self, got: list[Any]) -> None:
        super().__init__()
        self.got = got

    async def on_receive(self, message: Any) -> Any:
        await asyncio.sleep(1)
        if isinstance(message, ActorRef):
            self.watch(message)
            message.tell(self.actor_ref)
        else:
            self.got.append("terminated" if isinstance(message, Terminated) else message)
        return message


@virtual_time
async def test_a_stop_comes_after_the_messages_that_wait_for_room() -> None:
    got: list[Any] = []
    async with virtual_system() as system:
        ref = system.spawn(Waited, got)
        asks = [ref.ask(number, block=False) for number in range(4)]
        stopped, late = ref.stop(block=False), ref.ask("late", block=False)
        sent = asyncio.create_task(ref.send("later"))
        assert await asyncio.gather(*asks) == [0, 1, 2, 3] and await stopped
        assert isinstance(late.exception(), ActorDeadError)
        with pytest.raises(ActorDeadError):
            await sent
    assert got == [0, 1, 2, 3]


@virtual_time
async def test_the_news_of_a_death_come_after_the_dead_actors_asks_that_wait_for_room() -> None:
    class Asking(Actor):
        def on_receive(self, to: Any) -> None:
            asks.extend(to.ask(number, block=False) for number in range(4))
            self.stop()

    got: list[Any] = []
    asks: list[Future[Any]] = []
    async with virtual_system() as system:
        waited, asking = system.spawn(Waited, got), system.spawn(Asking)
        waited.tell(asking)
        await asyncio.sleep(20)
        assert [each.value() for each in asks] == [0, 1, 2, 3]
    assert got == [0, 1, 2, 3, "terminated"]


# -- the end of a life -----------------------------------------------------------------------------


class Talkative(Actor):
    """Says five last things, then stops or fails; its ``on_stop`` has one to add."""

    def __init__(self, to: Any) -> None:
        super().__init__()
        self.to = to

    def on_receive(self, how: str) -> None:
        for number in range(5):
            self.to.tell(number)
        if how == "fail":
            raise OSError(how)
        self.stop()

    def on_stop(self) -> None:
        self.to.tell("stopped")

    def on_failure(self, *_: Any) -> None:
        self.to.tell("failed")


class Listening(Actor):
    def __init__(self, got: list[Any], child: bool) -> None:
        super().__init__()
        self.got, self.child = got, child

    supervision = Supervision(OnError((OSError, Directive.STOP)))

    def on_receive(self, message: Any) -> Any:
        if isinstance(message, tuple):
            ref = message[1]
            if self.child:
                ref = self.spawn(Talkative, self.actor_ref)
            else:
                self.watch(ref)
            ref.tell(message[0])
        else:
            self.got.append("terminated" if isinstance(message, Terminated) else message)

    def on_child_stopped(self, ref: Any) -> None:
        self.got.append("terminated")


@virtual_time
@pytest.mark.parametrize("how", ["stop", "fail"])
@pytest.mark.parametrize("child", [True, False])
async def test_a_dead_actors_last_messages_come_before_the_news_of_its_death(how: str, child: bool) -> None:
    got: list[Any] = []
    async with virtual_system() as system:
        listening = system.spawn(Listening, got, child)
        other = None if child else system.spawn(Talkative, listening)
        listening.tell((how, other))
        await asyncio.sleep(1)
    assert got == [0, 1, 2, 3, 4, "failed" if how == "fail" else "stopped", "terminated"]


@virtual_time
async def test_the_news_of_a_death_fit_into_a_full_mailbox_and_are_never_dropped() -> None:
    got: list[Any] = []

    class Full(Listening):
        mailbox_capacity = 2
        overflow = DROP_OLD

        async def on_receive(self, message: Any) -> Any:  # type: ignore[override]
            if message == "slow":
                await asyncio.sleep(1)
            else:
                super().on_receive(message)

    async with virtual_system() as system:
        listening, other = system.spawn(Full, got, False), system.spawn(Actor)
        listening.tell(("hello", other))
        await asyncio.sleep(0.1)
        for message in ("slow", 1, 2):
            listening.tell(message)
            await asyncio.sleep(0)
        await other.stop(block=False)
        for message in range(3, 6):
            listening.tell(message)
        await asyncio.sleep(2)
    assert "terminated" in got and got[-1] == 5


# -- bounds ------------------------------------------------------------------------------------------


@virtual_time
async def test_watching_and_stopping_again_and_again_takes_no_memory() -> None:
    class Busy(Actor):
        mailbox_capacity = 10

        async def on_receive(self, message: Any) -> None:
            await asyncio.sleep(60)

    class Fickle(Actor):
        def on_receive(self, ref: Any) -> None:
            for _ in range(1000):
                self.watch(ref)
                self.unwatch(ref)
            self.watch(ref)

    async with virtual_system() as system:
        busy, fickle = system.spawn(Busy), system.spawn(Fickle)
        busy.tell("work")
        await asyncio.sleep(1)
        await fickle.ask(busy, block=False)
        for _ in range(1000):
            busy.stop(block=False)
        kept = [busy.stop(block=False) for _ in range(3)]
        assert busy.statistics().mailbox.depth <= 10
        assert len(busy._cell.stop_replies) <= 10
        assert [await stopped for stopped in kept] == [True, True, True]


@virtual_time
async def test_urgent_messages_to_itself_do_not_starve_an_actors_stop() -> None:
    class Urgent(Actor):
        handled = 0

        def on_receive(self, message: Any) -> None:
            Urgent.handled += 1
            if Urgent.handled < 10_000:
                self.actor_ref.tell(message, urgent=True)

    async with virtual_system() as system:
        ref = system.spawn(Urgent)
        ref.tell("again", urgent=True)
        await asyncio.sleep(0)
        assert await ref.stop(block=False) is True
    assert Urgent.handled < 10_000, "its stop is starved"


class Flooded(Actor):
    """Sends itself urgent messages, a thousand of them; notes all."""

    mailbox_capacity = 1

    def __init__(self, seen: list[Any]) -> None:
        super().__init__()
        self.seen = seen

    def on_receive(self, message: Any) -> None:
        self.seen.append(message)
        if len(self.seen) < 1_000:
            self.actor_ref.tell("urgent", urgent=True)


def begins_to_wait(ref: ActorRef[Any], message: Any) -> Future[None]:
    """Line up as a sender in a thread does whose full lane the actor empties in this moment."""
    mailbox = ref._cell.mailbox
    with mailbox.lock:
        return waiting._queue(mailbox, (message, None, 0, None, None, None))


@virtual_time
async def test_urgent_messages_to_itself_do_not_starve_a_sender_that_waits_before_an_empty_lane() -> None:
    seen: list[Any] = []
    async with virtual_system() as system:
        ref = await system.spawn(Flooded, seen)
        begins_to_wait(ref, "waited")
        stopped = ref.stop(block=False)  # behind it
        ref.tell("urgent", urgent=True)
        assert await stopped is True
    assert "waited" in seen[: URGENT_IN_A_ROW + 1]
    assert len(seen) <= 2 * URGENT_IN_A_ROW + 2, "the stop is starved"


async def test_a_sender_that_has_given_up_takes_no_turn_from_an_urgent_message() -> None:
    async with ActorSystem() as system:
        ref = await system.spawn(Flooded, [])
        mailbox = ref._cell.mailbox
        begins_to_wait(ref, "given up").cancel()
        mailbox.urgent = URGENT_IN_A_ROW
        mailbox.push_priority(("urgent", None, 0, None, None, None))
        taken = mailbox.get()
        assert taken is not None and taken[0] == "urgent"
        assert not mailbox.waiting and mailbox.get() is None


@virtual_time
async def test_asks_that_have_expired_leave_the_queue_of_waiting_senders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting, "MAX_WAITING", 100)

    class Full(Actor):
        mailbox_capacity = 1
        overflow = Wait()

        async def on_receive(self, message: Any) -> Any:
            await asyncio.sleep(60)
            return message

    async with virtual_system() as system:
        ref = system.spawn(Full)
        busy = [ref.ask("busy", block=False) for _ in range(2)]
        await asyncio.sleep(1)
        expired = [ref.ask("expired", block=False, timeout=1) for _ in range(100)]
        await asyncio.sleep(2)
        assert all(isinstance(future.exception(), Timeout) for future in expired)
        assert ref.statistics().mailbox.waiting == 0
        waits = ref.ask("waits", block=False)
        assert await waits == "waits" and [await each for each in busy]


@virtual_time
async def test_two_full_subscribers_of_dropped_messages_lose_events_and_nothing_else() -> None:
    class Full(Actor):
        mailbox_capacity = 1
        overflow = DROP_NEW

        async def on_receive(self, message: Any) -> None:
            await asyncio.sleep(60)

    async with virtual_system() as system:
        heard: list[Any] = []
        subscribers = [system.spawn(Full) for _ in range(2)]
        for ref in subscribers:
            system.events.subscribe(ref, Dropped)
        system.events.subscribe(heard.append, Dropped)
        target = system.spawn(Full)
        for _ in range(10):
            target.tell("message")
            await asyncio.sleep(0)
        assert heard and {event.recipient for event in heard} == {target.path}


@virtual_time
async def test_a_derived_future_that_is_cancelled_gives_up_its_ask() -> None:
    handled: list[Any] = []

    class Slow(Actor):
        async def on_receive(self, message: Any) -> Any:
            handled.append(message)
            await asyncio.sleep(1)
            return message

    async with virtual_system() as system:
        ref = system.spawn(Slow)
        first = ref.ask("first", block=False)
        await asyncio.sleep(0.1)
        second: Future[Any] = ref.ask("second", block=False)
        derived = second.map(str.upper)
        assert derived.cancel() and derived.cancelled() and second.cancelled()
        with pytest.raises(asyncio.CancelledError):
            await derived
        assert not derived.cancel()
        assert await first == "first"
    assert handled == ["first"]


@virtual_time
async def test_generated_names_avoid_explicit_ones() -> None:
    class Worker(Actor):
        def on_start(self) -> None:
            self.spawn(Actor, name="Actor-1")
            self.spawn(Actor)

    async with virtual_system() as system:
        system.spawn(Worker, name="Worker-1")
        await system.spawn(Worker)
        await asyncio.sleep(0.1)
        assert system.paths() == [
            "/Worker-1",
            "/Worker-1/Actor-1",
            "/Worker-1/Actor-2",
            "/Worker-2",
            "/Worker-2/Actor-1",
            "/Worker-2/Actor-2",
        ]
