"""Messages to and reports from a producer client: single messages, and records reported together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from pixy.wire.types import RecordHeaders


class Message(Protocol):
    """A message as librdkafka takes it; ``timestamp`` in milliseconds since 1970, None or 0 for now.

    ``partition`` is what its caller asks for. None: any will do, so another one may be taken if that chosen for it is gone.
    """

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> RecordHeaders | None: ...
    @property
    def timestamp(self) -> int | None: ...
    @property
    def partition(self) -> int | None: ...


class Outgoing(Message, Protocol):
    """A single message to send; its delivery report carries it."""

    @property
    def size(self) -> int: ...

    timestamp: int
    """Milliseconds since 1970 as Kafka has it; set before the report is delivered, if the client stamps."""


Report = tuple[Any, Any, int, int]
"""(the outgoing message, confluent-kafka's error or None, partition, offset). Of a :class:`Bulk` all but the
first are None, -1 and -1. The offset is :data:`NO_OFFSET` where none is known."""

NO_OFFSET: Final = -1
"""The offset of a message that no broker has confirmed, because ``required_acks`` is ``no_response``."""


Landed = Callable[[Any, Any], None]
"""A delivery callback of confluent-kafka: (error or None, message)."""

SendAgain = Callable[[Message, Any, Any, Landed, int], bool]
"""See ``ProducerClient.send_again``: (what was sent, confluent-kafka's error or None, its message, the callback for the
final result, the number of what was sent)."""


class Returned(NamedTuple):
    """A message that is sent again.

    Attributes:
        item: what was sent.
        message: what confluent-kafka's delivery callback got.
        landed: hears of the final result.
        order: the number of the message: those of a partition are written in the order of their numbers.
        returns: how often it has landed without an offset, made a producer fail, or had to go to another partition.
        deadline: when it is not sent once more (``time.monotonic``).
    """

    item: Message
    message: Any
    landed: Landed
    order: int
    returns: int
    deadline: float

    def again(self) -> Returned:
        """Return the message, which has returned once more."""
        return self._replace(returns=self.returns + 1)


class Unsent:
    """In place of confluent-kafka's message, for one that librdkafka has not taken.

    Args:
        topic: of the message.
        partition: that it shall go to; -1 for any.
    """

    def __init__(self, topic: str, partition: int) -> None:
        self._topic, self._partition = topic, partition

    def topic(self) -> str:
        """Return the topic."""
        return self._topic

    def partition(self) -> int:
        """Return the partition; -1 for any."""
        return self._partition

    def offset(self) -> None:
        """Return None: there is no offset."""

    def timestamp(self) -> tuple[int, int]:
        """Return that there is none, in confluent-kafka's form."""
        return 0, 0


class Bulk:
    """Records that are sent together and reported together, through ``ProducerClient.send_bulk``.

    A report for each record would cost the loop a microsecond a record. Instead the producer's thread
    (``kafka-producer``, in which librdkafka's callbacks run) writes the results down and the loop hears once of all of them.

    Two threads count the results: the producer's thread alone writes ``_landed``, the loop alone ``_refused``.
    Each checks the sum after its own step, so at least one of them sees that the bulk is complete; ``done``,
    which the loop alone writes, makes sure that it is reported once.

    Attributes:
        records: what is sent, in order.
        results: for each record (partition, offset or :data:`NO_OFFSET`), or confluent-kafka's error; None until it
            is known.
        size: bytes of keys, values and headers.
        plain: whether no record has headers or a timestamp.
        sent: how many records, from the front, librdkafka has been offered.
        stamps: the records' timestamps as Kafka has them, in milliseconds since 1970, -1 until known; None
            if nobody wants them.
        done: whether the bulk's report has been delivered.
        first: the number of the first record, see :class:`Returned`; the others have the numbers behind it.

    Args:
        stamp: collect ``stamps``.
    """

    __slots__ = (
        "_again",
        "_landed",
        "_refused",
        "_tell",
        "done",
        "first",
        "plain",
        "records",
        "results",
        "sent",
        "size",
        "stamps",
    )

    def __init__(
        self,
        records: Sequence[Message],
        size: int,
        plain: bool,
        *,
        stamp: bool = False,
    ) -> None:
        self.records = records
        self.results: list[Any] = [None] * len(records)
        self.size = size
        self.plain = plain
        self.sent = 0
        self.stamps = [-1] * len(records) if stamp else None
        self.done = False
        self.first = 0
        self._landed = self._refused = 0
        self._tell: Callable[[Bulk], None]
        self._again: SendAgain

    def begin(self, first: int, tell: Callable[[Bulk], None], again: SendAgain) -> None:
        """Note which client sends the bulk, before it sends the first record. Called on the loop.

        Args:
            first: see the attribute.
            tell: called in the producer's thread when its last report completes the bulk; see ``ProducerClient.bulk_landed``.
            again: called in the producer's thread with a record that failed or landed without an offset; see
                ``ProducerClient.send_again``.
        """
        self.first, self._tell, self._again = first, tell, again

    def landed(self, at: int, error: Any, message: Any, final: bool = False) -> None:
        """Note the delivery report of one record. Called in the producer's thread.

        Args:
            at: the record's index.
            error: confluent-kafka's error, or None.
            message: confluent-kafka's message.
            final: whether the record is not sent again, whatever the report says.
        """
        offset = message.offset() if error is None else None
        if offset is None and not final:
            settle = partial(self.landed, at, final=True)
            if self._again(self.records[at], error, message, settle, self.first + at):
                return
        if error is None:
            self.results[at] = (message.partition(), NO_OFFSET if offset is None else offset)
            if self.stamps is not None:
                self.stamps[at] = message.timestamp()[1]
        else:
            self.results[at] = error
        self._landed += 1
        if self._landed + self._refused == len(self.results):
            self._tell(self)

    def refuse(self, at: int, error: Any) -> None:
        """Note that librdkafka did not take the record at index ``at``. Called on the loop."""
        self.results[at] = error
        self._refused += 1

    def complete(self) -> bool:
        """Return whether every record has its result."""
        return self._landed + self._refused == len(self.results)


def by_partition(partitions: Sequence[int]) -> list[tuple[int, Sequence[int]]] | None:
    """Group the indexes of a batch's messages by partition, in order within each.

    Args:
        partitions: the partition of each message, -1 where librdkafka chooses; at least one.

    Returns:
        (partition, indexes) for each; None if sending group by group could change an order, because
        librdkafka may choose for some messages a partition that others name.
    """
    first = partitions[0]
    if partitions.count(first) == len(partitions):
        return [(first, range(len(partitions)))]
    if -1 in partitions:
        return None
    groups: dict[int, list[int]] = {}
    for at, partition in enumerate(partitions):
        groups.setdefault(partition, []).append(at)
    return list(groups.items())
