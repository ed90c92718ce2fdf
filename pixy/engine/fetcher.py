"""Reads of a partition by offset: a bounded pool of Kafka consumers, each busy with one read.

A read waits in its consumer's thread, never on the loop. A read goes to the consumer whose last read ended
where it begins, because that consumer has fetched ahead. Headers that confluent-kafka cannot decode are read in
the same threads, so that both have one bound.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from actors import Future, Request, handles
from pixy.config.model import Proxy
from pixy.engine.consume.long_polls import Message
from pixy.engine.restarting import Restartable
from pixy.engine.shares import part
from pixy.errors import FetchPoolBusy, KafkaError, PixyError
from pixy.kafka.errors import translate
from pixy.kafka.fetcher import FetchClient, Read
from pixy.kafka.record_headers import HeaderReader
from pixy.wire.types import RecordHeaders

logger = logging.getLogger("pixy.engine")

_IDLE = 30.0
"""Seconds after which an idle consumer is closed."""
_WARM = 2.0
"""Seconds after which an idle consumer stops fetching ahead."""

MakeClient = Callable[[], FetchClient]


@dataclass(frozen=True, slots=True)
class Fetch(Request[list[Message]]):
    """Read messages for a caller (:mod:`pixy.engine.shares`). The reply is empty if none came within the timeout."""

    read: Read
    caller: str = ""


@dataclass(frozen=True, slots=True)
class ReadHeaders(Request[dict[int, RecordHeaders]]):
    """Read the headers of records again; see :meth:`pixy.kafka.record_headers.HeaderReader.read`."""

    topic: str
    partition: int
    offsets: frozenset[int]
    caller: str = ""


@dataclass(frozen=True, slots=True)
class _CheckIdle:
    pass


class _Expire:
    pass


@dataclass(slots=True)
class _Waiting:
    wanted: Read | ReadHeaders
    reply: Future[Any]
    until: float
    caller: str


class Fetcher(Restartable):
    """Child of the cluster.

    Args:
        proxy: the cluster's configuration.
        make: creates a consumer; called in a thread.
        headers: reads headers again; called in a thread.
    """

    def __init__(self, proxy: Proxy, make: MakeClient, headers: HeaderReader) -> None:
        super().__init__()
        self._most = proxy.max_fetches
        self._max_waiting = proxy.max_waiting_fetches
        self._patience = proxy.fetch_pool_timeout
        self._make = make
        self._headers = headers
        self._threads = ThreadPoolExecutor(self._most, "kafka-fetch")
        self._idle: list[tuple[float, FetchClient]] = []
        self._clients = 0
        self._active = 0
        self._held: dict[str, int] = {}
        self._waiting: deque[_Waiting] = deque()
        self._stopping = False

    def on_start(self) -> None:
        """Begin to check for idle consumers."""
        self.set_timer("idle", _WARM, _CheckIdle(), every=_WARM)

    async def on_stop(self) -> None:  # type: ignore[override]
        """Fail the reads that wait, and close the consumers."""
        self._stopping = True
        while self._waiting:
            self._waiting.popleft().reply.try_fail(FetchPoolBusy())
        idle, self._idle = self._idle, []
        for _, client in idle:
            self._threads.submit(client.close)
        self._threads.shutdown(wait=False)

    async def on_failure(self, *_exc_info: Any) -> None:  # type: ignore[override]
        """Stop as above: the next life has its own threads and consumers."""
        await self.on_stop()

    # -- reads ------------------------------------------------------------------------------------

    @handles(Fetch)
    def _fetch(self, message: Fetch) -> None:
        self._begin_or_wait(message.read, message.caller)

    @handles(ReadHeaders)
    def _read_headers(self, message: ReadHeaders) -> None:
        self._begin_or_wait(message, message.caller)

    def _begin_or_wait(self, wanted: Read | ReadHeaders, caller: str) -> None:
        reply = self.take_reply()
        if self._has_room(caller):
            self._begin(wanted, reply, caller)
        elif len(self._waiting) >= self._max_waiting or self._waits_too_often(caller):
            reply.try_fail(FetchPoolBusy())
        else:
            until = self.system.loop.time() + self._patience
            self._waiting.append(_Waiting(wanted, reply, until, caller))
            if len(self._waiting) == 1:
                self.set_timer("expire", self._patience, _Expire())

    def _has_room(self, caller: str) -> bool:
        """Return whether a consumer is free, for this caller: the last quarter of them is for others."""
        return self._active < self._most and (not caller or self._held.get(caller, 0) < part(self._most))

    def _waits_too_often(self, caller: str) -> bool:
        own = sum(each.caller == caller for each in self._waiting) if caller else 0
        return own >= part(self._max_waiting)

    def _begin(self, wanted: Read | ReadHeaders, reply: Future[Any], caller: str) -> None:
        self._active += 1
        self._held[caller] = self._held.get(caller, 0) + 1
        if isinstance(wanted, ReadHeaders):
            self.start_task(self._serve_headers(wanted, reply, caller))
            return
        client = self._choose(wanted)
        if client is None:
            self._clients += 1
        self.start_task(self._serve(wanted, reply, client, caller))

    async def _serve_headers(self, wanted: ReadHeaders, reply: Future[Any], caller: str) -> None:
        read = partial(self._headers.read, wanted.topic, wanted.partition, wanted.offsets)
        try:
            reply.try_set(await self.system.loop.run_in_executor(self._threads, read))
        except PixyError as error:
            reply.try_fail(error)
        finally:
            self._end_for(caller)
            self._begin_waiting()

    def _end_for(self, caller: str) -> None:
        self._active -= 1
        held = self._held[caller] - 1
        if held:
            self._held[caller] = held
        else:
            del self._held[caller]

    def _choose(self, read: Read) -> FetchClient | None:
        """Choose an idle consumer, or None for a new one.

        In this order: the one whose last read ended where this one begins; one that fetches nothing ahead; a
        new one, while there may be more; the one that has been idle for longest.
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

    async def _serve(self, read: Read, reply: Future[Any], client: FetchClient | None, caller: str) -> None:
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
            # Kafka's own error says nothing against the consumer. One without an answer may be its fault: librdkafka
            # does not find the leaders of a topic that was made again (librdkafka issue 4898).
            broken = isinstance(error, KafkaError) and error.code < 0
            reply.try_fail(error)
        except Exception as error:
            broken = True
            reply.try_fail(translate(error))
        finally:
            self._end_for(caller)
            self._finish(made, broken)

    def _finish(self, made: list[FetchClient], broken: bool) -> None:
        if not made or broken or self._stopping:
            self._clients -= 1
            if made:
                self._end(made[0])
        else:
            self._idle.append((self.system.loop.time(), made[0]))
        self._begin_waiting()

    def _begin_waiting(self) -> None:
        for waiting in tuple(self._waiting):
            if self._active >= self._most:
                return
            if waiting.reply.cancelled():
                self._waiting.remove(waiting)
            elif self._has_room(waiting.caller):
                self._waiting.remove(waiting)
                self._begin(waiting.wanted, waiting.reply, waiting.caller)

    @handles(_Expire)
    def _expire(self, _message: _Expire) -> None:
        now = self.system.loop.time()
        while self._waiting and self._waiting[0].until <= now:
            self._waiting.popleft().reply.try_fail(FetchPoolBusy())
        if self._waiting:
            self.set_timer("expire", max(0.001, self._waiting[0].until - now), _Expire())

    # -- consumers --------------------------------------------------------------------------------

    @handles(_CheckIdle)
    def _check_idle(self, _message: _CheckIdle) -> None:
        """Stop fetching ahead for consumers that are idle, and close them later."""
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
        except RuntimeError:  # the pool is shut down: the last reference to the client closes it
            logger.debug("%s: the garbage collector closes a consumer", self.path)
