"""Actors as a type checker sees them: messages, replies, constructors, calls and futures.

The tests check this program with ``mypy --strict`` and with pyright. Each ``assert_type`` is what both infer.

    python examples/actors_typed.py
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import assert_type

from actors import Actor, ActorRef, ActorSystem, Broadcast, BroadcastRouter, Future, Request, Router, handles
from actors.patterns import CircuitBreaker, ask_with_retry


class Shouter(Actor):
    """Takes text and answers text: the annotations of ``on_receive`` are all that a type checker needs."""

    def __init__(self, mark: str, times: int = 1) -> None:
        super().__init__()
        self.mark, self.times = mark, times

    async def on_receive(self, message: str) -> str:
        """Answer the text with the mark."""
        return message + self.mark * self.times


class Meter(Actor):
    """A plain handler."""

    def on_receive(self, message: str | bytes) -> int:
        """Answer the length."""
        return len(message)


@dataclass(frozen=True)
class Deposit:
    """Pay in; no reply."""

    amount: int


@dataclass(frozen=True)
class GetBalance(Request[int]):
    """Names the type of its own reply, for actors that take many kinds of messages."""


class Account(Actor):
    """An actor with ``@handles``, and with methods to call."""

    balance = 0

    @handles(Deposit)
    def _deposit(self, message: Deposit) -> None:
        self.balance += message.amount

    @handles(GetBalance)
    def _get_balance(self, message: GetBalance) -> int:
        return self.balance

    async def interest(self, percent: float, *, years: int = 1) -> float:
        """Compute the interest of some years."""
        return self.balance * percent / 100 * years

    def owner(self) -> str:
        """Answer who owns the account."""
        return "everyone"


class Bank(Actor):
    """Spawns a child. Its hook is a coroutine, which pykka's declaration does not foresee."""

    async def on_stop(self) -> None:  # type: ignore[override]
        """Close the bank."""

    def on_receive(self, message: str) -> ActorRef[Account]:
        """Open an account."""
        return self.spawn(Account, name=message)


async def main() -> None:
    """Use them all."""
    async with ActorSystem() as system:
        shouter = system.spawn(Shouter, "!", times=1)
        assert_type(shouter, ActorRef[Shouter])
        reply = shouter.ask("Good news everyone", block=False)
        assert_type(reply, Future[str])
        good_news = await reply
        assert_type(good_news, str)

        meter = system.spawn(Meter, name="meter")
        meter.tell(b"bytes")
        await meter.send("text")
        length = await meter.ask("text", block=False, timeout=1.0)
        assert_type(length, int)

        bank = system.spawn(Bank)
        account = await bank.ask("savings", block=False)
        assert_type(account, ActorRef[Account])
        account.tell(Deposit(100))
        balance = await account.ask(GetBalance(), block=False)
        assert_type(balance, int)

        interest = await account.call(Account.interest, 2.5, years=2)
        assert_type(interest, float)
        owner = await account.call(Account.owner)
        assert_type(owner, str)

        both = await asyncio.gather(meter.ask("a", block=False), shouter.ask("b", block=False))
        assert_type(both, tuple[int, str])
        async with asyncio.TaskGroup() as group:
            task = group.create_task(shouter.ask("c", block=False).as_coroutine())
        assert_type(task, asyncio.Task[str])
        done, _ = await asyncio.wait([meter.ask("d", block=False).as_asyncio()])
        print(length, balance, interest, owner, both, task.result(), [each.result() for each in done])
        await routed(system, account)
        print(good_news)


async def routed(system: ActorSystem, account: ActorRef[Account]) -> None:
    """Ask through routers and patterns, which know what their actors answer."""
    shouters = system.spawn_pool(Shouter, "!", size=2)
    assert_type(shouters, Router[Shouter])
    shouters.tell("to one")
    shout = shouters.ask("to one", block=False)
    assert_type(shout, Future[str])

    everyone = system.spawn_pool(Shouter, "?", size=2, routing=Broadcast())
    assert_type(everyone, BroadcastRouter[Shouter])
    shouts = await everyone.ask("to all", block=False)
    assert_type(shouts, list[str])

    accounts = Router.of([account])
    assert_type(accounts, Router[Account])
    balance = await accounts.ask(GetBalance(), block=False)
    assert_type(balance, int)
    all_accounts = Router.of([account], Broadcast())
    balances = await all_accounts.ask(GetBalance(), block=False)
    assert_type(balances, list[int])

    breaker = CircuitBreaker()
    guarded = await breaker.ask(account, GetBalance(), timeout=1.0)
    assert_type(guarded, int)
    guarded_shout = await breaker.ask(shouters.refs[0], "through a breaker")
    assert_type(guarded_shout, str)
    repeated = await ask_with_retry(account, GetBalance())
    assert_type(repeated, int)
    print(await shout, shouts, balance, balances, guarded, guarded_shout, repeated)


if __name__ == "__main__":
    asyncio.run(main())
