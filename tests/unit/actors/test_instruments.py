"""Instruments that keep messages out of a mailbox."""

from __future__ import annotations

from typing import Any

import pytest

from actors import HELD, Actor, ControlMessage, Dropped, Instrument, MailboxFull
from tests.unit.actors.virtual_time import virtual_system, virtual_time


class Echo(Actor):
    def on_receive(self, message: Any) -> Any:
        return message


class Urgent(ControlMessage):
    pass


class Gate(Instrument):
    def admit(self, cell: Any, envelope: Any, lane: str) -> bool:
        return False


class Pause(Instrument):
    def __init__(self) -> None:
        self.held: list[Any] = []

    def admit(self, cell: Any, envelope: Any, lane: str) -> Any:
        self.held.append((cell, envelope, lane))
        return HELD


@virtual_time
@pytest.mark.parametrize("message", ["usual", Urgent()])
async def test_what_an_instrument_keeps_out_is_dropped_and_its_asker_hears_at_once(message: Any) -> None:
    async with virtual_system() as system:
        ref = await system.spawn(Echo)
        seen: list[Dropped] = []
        system.events.subscribe(seen.append, Dropped)
        gate = Gate()
        system.instrument(gate)
        with pytest.raises(MailboxFull, match=r"^/Echo-1: an instrument has kept the message out$"):
            await ref.ask(message, block=False, timeout=5)
        ref.tell(message)
        await ref.send(message)
        assert [(each.recipient, each.message, each.reason) for each in seen] == [
            (ref.path, message, "instrument")
        ] * 3
        assert ref.statistics().mailbox.dropped == 3


@virtual_time
async def test_a_message_that_an_instrument_holds_is_not_dropped() -> None:
    async with virtual_system() as system:
        ref = await system.spawn(Echo)
        pause = Pause()
        system.instrument(pause)
        reply = ref.ask("held", block=False, timeout=5)
        assert not reply.done() and ref.statistics().mailbox.dropped == 0
        ((cell, envelope, lane),) = pause.held
        cell.mailbox.deliver(envelope, lane)
        assert await reply == "held"
