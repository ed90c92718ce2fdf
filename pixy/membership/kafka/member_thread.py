"""A member of a Kafka group in a thread of its own: commands go in, events come out on the loop.

That thread alone calls the consumer. When partitions are revoked, the thread posts the event inside the
revoke callback, waits there (bounded) until the loop releases them, and makes their last commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from pixy.errors import PixyError
from pixy.kafka.consumer import Commit, ConsumerClient
from pixy.kafka.errors import translate

logger = logging.getLogger("pixy.membership")

E = TypeVar("E")


class MemberThread(ABC, Generic[E]):
    """The part that all sessions share. Subclasses start :attr:`_thread` and define its step.

    Args:
        name: the member's name in logs.
        thread: the thread's name.
        post: called on the loop with each event, in order.
    """

    _client: ConsumerClient

    def __init__(self, name: str, thread: str, post: Callable[[E], None]) -> None:
        self._name = name
        self._post_event = post
        self._loop = asyncio.get_running_loop()
        self._commands: deque[Callable[[], None]] = deque()
        self._closing = False
        self._released: tuple[Commit, ...] = ()
        self._release = threading.Event()
        self._thread = threading.Thread(target=self._run, name=thread[:60], daemon=True)

    # -- from the loop ----------------------------------------------------------------------------

    def release(self, commits: Iterable[Commit]) -> None:
        """Release the revoked partitions, with their last positions."""
        self._released = tuple(commits)
        self._release.set()

    async def close(self, commits: Iterable[Commit], timeout: float) -> None:
        """Leave the group after these commits. Never raises: a failure is logged.

        Args:
            commits: the last positions.
            timeout: seconds to wait for the thread's end.
        """
        batch = tuple(commits)

        def end() -> None:
            self._closing = True
            self._commit_finally(batch)

        self._commands.append(end)
        self._wake_up()
        self._release.set()
        await self._started()
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join, timeout)
        if self._thread.is_alive():
            logger.warning("%s: leaving takes longer than %.1f s", self._name, timeout)

    async def _started(self) -> None:
        """Wait until the thread has been started, for subclasses that start it in the background."""

    @abstractmethod
    def _wake_up(self) -> None:
        """Make the thread look at its commands soon. Called on the loop."""

    # -- in the thread ----------------------------------------------------------------------------

    def _open(self) -> None:
        """Make the client, unless the constructor did."""

    @abstractmethod
    def _step(self) -> None:
        """Run the commands and poll once. Called until :attr:`_closing` is set."""

    @abstractmethod
    def _failed(self, error: PixyError) -> E:
        """The event for a thread that has ended with an error."""

    def _run(self) -> None:
        try:
            self._open()
            while not self._closing:
                self._step()
        except Exception as error:
            logger.exception("%s: its session failed", self._name)
            self._closing = True
            self._post(self._failed(error if isinstance(error, PixyError) else translate(error)))
        with contextlib.suppress(Exception):
            self._client.close()

    def _run_commands(self) -> None:
        while self._commands:
            self._commands.popleft()()

    def _post(self, event: E) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._post_event, event)

    def _wait_for_release(self, event: E, timeout: float, partitions: object) -> None:
        """In the revoke callback: post the event, and commit the positions that the loop returns in time."""
        self._release.clear()
        self._released = ()
        self._post(event)
        if not self._release.wait(timeout):
            logger.warning("%s: %s not released in time", self._name, partitions)
        self._commit_finally(self._released)

    def _commit_finally(self, batch: tuple[Commit, ...]) -> None:
        if not batch:
            return
        try:
            self._client.commit(batch, wait=True)
        except PixyError as error:
            logger.warning(
                "%s: the last commit failed, messages will be delivered again: %s", self._name, error
            )
