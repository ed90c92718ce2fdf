"""The serving half of :mod:`actors.nats`: messages of NATS go to actors, and their replies back."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from typing import Any

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from pykka import ActorDeadError

from actors._core import stopping
from actors._core.log_safely import log_safely
from actors._core.stopping import StopReply
from actors._future import Future
from actors._ref import ActorRef
from actors._trace import TraceContext, trace_as
from actors.remote.codec import Codec
from actors.remote.errors import ConnectionLost, error_to_text
from actors.remote.nats_client import ERROR, TIMEOUT, TRACE, SteadyClient

logger = logging.getLogger("actors.nats")

MAX_TEXT = 10_000
"""Characters of an error that are sent."""


class Serving:
    """Has the actors of one program handle the names that they serve; on the loop's thread.

    Args:
        client: the connection.
        codec: reads messages and writes replies.
        limit: seconds for an ask that names none, and for a tell to find room.
        max_pending: messages that wait in the client, for each name.
    """

    def __init__(self, client: SteadyClient, codec: Codec, limit: float, max_pending: int) -> None:
        self._client, self._codec, self._limit, self._max_pending = client, codec, limit, max_pending
        self._served: dict[Subscription, StopReply] = {}
        """What is served, each with the reply that is settled when its actor has stopped."""
        self._answers: set[asyncio.Task[None]] = set()
        """Tasks that send an answer, or end the serving of a name."""

    async def begin(self, name: str, subject: str, ref: ActorRef[Any], group: str) -> None:
        """Serve a name until the actor has stopped; see :meth:`actors.nats.NatsTransport.serve`.

        Args:
            name: for errors.
            subject: NATS's name for it.
            ref: the actor.
            group: the queue group.

        Raises:
            ActorDeadError: the actor has stopped.
            ConnectionLost: there is no connection.
        """
        ended = StopReply()
        if not stopping.note(ref._cell, ended):
            raise ActorDeadError(f"{ref} not found")
        subscription: Subscription | None = None
        try:
            subscription = await self._client.subscribe(
                subject,
                queue=group,
                cb=functools.partial(self._handle, ref),
                pending_msgs_limit=self._max_pending,
            )
            await self._client.settled()
        except BaseException as error:  # also a cancellation
            if subscription is not None:  # a second attempt would handle each message twice
                with contextlib.suppress(Exception):
                    await subscription.unsubscribe()
            if not isinstance(error, Exception):
                raise
            raise ConnectionLost(f"{name} cannot be served: {error!r}") from error
        self._served[subscription] = ended
        ended.add_done_callback(functools.partial(self._actor_stopped, subscription))

    def _actor_stopped(self, subscription: Subscription, _: Future[bool]) -> None:
        """Leave a name to the others of its group."""
        if self._served.pop(subscription, None) is not None:
            self._keep(asyncio.get_running_loop().create_task(self._client.leave(subscription)))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def end(self) -> None:
        """Take no more messages, and wait until those at hand are answered."""
        served, self._served = self._served, {}
        for ended in served.values():
            ended.cancel()
        for subscription in served:
            await subscription.unsubscribe()
        if self._answers:
            await asyncio.wait(self._answers)

    # -- messages -----------------------------------------------------------------------------------

    async def _handle(self, ref: ActorRef[Any], message: Msg) -> None:
        headers = message.headers or {}
        trace = headers.get(TRACE)
        with trace_as(None if trace is None else TraceContext.parse(trace)):
            try:
                value = self._codec.decode(message.data)
                if not message.reply:
                    await ref.send(value, timeout=self._limit)
                    return
                answer = ref.ask(value, block=False, timeout=float(headers.get(TIMEOUT, self._limit)))
            except Exception as error:
                log_safely(logger.warning, "a message to %s is dropped: %s", message.subject, error)
                if message.reply:
                    await self._publish_error(message, error)
                return
        self._keep(asyncio.get_running_loop().create_task(self._answer(message, answer)))

    async def _answer(self, message: Msg, answer: Future[Any]) -> None:
        try:
            data = self._codec.encode(await answer)
            self._client.check_size(data, "the reply")
        except BaseException as error:
            # An exit of the actor's, or of its reply's code, must not end this program; what hits this task is no answer.
            exits = isinstance(error, SystemExit) if answer.value_set() else error is answer.exception()
            if not (exits or isinstance(error, Exception)):
                raise
            await self._publish_error(message, error)
            return
        with contextlib.suppress(Exception):  # the asker gets a timeout
            await self._client.publish(message.reply, data)

    async def _publish_error(self, message: Msg, error: BaseException) -> None:
        with contextlib.suppress(Exception):
            # A file name that is no UTF-8 has lone surrogates in its text.
            text = error_to_text(error)[:MAX_TEXT].encode(errors="backslashreplace")
            await self._client.publish(message.reply, text, headers={ERROR: "1"})
