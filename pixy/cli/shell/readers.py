"""Two ways to read a topic: as a member of a group, and partition by partition without one.

A reader's ``next`` waits some seconds for a message and returns None if none comes; ``finished`` says whether everything that was
there at the beginning has been read.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Final, Protocol

import grpc

from pixy.cli.shell import interrupts
from pixy.cli.shell.errors import CallError, DaemonGone
from pixy.cli.shell.message_format import Message
from pixy.cli.shell.output import note
from pixy.cli.shell.places import BEGIN, END
from pixy.cli.shell.session import Session
from pixy.cli.shell.unread import Unread
from pixy.proto import kafkapixy_pb2 as pb

_WAIT: Final = 3.0
"""Seconds that a reader without a group waits for a message, as long as a long poll."""
_LOOK: Final = 0.3
"""Seconds between two looks at the ends of partitions."""
_LOOKS: Final = 6
"""Looks at a group's offsets: a daemon commits what is acknowledged twice a second (``consumer.offsets_commit_interval``)."""
_LAST_ANSWER: Final = 1.0
"""Seconds that a message which is on its way may still take after Ctrl-C or SIGTERM."""
_FETCH: Final = 500
_FETCH_WAIT_MS: Final = 1000


class Reader(Protocol):
    """Reads messages of one topic."""

    def next(self) -> Message | None:
        """Wait for the next message. Raises CallError."""

    def finished(self) -> bool:
        """Return whether all messages that were there at the beginning have been read."""

    def behind(self) -> int:
        """Count the partitions that have not been read to the end that they had at the beginning, as far as this reader knows."""

    def out(self) -> int:
        """Count the messages, of those there at the beginning, that other clients have and nobody acknowledged. Raises CallError."""

    def done(self, message: Message) -> None:
        """Note that a message was printed."""

    def close(self) -> None:
        """Acknowledge what was printed; after a signal that came meanwhile, once more. Raises CallError."""


