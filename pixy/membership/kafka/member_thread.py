"""A member of a Kafka group in a thread of its own: commands go in, events come out on the loop.

That thread alone calls the consumer. When partitions are revoked, the thread posts the event inside the
revoke callback, waits there (bounded) until the loop releases them, and makes their last commit. A thread
that fails waits in the same way for the last positions before it leaves the group.

A last commit may meet a rebalance: its coordinator refuses it until all members have joined and know their generation.
So it is tried again as the member of the present generation, without a poll: librdkafka's own thread joins, and no partition can go
to another member before the next poll has given it back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pixy.errors import KafkaError, PixyError
from pixy.kafka.consumer import Check, Commit, ConsumerClient
from pixy.kafka.errors import REBALANCING_CODES, left_behind, translate
from pixy.membership import Revoked
from pixy.membership.kafka.left_behind import LeftBehind
from pixy.membership.kafka.start_lookups import MOST, StartLookups
from pixy.wire.errors import ErrorCode
from pixy.wire.types import TopicPartition

logger = logging.getLogger("pixy.membership")

E = TypeVar("E")

LAST_COMMIT = 3.0
"""Seconds in which a last commit is tried again while its group rebalances."""
_AGAIN = 0.05
"""Seconds between two attempts."""


@dataclass(slots=True, eq=False)
class _Awaited:
    """A release that the thread waits for. One that comes later has its own, so it is no answer to the next."""

    revoked: Revoked
    commits: tuple[Commit, ...] = ()
    came: threading.Event = field(default_factory=threading.Event)


class MemberThread(ABC, Generic[E]):
    """The part that all sessions share. Subclasses start :attr:`_thread` and define its step.

    Args:
        name: the member's name in logs.
        thread: the thread's name.
        post: called on the loop with each event, in order.
    """

    _client: ConsumerClient
    _last_words = 0.0
    """Seconds that a failed thread waits for :meth:`close`, whose positions it commits."""

    def __init__(self, name: str, thread: str, post: Callable[[E | Revoked], None]) -> None:
        self._name = name
        self._post_event = post
        self._loop = asyncio.get_running_loop()
        self._commands: deque[Callable[[], None]] = deque()
        self._closing = False
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._last: dict[TopicPartition, Commit] = {}
        """The positions that :meth:`close` was called with, until they are committed."""
        self._awaited: _Awaited | None = None
        self._left_behind = LeftBehind()
        self._end_asked = threading.Event()
        self._thread = threading.Thread(target=self._run, name=thread[:60], daemon=True)

    # -- from the loop ----------------------------------------------------------------------------

    def release(self, revoked: Revoked, commits: Iterable[Commit]) -> None:
        """Release revoked partitions, with their last positions. Ignored if it comes after the wait for it.

        Args:
            revoked: the event that this answers.
            commits: the positions.
        """
        awaited = self._awaited
        if awaited is not None and awaited.revoked is revoked:
            awaited.commits = tuple(commits)
            awaited.came.set()

    async def close(self, commits: Iterable[Commit], timeout: float) -> None:
        """Leave the group after these commits. Never raises: a failure is logged.

        Args:
            commits: the last positions. A later call may add some.
            timeout: seconds to wait for the thread's end.
        """
        self._last |= {(each.topic, each.partition): each for each in commits}
        self._commands.append(self._end)
        self._wake_up()
        self._end_asked.set()
        awaited = self._awaited
        if awaited is not None:
            awaited.came.set()
        await self._started()
        if self._thread.ident is None:
            return  # it never ran
        # Without a thread that joins it: while a coordinator does not answer, many groups may wait here.
        await asyncio.wait([self._ended], timeout=timeout)
        if not self._ended.done():
            logger.warning("%s: leaving takes longer than %.1f s", self._name, timeout)

    async def _started(self) -> None:
        """Wait until the thread has been started, for subclasses that start it in the background."""

    @abstractmethod
    def _wake_up(self) -> None:
        """Make the thread look at its commands soon. Any thread may call."""

    # -- in the thread ----------------------------------------------------------------------------

    def _open(self) -> None:
        """Make the client, unless the constructor did."""

    @abstractmethod
    def _step(self) -> None:
        """Run the commands and poll once. Called until :attr:`_closing` is set."""

    @abstractmethod
    def _failed(self, error: PixyError) -> E:
        """Return the event for a thread that has ended with an error."""

    def _run(self) -> None:
        try:
            self._open()
            while not self._closing:
                self._step()
        except Exception as error:
            self._fail(error)
        with contextlib.suppress(Exception):
            self._close()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._end_reported)

    def _close(self) -> None:
        """Close the client."""
        self._client.close()

    def _final_check(self, batch: tuple[Commit, ...]) -> Check | None:
        """Return the check that decides which of the last positions may be committed; None for all."""
        return None

    def _commit_last(self, batch: tuple[Commit, ...]) -> None:
        """Commit last positions. Raises an error if one of them is not committed."""
        self._client.commit(batch, wait=True, check=self._final_check(batch))

    def _end(self) -> None:
        self._closing = True
        last, self._last = self._last, {}
        self._commit_finally(tuple(each for partition, each in last.items() if self._holds(partition)))

    @abstractmethod
    def _holds(self, partition: TopicPartition) -> bool:
        """Return whether a partition was assigned when the end was asked for, and still is."""

    def _end_reported(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def _fail(self, error: Exception) -> None:
        found = error if isinstance(error, PixyError) else translate(error)
        ours = isinstance(found, KafkaError) and found.name == "UNKNOWN"  # none of Kafka's, so show where
        logger.error("%s: its session failed: %s", self._name, found, exc_info=error if ours else None)
        self._post(self._failed(found))
        self._end_asked.wait(self._last_words)
        self._end()

    def _look_for_assignment(self, lookups: StartLookups, now: float) -> None:
        """Raise an error that ends the session if the member's assignment has got lost on its way."""
        behind = self._left_behind
        if behind.due(self._client.unanswered_heartbeats, now) and lookups.running < MOST:

            def found(epoch: int | None) -> None:
                self._commands.append(lambda: behind.looked(epoch, time.monotonic()))
                self._wake_up()

            lookups.behind(self._client.member_id(), found)
        if behind.unnoticed and not self._closing:
            raise left_behind(behind.unnoticed)

    def _run_commands(self) -> None:
        while self._commands:
            self._commands.popleft()()

    def _post(self, event: E | Revoked) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._post_event, event)

    def _wait_for_release(self, revoked: Revoked, timeout: float) -> None:
        """Post the event, and commit the positions that the loop returns in time. Called in the revoke callback."""
        self._awaited = awaited = _Awaited(revoked)
        self._post(revoked)
        if not awaited.came.wait(timeout):
            logger.warning("%s: %s not released in time", self._name, list(revoked.partitions))
        self._awaited = None
        # The end may have been asked for instead of, or before, the release. After this callback it is too late.
        last = {each: self._last[each] for each in revoked.partitions if each in self._last}
        last |= {(each.topic, each.partition): each for each in awaited.commits}
        self._commit_finally(tuple(last.values()))

    def _commit_finally(self, batch: tuple[Commit, ...]) -> None:
        if not batch:
            return
        deadline = time.monotonic() + LAST_COMMIT
        while True:
            try:
                self._commit_last(batch)
                return
            except Exception as error:  # also of a client that has failed
                rebalancing = isinstance(error, KafkaError) and error.code in REBALANCING_CODES
                if not rebalancing or time.monotonic() >= deadline:
                    gone = (
                        isinstance(error, KafkaError) and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    )
                    what = "its topic is gone" if gone else "messages will be delivered again"
                    logger.warning("%s: the last commit failed, %s: %s", self._name, what, error)
                    return
            time.sleep(_AGAIN)
