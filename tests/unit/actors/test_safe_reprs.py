"""Messages, errors and keys whose texts raise: nothing of the runtime fails because of them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from actors import Actor, ActorSystem, DeadLetter, Event, Piped, Unhandled, handles
from actors.tracing import protocol


class Nameless:
    """A message without a text."""

    def __repr__(self) -> str:
        raise ValueError("no text")


class Deaf(Actor):
    @handles(int)
    def number(self, message: int) -> int:
        return message


async def test_a_message_without_handler_and_without_text_does_not_end_the_actor(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with ActorSystem() as system:
        ref = system.spawn(Deaf)
        with caplog.at_level(logging.WARNING, "pykka"):
            ref.tell(Nameless())
            assert await ref.ask(Nameless(), block=False) is None
            ref.tell("text")
            assert await ref.ask(1, block=False) == 1
        assert caplog.messages == [
            "Unexpected message received by Deaf (/Deaf-1): Nameless(...)",
            "Unexpected message received by Deaf (/Deaf-1): Nameless(...)",
            "Unexpected message received by Deaf (/Deaf-1): text",
        ]


async def test_a_subscriber_may_print_the_event_of_such_a_message() -> None:
    seen: list[str] = []
    async with ActorSystem() as system:
        end = system.events.subscribe(lambda event: seen.append(f"{event}"), Unhandled, DeadLetter)
        ref = system.spawn(Deaf)
        await ref.ask(Nameless(), block=False)
        await ref.stop(block=False)
        ref.notify(Nameless())
        end()
    assert seen == [
        "Unhandled(message=Nameless(...), recipient='/Deaf-1')",
        "DeadLetter(message=Nameless(...), recipient='/Deaf-1', sender=None, reason='stopped')",
    ]


def test_events_of_others_have_the_same_text_as_ever() -> None:
    assert repr(Unhandled(1, "/a")) == "Unhandled(message=1, recipient='/a')"
    assert repr(Event()) == "Event()"
    assert repr(Piped(Nameless(), None)) == "Piped(value=Nameless(...), error=None, tag=None)"


async def test_the_monitor_shows_what_has_no_text() -> None:
    class Timed(Actor):
        def on_receive(self, message: Any) -> Any:
            self.set_timer(Nameless(), 60.0, "due")

    async with ActorSystem() as system:
        ref = system.spawn(Timed)
        await ref.ask("set", block=False)
        assert protocol.details(ref._cell)["timers"] == ["Nameless(...)"]
        assert protocol.plain(Nameless()) == "Nameless(...)"


async def test_a_line_of_the_log_whose_failure_has_no_text_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise ValueError("no text")

        __repr__ = __str__

    class Raising(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            if record.name == "pykka":
                raise Silent
            return True

    raising, log = Raising(), logging.getLogger("pykka")
    log.addFilter(raising)
    try:
        async with ActorSystem() as system:
            assert await system.spawn(Deaf).ask("unhandled", block=False) is None
            await asyncio.sleep(0)
    finally:
        log.removeFilter(raising)
    assert "a line cannot be logged: Silent(...)" in caplog.messages
