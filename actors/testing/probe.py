"""A probe: an actor that takes the place of another one; the test reads its messages and replies for it."""

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
"""Seconds that ``expect`` waits by default; virtual in a simulation."""


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
    """A message that a probe received.

    Args:
        message: the message.
        sender: the sending actor; None if it was sent from outside of actors.
        reply: the future to settle if the message was asked; None if it was told.
    """

    __slots__ = ("message", "reply", "sender")

    def __init__(self, message: Any, sender: ActorRef[Any] | None, reply: Future[Any] | None) -> None:
        self.message = message
        self.sender = sender
        self.reply = reply


def matches(wanted: Any, message: Any) -> bool:
    """Return whether a message matches.

    Args:
        wanted: a class, a predicate, or a value to be equal to.
        message: the message.
    """
    if isinstance(wanted, type):
        return isinstance(message, wanted)
    if callable(wanted):
        return bool(wanted(message))
    return bool(message == wanted)


class Probe:
    """An actor that records its messages; pass ``probe.ref`` to the actors under test.

    An ask waits until :meth:`reply` or :meth:`fail`, or until the probe stops. Probes also work on real
    loops.

    Args:
        system: the system to spawn the probe in.
        name: name of the probe; its path is ``/name``.
    """

    def __init__(self, system: ActorSystem, name: str = "probe") -> None:
        self.messages: list[Any] = []
        """All messages received so far, expected or not."""
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
        """The sender of the last expected message; None if it was sent from outside of actors."""
        return self._expected[-1].sender if self._expected else None

    async def expect(self, wanted: Any = object, *, timeout: float = TIMEOUT) -> Any:
        """Wait for the next message, check that it matches, and return it.

        Args:
            wanted: a class, a predicate, or a value to be equal to.
            timeout: seconds to wait, 0 or more.

        Raises:
            AssertionError: no message came, or it does not match.
        """
        received = await self._next(timeout, wanted)
        if not matches(wanted, received.message):
            raise AssertionError(f"expected {wanted!r}, got {received.message!r}")
        return received.message

    async def fish(self, wanted: Any, *, timeout: float = TIMEOUT) -> Any:
        """Wait for a message that matches and return it; skip the messages before it.

        Args:
            wanted: a class, a predicate, or a value to be equal to.
            timeout: seconds to wait in total, 0 or more.

        Raises:
            AssertionError: no matching message came.
        """
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
                f"no message within {timeout:g} s; expected {wanted!r}; last messages: {self.messages[-5:]!r}"
            ) from None
        received = self._waiting.popleft()
        self._expected.append(received)
        return received

    async def expect_none(self, *, for_: float = TIMEOUT) -> None:
        """Check that no message arrives, and that none waits to be expected.

        Args:
            for_: seconds to wait.

        Raises:
            AssertionError: a message arrived.
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
        """Reply to the last expected ask that has no reply yet.

        Raises:
            AssertionError: there is no such ask.
        """
        self._owed().try_set(value)

    def fail(self, error: BaseException) -> None:
        """Fail the last expected ask that has no reply yet. Raises as :meth:`reply`."""
        self._owed().try_fail(error)

    def _owed(self) -> Future[Any]:
        for received in reversed(self._expected):
            if received.reply is not None and not received.reply.done():
                return received.reply
        raise AssertionError("no expected ask waits for a reply (call expect() first)")
