"""An instance's offsets: commits of what was handed out, committed ones, seeks."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from actors import Future
from pixy.engine.instances.context import Parts
from pixy.engine.instances.messages import CommitOffsets, CommitPositions, GetCommitted, SeekTo
from pixy.errors import IllegalState
from pixy.wire.types import TopicPartition

logger = logging.getLogger("pixy.engine")


@dataclass(frozen=True, slots=True)
class OffsetsFound:
    """To the instance: where the times of a seek are."""

    request: SeekTo
    reply: Future[Any]
    offsets: Mapping[TopicPartition, int]
    error: BaseException | None


class Offsets:
    """A part of :class:`pixy.engine.instances.actor.Instance`."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def commit_positions(self, _request: CommitPositions) -> Any:
        """See :class:`CommitPositions`."""
        parts = self._parts
        commits = parts.book.uncommitted()
        if not commits:
            return parts.book.progress()
        session = parts.open()

        def finish(_value: Any) -> Any:
            parts.book.committed(commits)
            return parts.book.progress()

        parts.operations.begin(
            lambda token: session.commit(token, commits),
            "commit",
            reply=parts.actor.take_reply(),
            finish=finish,
        )
        return None

    def commit_by_itself(self) -> None:
        """Automatic commit; what fails is tried again with the next one."""
        parts = self._parts
        commits = parts.book.uncommitted()
        session = parts.session()
        if not commits or session is None:
            return
        parts.operations.begin(
            lambda token: session.commit(token, commits),
            "commit",
            finish=lambda _value: parts.book.committed(commits),
            failed=lambda error: logger.warning("%s: commit failed, will retry: %s", parts.actor.path, error),
        )

    def commit_offsets(self, request: CommitOffsets) -> None:
        """See :class:`CommitOffsets`."""
        parts = self._parts
        session = parts.open()
        parts.operations.begin(
            lambda token: session.commit(token, request.commits),
            "commit",
            reply=parts.actor.take_reply(),
            finish=lambda _value: parts.book.committed(request.commits),
        )

    def get_committed(self, request: GetCommitted) -> None:
        """See :class:`GetCommitted`."""
        parts = self._parts
        session = parts.open()
        parts.operations.begin(
            lambda token: session.committed(token, request.partitions),
            "the committed offsets",
            reply=parts.actor.take_reply(),
            finish=lambda found: found,
        )

    def seek(self, request: SeekTo) -> None:
        """See :class:`SeekTo`. Raises IllegalState."""
        parts = self._parts
        if not parts.memory.subscription:
            raise _not_assigned(next(iter((*request.offsets, *request.times))))
        reply = parts.actor.take_reply()
        if parts.reads.joined:
            self._find(request, reply)
        else:
            parts.operations.when_joined(lambda: self._find(request, reply))

    def _find(self, request: SeekTo, reply: Future[Any]) -> None:
        if self._refused((*request.offsets, *request.times), reply):
            return
        if not request.times:
            self.found(OffsetsFound(request, reply, {}, None))
            return
        # A broker answers the requests of a connection one after another, and the session's waits
        # for records: so somebody else is asked where a time is.
        self._parts.actor.pipe_to_self(
            self._parts.catalogue.find(request.times),
            on_value=lambda offsets: OffsetsFound(request, reply, offsets, None),
            on_error=lambda error: OffsetsFound(request, reply, {}, error),
        )

    def found(self, message: OffsetsFound) -> None:
        """See :class:`OffsetsFound`."""
        parts, reply = self._parts, message.reply
        if message.error is not None:
            reply.try_fail(message.error)
            return
        offsets = {**message.request.offsets, **message.offsets}
        if self._refused(offsets, reply):
            return
        session = parts.open()

        def finish(_value: Any) -> None:
            parts.book.seek(offsets)
            parts.reads.shelf.drop(offsets)
            parts.serve()

        parts.operations.begin(lambda token: session.seek(token, offsets), "seek", reply=reply, finish=finish)

    def _refused(self, partitions: Iterable[TopicPartition], reply: Future[Any]) -> bool:
        missing = [partition for partition in partitions if partition not in self._parts.book]
        if missing:
            reply.try_fail(_not_assigned(missing[0]))
        return bool(missing)


def _not_assigned(partition: TopicPartition) -> IllegalState:
    return IllegalState(f"No current assignment for partition {partition[0]}-{partition[1]}")
