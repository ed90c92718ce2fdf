"""Reads of a partition by offset: a bounded pool of Kafka consumers, each busy with one read.

A read waits in a thread of its consumer's, never on the loop. The consumer that ended where a read
begins is the one that gets it: it has fetched ahead.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from actors import Actor, Future
from pixy.config.model import Proxy
from pixy.errors import FetchPoolBusy, PixyError
from pixy.kafka.errors import translate
from pixy.kafka.fetcher import FetchClient, Read

logger = logging.getLogger("pixy.engine")

_IDLE = 30.0
_WARM = 2.0

MakeClient = Callable[[], FetchClient]


@dataclass(frozen=True, slots=True)
class Fetch:
    """Ask for messages: a list of confluent-kafka's, empty if none came within the timeout."""

    read: Read


@dataclass(frozen=True, slots=True)
class _CheckIdle:
    pass


class _Expire:
    pass


@dataclass(slots=True)
class _Waiting:
    read: Read
    reply: Future[Any]
    until: float


class Fetcher(Actor):
    """Child of the cluster.

    Args:
        make: makes a consumer; called in a thread.
    """

    def __init__(self, proxy: Proxy, make: MakeClient) -> None:
        super().__init__()
        self._most = proxy.max_fetches
        self._max_waiting = proxy.max_waiting_fetches
        self._patience = proxy.fetch_pool_timeout
        self._make = make
        self._threads = ThreadPoolExecutor(self._most, "kafka-fetch")
        self._idle: list[tuple[float, FetchClient]] = []
        self._clients = 0
        self._active = 0
        self._waiting: deque[_Waiting] = deque()
        self._stopping = False

    def on_start(self) -> None:
        """Watch for idle consumers."""
        self.set_timer("idle", _WARM, _CheckIdle(), every=_WARM)

    def on_receive(self, message: Any) -> Any:
        """See the messages of this module."""
        kind = type(message)
        if kind is Fetch:
            self._fetch(message)
        elif kind is _CheckIdle:
            self._check_idle()
        elif kind is _Expire:
            self._expire()
        else:
            return super().on_receive(message)
        return None

    async def on_stop(self) -> None:  # type: ignore[override]
        """End reads that wait, and the consumers."""
        self._stopping = True
        while self._waiting:
            self._waiting.popleft().reply.try_fail(FetchPoolBusy())
        idle, self._idle = self._idle, []
        for _, client in idle:
            self._threads.submit(client.close)
        self._threads.shutdown(wait=False)

    async def on_failure(self, *_exc_info: Any) -> None:  # type: ignore[override]
        """The next life has threads and consumers of its own."""
        await self.on_stop()

    # -- reads ------------------------------------------------------------------------------------

    def _fetch(self, message: Fetch) -> None:
        reply = self.take_reply()
        if self._active < self._most:
            self._begin(message.read, reply)
        elif len(self._waiting) >= self._max_waiting:
            reply.try_fail(FetchPoolBusy())
        else:
            until = self.system.loop.time() + self._patience
            self._waiting.append(_Waiting(message.read, reply, until))
            if len(self._waiting) == 1:
                self.set_timer("expire", self._patience, _Expire())

    def _begin(self, read: Read, reply: Future[Any]) -> None:
        self._active += 1
        client = self._choose(read)
        if client is None:
            self._clients += 1
        self.start_task(self._serve(read, reply, client))

    def _choose(self, read: Read) -> FetchClient | None:
        """The consumer that stands where the read begins; else one that stands nowhere; else None, a
        new one; else the one that nobody has come back to for longest.
        """
        wanted = (read.topic, read.partition, read.offset)
        for at, (_, client) in enumerate(self._idle):
            if client.position == wanted:
                del self._idle[at]
                return client
        resting = [at for at, (_, client) in enumerate(self._idle) if client.position is None]
        if resting:
            return self._idle.pop(resting[-1])[1]
        if self._idle and self._clients >= self._most:
            return self._idle.pop(0)[1]
        return None

    async def _serve(self, read: Read, reply: Future[Any], client: FetchClient | None) -> None:
        loop = self.system.loop
        made: list[FetchClient] = [] if client is None else [client]

        def given_up() -> bool:
            return self._stopping or reply.cancelled()

        def blocking() -> list[Any]:
            if not made:
                made.append(self._make())
            return made[0].read(read, given_up)

        broken = False
        try:
            reply.try_set(await loop.run_in_executor(self._threads, blocking))
        except PixyError as error:
            reply.try_fail(error)
        except Exception as error:
            broken = True
            reply.try_fail(translate(error))
        finally:
            self._finish(made, broken)

    def _finish(self, made: list[FetchClient], broken: bool) -> None:
        self._active -= 1
        if not made or broken or self._stopping:
            self._clients -= 1
            if made:
                self._end(made[0])
        else:
            self._idle.append((self.system.loop.time(), made[0]))
        while self._waiting and self._active < self._most:
            waiting = self._waiting.popleft()
            if not waiting.reply.cancelled():
                self._begin(waiting.read, waiting.reply)

    def _expire(self) -> None:
        now = self.system.loop.time()
        while self._waiting and self._waiting[0].until <= now:
            self._waiting.popleft().reply.try_fail(FetchPoolBusy())
        if self._waiting:
            self.set_timer("expire", max(0.001, self._waiting[0].until - now), _Expire())

    # -- consumers --------------------------------------------------------------------------------

    def _check_idle(self) -> None:
        """A consumer that nobody comes back to stops fetching ahead soon, and ends later."""
        now = self.system.loop.time()
        while self._idle and self._idle[0][0] < now - _IDLE:
            self._clients -= 1
            self._end(self._idle.pop(0)[1])
        for since, client in self._idle:
            if since < now - _WARM:
                client.release()

    def _end(self, client: FetchClient) -> None:
        try:
            self._threads.submit(client.close)
        except RuntimeError:  # the pool is shut down: the client goes with its last reference
            logger.debug("%s: a consumer is left to the garbage collector", self.path)
