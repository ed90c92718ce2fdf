"""The calls that write a batch of messages, and what has become of each message."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import grpc

from pixy.cli.shell import interrupts
from pixy.cli.shell.errors import EXIT_USAGE, CallError, NotConnected, ShellError
from pixy.cli.shell.session import Session
from pixy.proto import kafkapixy_pb2 as pb

_LAST_ANSWER: Final = 5.0
"""Seconds that answers may still take after Ctrl-C or SIGTERM."""
_TOOK_NOTHING: Final = (
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
)
"""With these a daemon refuses a call before it writes anything. After any other failure Kafka may have the messages."""


class Calls:
    """Writes batches: one call for each, or with ``--async`` one for each message.

    Args:
        session: the connection; the caller defers signals.
        topic: where to write.
        asynchronous: do not wait for Kafka.
    """

    def __init__(self, session: Session, topic: str, *, asynchronous: bool) -> None:
        self._session, self._topic = session, topic
        self._method = "Produce" if asynchronous else "ProduceMany"

    def write(self, records: list[pb.Record], first: int) -> tuple[Sequence[Any], bool]:
        """Write a batch.

        Args:
            records: the messages.
            first: the number of the first, for errors.

        Returns:
            What has become of each message, a ``ProdResult`` or the CallError of its call; and whether a signal came meanwhile. After a
            signal the messages of calls that had not begun are missing: they were not sent.

        Raises:
            KeyboardInterrupt: a signal came before the first call began.
            ShellError: a message asks for what ``--async`` cannot do; nothing was sent.
        """
        requests = self._requests(records)
        calls = self._begin(requests)
        answers, interrupted = self._answers(calls)
        interrupted |= len(calls) < len(requests)
        for at, answer in enumerate(answers):
            if is_too_large(answer):
                answers[at] = answer.with_hint(
                    f"message {first + at} has {requests[at].ByteSize()} bytes with key and headers: "
                    "producer.max_message_bytes of the daemon bounds it"
                )
        if self._method == "Produce":
            return [_result(each) for each in answers], interrupted
        (answer,) = answers
        return [answer] * len(records) if isinstance(answer, CallError) else answer.results, interrupted

    def _requests(self, records: list[pb.Record]) -> list[Any]:
        to = {"cluster": self._session.cluster, "topic": self._topic}
        if self._method == "ProduceMany":
            return [pb.ProdManyRq(**to, records=records)]
        if any(each.HasField("partition") or each.timestamp or each.tombstone for each in records):
            raise ShellError("--async takes neither partitions nor timestamps nor tombstones", EXIT_USAGE)
        return [
            pb.ProdRq(
                **to,
                message=each.value,
                headers=each.headers,
                key_undefined=each.key_undefined,
                key_value=each.key,
                async_mode=True,
            )
            for each in records
        ]

    def _begin(self, requests: list[Any]) -> list[Any]:
        """Begin the calls: all, or those before a signal."""
        calls: list[Any] = []
        for request in requests:
            try:
                calls.append(self._session.begin(self._method, request))
            except KeyboardInterrupt:
                if not calls:
                    raise
                interrupts.postponed()
                break
        return calls

    def _answers(self, calls: list[Any]) -> tuple[list[Any], bool]:
        """Wait for the answer or the error of each call; return them, and whether a signal came.

        After a signal they have some seconds, so that the count is exact; after another one no more.
        """
        answers: list[Any] = []
        until: float | None = None
        while len(answers) < len(calls):
            left = None if until is None else max(0.0, until - time.monotonic())
            call = calls[len(answers)]
            try:
                answers.append(self._session.answer(call, self._method, within=left, keep=True))
            except CallError as error:
                answers.append(error)
            except KeyboardInterrupt:
                interrupts.handled()
                until = time.monotonic() + (_LAST_ANSWER if until is None else 0)
        return answers, until is not None


def _result(answer: Any) -> Any:
    if isinstance(answer, CallError):
        return answer
    return pb.ProdResult(partition=answer.partition, offset=answer.offset)


def is_too_large(outcome: Any) -> bool:
    """Return whether the daemon refused a call whose one message is larger than it receives."""
    return isinstance(outcome, CallError) and "larger than max" in outcome.details


def may_be_written(outcome: Any) -> bool:
    """Return whether Kafka may have an unconfirmed message: its call was sent and failed, and the daemon did not refuse it."""
    if isinstance(outcome, NotConnected):
        return False
    return isinstance(outcome, CallError) and outcome.status not in _TOOK_NOTHING


__all__ = ["Calls", "is_too_large", "may_be_written"]
