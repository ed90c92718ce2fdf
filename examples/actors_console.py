"""A shop of actors with some troubles, and the debug console that shows them.

    python examples/actors_console.py --port 8080     # then open http://127.0.0.1:8080/, until Ctrl-C
    python examples/actors_console.py --self-test     # ask the console who holds others up

The lines that a program needs are in ``main``. The troubles: the warehouse waits for a carrier that never answers, so
orders pile up; the ledger's disk is full now and then; letters to a clerk who has left are lost; two managers wait for each
other.
"""

import argparse
import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from actors import Actor, ActorRef, ActorSystem, Backoff, Intensity, Supervision, handles
from actors.console import serve


@dataclass(frozen=True)
class Order:
    """An order of a customer."""

    number: int


@dataclass(frozen=True)
class GetPrice:
    """Ask for an order's price."""

    number: int


@dataclass(frozen=True)
class Ship:
    """Send an order to its customer."""

    number: int


@dataclass(frozen=True)
class Book:
    """Enter an order's price into the books."""

    number: int
    price: float


@dataclass(frozen=True)
class Approve:
    """Ask a manager for a decision."""


class Pricing(Actor):
    """Knows prices; takes some milliseconds for each."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.last: list[float] = []

    @handles(GetPrice)
    async def price(self, message: GetPrice) -> float:
        """Answer with the price."""
        await asyncio.sleep(random.expovariate(1 / 0.004))
        self.asked += 1
        self.last = [*self.last[-4:], price := round(random.uniform(5, 90), 2)]
        return price

    def console_state(self) -> Mapping[str, Any]:
        """Show these figures in the console."""
        return {
            "currency": "EUR",
            "asked": self.asked,
            "last prices": self.last,
            "source": {"table": "2026-11", "stale": False},
        }


class Ledger(Actor):
    """Keeps the books; its disk is full now and then."""

    @handles(Book)
    def book(self, message: Book) -> None:
        """Write a line."""
        if random.random() < 0.004:
            raise OSError("no space left on device")


class Desk(Actor):
    """Takes orders: asks for the price, books it; if it serves mail orders, has them shipped."""

    def __init__(self, mail: bool) -> None:
        super().__init__()
        self.mail = mail

    @handles(Order)
    async def order(self, message: Order) -> None:
        """Handle an order."""
        price = await find(self, "/shop/pricing").ask(GetPrice(message.number), block=False)
        find(self, "/shop/ledger").tell(Book(message.number, price))
        if self.mail and message.number % 5 == 0:
            await find(self, "/shop/warehouse").ask(Ship(message.number), block=False)


class Warehouse(Actor):
    """Ships orders, one after the other."""

    @handles(Ship)
    async def ship(self, message: Ship) -> None:
        """Call the carrier and wait until it has come."""
        await find(self, "/shop/carrier").ask(message, block=False)


class Carrier(Actor):
    """Never comes."""

    @handles(Ship)
    async def ship(self, message: Ship) -> None:
        """Wait for the lorry."""
        await asyncio.get_running_loop().create_future()


class Manager(Actor):
    """Asks the other one before it decides. The runtime refuses circles of handlers; this one hides in tasks."""

    def __init__(self, other: str) -> None:
        super().__init__()
        self.other = other

    @handles(Approve)
    async def approve(self, message: Approve) -> None:
        """Wait for the other one's decision."""
        await asyncio.create_task(self.consult())

    async def consult(self) -> None:
        """Ask the other one."""
        await find(self, self.other).ask(Approve(), block=False)


class Shelf(Actor):
    """Holds goods; there are many."""

    def on_receive(self, message: Any) -> None:
        """Take what comes."""


class Clerk(Shelf):
    """Leaves early."""


class Shop(Actor):
    """The supervisor."""

    supervision = Supervision(
        intensity=Intensity(restarts=200, window=60), backoff=Backoff(first=0.05, most=0.2)
    )

    def __init__(self, desks: int, shelves: int) -> None:
        super().__init__()
        self.desks, self.shelves = desks, shelves

    def on_start(self) -> None:
        """Open the shop."""
        for kind in (Pricing, Ledger, Carrier, Warehouse):
            self.spawn(kind, name=kind.__name__.lower())
        for number in range(self.desks):
            self.spawn(Desk, number < 3, name=f"desk-{number + 1}")
        for number in range(self.shelves):
            self.spawn(Shelf, name=f"shelf-{number + 1}")


def find(actor: Actor, path: str) -> ActorRef[Any]:
    """Return the actor at a path."""
    ref = actor.system.lookup(path)
    assert ref is not None, path
    return ref


@contextlib.asynccontextmanager
async def shop(desks: int = 12, shelves: int = 200) -> AsyncIterator[ActorSystem]:
    """Open a shop whose customers order some hundred times a second."""
    async with ActorSystem("shop", stop_grace=0.2) as system:
        await system.spawn(Shop, desks, shelves, name="shop", supervision=Supervision())
        system.spawn(Manager, "/manager-b", name="manager-a")
        system.spawn(Manager, "/manager-a", name="manager-b").notify(Approve())
        clerk = system.spawn(Clerk, name="clerk")
        await clerk.stop(block=False)
        customers = asyncio.create_task(order(system, clerk, desks, shelves))
        try:
            yield system
        finally:
            customers.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await customers


async def order(system: ActorSystem, clerk: ActorRef[Any], desks: int, shelves: int) -> None:
    """Be the customers."""
    number = 0
    while True:
        await asyncio.sleep(0.02)
        for _ in range(random.randint(1, 6)):
            number += 1
            desk = system.lookup(f"/shop/desk-{random.randint(1, desks)}")
            shelf = system.lookup(f"/shop/shelf-{random.randint(1, shelves)}")
            if desk is not None and shelf is not None:
                desk.notify(Order(number))
                shelf.notify(Book(number, 0.0))
        if number % 7 == 0:
            clerk.notify(Order(number))


async def main(port: int) -> None:
    """Open the shop with a console, until Ctrl-C."""
    async with shop() as system, serve(system, port=port) as address:
        print(f"the console: {address}", flush=True)
        await asyncio.get_running_loop().create_future()


async def self_test() -> None:
    """Ask the console, as a script would, who holds others up."""
    async with shop() as system, serve(system) as address, aiohttp.ClientSession() as client:
        async with asyncio.timeout(60):
            found: list[str] = []
            while found != ["/shop/carrier"]:
                await asyncio.sleep(0.1)
                async with client.get(f"{address}api/waits") as answer:
                    found = [blocker["path"] for blocker in (await answer.json())["data"]["blockers"][:1]]
    print("Good news everyone!")


def tcp_port(text: str) -> int:
    """Parse a port."""
    if not 0 <= (number := int(text)) < 65536:
        raise argparse.ArgumentTypeError(f"{text} is not a port: 0 to 65535")
    return number


if __name__ == "__main__":
    logging.disable()  # the console shows the failures
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=tcp_port, default=8080)
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        try:
            asyncio.run(self_test() if arguments.self_test else main(arguments.port))
        except OSError as error:
            parser.exit(1, f"actors_console.py: port {arguments.port}: {error.strerror}\n")
