"""A probe: an actor in the place of another one, that the test reads and answers for."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from actors._actor import Actor
from actors._future import Future

if TYPE_CHECKING:
    from actors._ref import ActorRef
    from actors._system import ActorSystem

TIMEOUT = 3.0
"""Seconds (virtual, in a simulation) that ``expect`` waits if not told otherwise."""


class _Receiver(Actor):
    def __init__(self, probe: Probe) -> None:
        super().__init__()
        self._probe = probe

    def on_receive(self, message: Any) -> Any:
        envelope = self._cell.envelope
        sender = None if envelope is None else envelope[3]
        self._probe._received(
            Received(
                message,
                None if sender is None else sender.ref,
                self.take_reply() if self.is_asked else None,
            )
        )


class Received:
    """A message that a probe got: its sender (None outside of actors) and the reply it waits for."""

    __slots__ = ("message", "reply", "sender")

    def __init__(self, message: Any, sender: ActorRef[Any] | None, reply: Future[Any] | None) -> None:
        self.message = message
        self.sender = sender
        self.reply = reply


def matches(wanted: Any, message: Any) -> bool:
    """Whether a message is of a class, fulfils a predicate (a function), or equals a value."""
    if isinstance(wanted, type):
        return isinstance(message, wanted)
    if callable(wanted):
        return bool(wanted(message))
    return bool(message == wanted)


class Probe:
    """Give ``probe.ref`` to the actors under test.

    An ask waits until :meth:`reply`, or until the probe stops. Works in real loops too.
    """

    def __init__(self, system: ActorSystem, name: str = "probe") -> None:
        self.messages: list[Any] = []
        """All messages so far, expected or not."""
        self._waiting: deque[Received] = deque()
        self._expected: list[Received] = []
        self._arrived = asyncio.Event()
        self.ref: ActorRef[Any] = system.spawn(_Receiver, self, name=name)

    def _received(self, received: Received) -> None:
        self.messages.append(received.message)
        self._waiting.append(received)
        self._arrived.set()

    @property
    def sender(self) -> ActorRef[Any] | None:
        """Who sent the message that was expected last; None if it came from outside of actors."""
        return self._expected[-1].sender if self._expected else None

    async def expect(self, wanted: Any = object, *, timeout: float = TIMEOUT) -> Any:
        """The next message, which must match; return it.

        Args:
            wanted: a class, a function that tells, or a value to be equal to.
            timeout: seconds to wait for it.

        Raises:
            AssertionError: none came, or another one.
        """
        received = await self._next(timeout, wanted)
        if not matches(wanted, received.message):
            raise AssertionError(f"expected {wanted!r}, got {received.message!r}")
        return received.message

    async def fish(self, wanted: Any, *, timeout: float = TIMEOUT) -> Any:
        """The next message that matches; others before it are passed over. Raises as ``expect``."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        while True:
            received = await self._next(max(until - loop.time(), 0.0), wanted)
            if matches(wanted, received.message):
                return received.message

    async def _next(self, timeout: float, wanted: Any) -> Received:
        try:
            async with asyncio.timeout(timeout):
                while not self._waiting:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            raise AssertionError(
                f"no message within {timeout:g} s; expected {wanted!r}; before: {self.messages[-5:]!r}"
            ) from None
        received = self._waiting.popleft()
        self._expected.append(received)
        return received

    async def expect_none(self, *, for_: float = TIMEOUT) -> None:
        """Nothing may come (or have come unexpected) for so many seconds.

        Raises:
            AssertionError: something did.
        """
        if not self._waiting:
            self._arrived.clear()
            try:
                async with asyncio.timeout(for_):
                    await self._arrived.wait()
            except TimeoutError:
                return
        raise AssertionError(f"expected nothing, got {self._waiting[0].message!r}")

    def reply(self, value: Any) -> None:
        """Answer the ask that was expected last (and not answered yet).

        Raises:
            AssertionError: there is none.
        """
        self._owed().try_set(value)

    def fail(self, error: BaseException) -> None:
        """Answer the same with an error."""
        self._owed().try_fail(error)

    def _owed(self) -> Future[Any]:
        for received in reversed(self._expected):
            if received.reply is not None and not received.reply.done():
                return received.reply
        raise AssertionError("no ask waits for an answer (expect() it first)")