class GroupReader:
    """Reads as a member of a group, and acknowledges each message with the request for the next one.

    Args:
        session: the connection.
        topic: where to read.
        group: as whom.
        ack: ``explicit``, ``auto`` or ``none``.
        from_beginning: a group without committed offsets begins at the oldest message.
    """

    def __init__(self, session: Session, topic: str, group: str, ack: str, *, from_beginning: bool) -> None:
        self._session, self._topic, self._group, self._ack = session, topic, group, ack
        self._last: Message | None = None
        self._place: dict[str, Any] = {"cluster": session.cluster, "topic": topic, "group": group}
        found = session.call("GetOffsets", pb.GetOffsetsRq(**self._place)).offsets
        if from_beginning:
            self._begin(found)
        self._ends = {each.partition: each.end for each in found}
        self._unread = Unread((each.partition, max(each.offset, each.begin), each.end) for each in found)
        self._acknowledged(found)
        self._left = self._unread.stops()
        """Of each partition the end of what is neither read nor acknowledged, unless that has been seen.

        Where nothing is committed the group may begin at the oldest message or at the end: it counts from the oldest one on,
        until the daemon commits another beginning.
        """
        is_new = all(each.offset == END for each in found) and not from_beginning
        self.may_skip = is_new and bool(self._left)
        """Nothing is committed, and there are messages that the group does not get if it begins at the end."""

    def _begin(self, found: Any) -> None:
        new = [
            pb.PartitionOffset(partition=each.partition, offset=BEGIN) for each in found if each.offset == END
        ]
        if not new:
            return
        try:
            self._session.call("SetOffsets", pb.SetOffsetsRq(**self._place, offsets=new))
        except CallError as error:
            if error.status is not grpc.StatusCode.FAILED_PRECONDITION:
                raise
            if not self._has_members_here():
                raise CallError(
                    error.status,
                    f"group {self._group} has members that consume other topics: while it has, nobody can say where it begins in "
                    f"{self._topic}, which may be the end",
                    "repeat this when they have gone (a daemon leaves some 15 s after the last request), or name another group",
                ) from error
            note(f"group {self._group} has members already: it goes on where it is")

    def _has_members_here(self) -> bool:
        try:
            found = self._session.call("ListConsumers", pb.ListConsumersRq(**self._place)).groups
        except CallError as error:
            if error.status is not grpc.StatusCode.NOT_FOUND:
                raise
            return False
        return any(each.partitions for group in found.values() for each in group.consumers.values())

    def next(self) -> Message | None:
        """See :class:`Reader`."""
        request = pb.ConsNAckRq(**self._place, auto_ack=self._ack == "auto", no_ack=True)
        if self._ack == "auto":
            request.no_ack = False
        elif self._ack == "explicit" and self._last is not None:
            request.no_ack = False
            request.ack_partition, request.ack_offset = self._last.partition, self._last.offset
        try:
            found = self._consumed(request)
        except CallError as error:
            if error.status is not grpc.StatusCode.NOT_FOUND:
                raise
            self._last = None  # the daemon accepted the ack anyway
            return None
        self._last = None
        key = None if found.key_undefined else found.key_value
        value = None if found.tombstone else found.message
        headers = tuple((each.key, each.value) for each in found.headers)
        return Message(self._topic, found.partition, found.offset, key, value, headers, found.timestamp)

    def _consumed(self, request: Any) -> Any:
        """Wait for a message. One that the daemon has sent when a signal comes is returned; the next call raises the signal again.

        A call that is cancelled without an answer costs nothing: the daemon gives its message to the next one.
        """
        future = self._session.begin("ConsumeNAck", request)
        try:
            return self._session.answer(future, "ConsumeNAck", keep=True)
        except KeyboardInterrupt:
            interrupts.handled()
            try:
                found = self._session.answer(future, "ConsumeNAck", within=_LAST_ANSWER)
            except CallError:
                with interrupts.deferred():
                    future.cancel()
                raise KeyboardInterrupt from None
            interrupts.postponed()
            return found

    def done(self, message: Message) -> None:
        """See :class:`Reader`."""
        self._last = message
        self._unread.remove(message.partition, message.offset, message.offset + 1)
        if message.offset + 1 >= self._left.get(message.partition, 0):
            self._left.pop(message.partition, None)

    def finished(self) -> bool:
        """See :class:`Reader`. Other members may have read the rest, which a wait without a message shows."""
        return not self._left

    def behind(self) -> int:
        """See :class:`Reader`."""
        return len(self._left)

    def out(self) -> int:
        """See :class:`Reader`. Looks for a while: what was acknowledged last is committed later, and so is what a log has left out."""
        for look in range(_LOOKS):
            if not self._unread.count():
                break
            if look:
                time.sleep(_LOOK)
            self._acknowledged(self._session.call("GetOffsets", pb.GetOffsetsRq(**self._place)).offsets)
        stops = self._unread.stops()
        # An end that is acknowledged has been seen by somebody: what is missing before it is out.
        self._left = {
            number: stop for number, stop in self._left.items() if stops.get(number) == self._ends[number]
        }
        return self._unread.count(without=self._left)

    def _acknowledged(self, found: Any) -> None:
        for each in found:
            if each.offset >= 0:
                self._unread.remove(each.partition, 0, each.offset)
                self._unread.acknowledged(each.partition, each.offset, each.sparse_acks)

    def close(self) -> None:
        """See :class:`Reader`."""
        if self._last is not None and self._ack == "explicit":
            request = pb.AckRq(**self._place, partition=self._last.partition, offset=self._last.offset)
            self._session.call("Ack", request)
        self._last = None


class PartitionReader:
    """Reads partitions by offset, in turn, outside any group: nothing is committed.

    Args:
        session: the connection.
        topic: where to read.
        partitions: which; none for all.
        since: where to begin, as ``FindOffsets`` takes it.
    """

    def __init__(self, session: Session, topic: str, partitions: tuple[int, ...], since: int) -> None:
        self._session, self._topic, self._partitions = session, topic, partitions
        self._last_id = ""
        """The id of the topic in the daemon's last answer that had one."""
        self._at = self._offsets(since)
        self._id = self._last_id
        """Of the topic that is read: one that is made again has another, and its logs may be longer than what was read."""
        self._first_ends = self._offsets(END)
        self._ends = dict(self._first_ends)
        self._held: deque[Message] = deque()
        self._idle = False
        """True if the last look at all partitions found nothing. A log may end with a transaction's marker, which no read gets."""
        self._cut: dict[int, float] = {}
        """Since when a partition's log ends before the place that was read up to."""
        unknown = set(partitions) - set(self._at)
        if unknown:
            many = f"partitions 0 to {len(self._at) - 1}" if len(self._at) > 1 else "partition 0 only"
            raise CallError(
                grpc.StatusCode.NOT_FOUND,
                f"topic {topic!r} has no partition {min(unknown)}",
                f"it has {many}",
            )
        self._at = {number: at for number, at in self._at.items() if not partitions or number in partitions}

    def _offsets(self, at: int) -> dict[int, int]:
        request = pb.FindOffsetsRq(cluster=self._session.cluster, topic=self._topic, time=at)
        found = self._session.call("FindOffsets", request)
        self._last_id = found.topic_id or self._last_id
        return {each.partition: each.offset for each in found.offsets}

    def next(self) -> Message | None:
        """See :class:`Reader`."""
        until = time.monotonic() + _WAIT
        while not self._held:
            if self._idle or not any(at < self._ends.get(number, 0) for number, at in self._at.items()):
                self._look_at_ends()
            for number, at in sorted(self._at.items()):
                if at < self._ends.get(number, 0):
                    self._fetch(number, at)
            self._idle = not self._held
            if self._held:
                break
            if time.monotonic() >= until:
                return None
            time.sleep(_LOOK)
        return self._held.popleft()

    def _look_at_ends(self) -> None:
        """Find the ends again; begin anew in another topic of that name, where a log stays shorter than what was read of it, and in
        partitions that were added.

        A broker that has just become the leader may not know the whole of its log for a moment.
        """
        self._ends, now = self._offsets(END), time.monotonic()
        cut = [number for number, at in self._at.items() if at > self._ends.get(number, at)]
        self._cut = {number: self._cut.get(number, now) for number in cut}
        again = [number for number, since in self._cut.items() if now - since >= _WAIT]
        other = self._is_another()
        if other:
            again = list(self._at)
        added = [] if self._partitions else [number for number in self._ends if number not in self._at]
        if not again and not added:
            return
        begins = self._offsets(BEGIN)
        self._at.update((number, begins.get(number, 0)) for number in (*again, *added))
        if other:
            self._id = self._last_id  # that of the beginnings
        if again:
            what = "was made again" if other else "was made again, or has lost its end"
            note(f"topic {self._topic} {what}: it is read from its oldest message on")

    def _is_another(self) -> bool:
        """Return whether the topic is known to be another one than that which is read; before Kafka 2.8 it has no id."""
        return bool(self._id) and self._last_id != self._id

    def _fetch(self, partition: int, offset: int) -> None:
        request = pb.FetchRq(
            cluster=self._session.cluster,
            topic=self._topic,
            partition=partition,
            offset=offset,
            max_messages=_FETCH,
            wait_ms=_FETCH_WAIT_MS,
        )
        try:
            found = self._session.call("Fetch", request).records
        except CallError as error:
            if "is out of range" not in error.details:
                raise
            # Retention, or a topic that was made again: go on with what there is.
            begins = self._offsets(BEGIN)
            if not self._is_another():  # else all partitions begin anew, at the next look
                self._at[partition] = begins.get(partition, 0)
            return
        for each in found:
            key, value = None if each.key_undefined else each.key, None if each.tombstone else each.value
            headers = tuple((header.key, header.value) for header in each.headers)
            self._held.append(
                Message(self._topic, partition, each.offset, key, value, headers, each.timestamp)
            )
            self._at[partition] = each.offset + 1

    def finished(self) -> bool:
        """See :class:`Reader`. Markers of transactions at the end of a log are no messages: a wait without one ends that."""
        return not self._held and not self.behind()

    def behind(self) -> int:
        """See :class:`Reader`."""
        return sum(at < self._first_ends.get(number, 0) for number, at in self._at.items())

    def out(self) -> int:
        """See :class:`Reader`."""
        return 0

    def done(self, message: Message) -> None:
        """See :class:`Reader`."""

    def close(self) -> None:
        """See :class:`Reader`."""


__all__ = ["DaemonGone", "GroupReader", "PartitionReader", "Reader"]
