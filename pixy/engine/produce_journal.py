"""What a topic's producer tells the journal: what became of each message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixy.engine.journal import WAITED, Journal, Kind, Stream
from pixy.errors import KafkaError, PixyError

if TYPE_CHECKING:
    from pixy.engine.outgoing import Batch, Item, Written

# Plain numbers: a member of an enumeration costs 0.1 microseconds wherever it is compared.
_PRODUCED, _FAILED = int(Kind.PRODUCED), int(Kind.PRODUCE_FAILED)


class ProduceJournal:
    """One producer's notes; nothing without a journal."""

    def __init__(self, topic: str, journal: Journal | None) -> None:
        self._topic = topic
        self._journal = journal
        self._streams: dict[int, Stream] = {}

    def now(self) -> float:
        """The loop's time if there is a journal, else 0."""
        return 0.0 if self._journal is None else self._journal.clock()

    def one(
        self, item: Item, partition: int, offset: int, error: PixyError | None = None
    ) -> None:
        """What became of a single message."""
        if self._journal is not None:
            waited = 0 if item.reply is None else WAITED
            self._note(partition, offset, error, item.timestamp or -1, item.arrived, waited)

    def many(self, batch: Batch, written: list[Written]) -> None:
        """What became of a batch's records; Kafka's own timestamps are not known."""
        if self._journal is None:
            return
        for result in written:
            if isinstance(result, PixyError):
                self._note(-1, -1, result, -1, batch.arrived, WAITED)
            else:
                self._note(*result, None, -1, batch.arrived, WAITED)

    def _note(
        self, partition: int, offset: int, error: PixyError | None, timestamp: int,
        arrived: float, flags: int,
    ) -> None:
        assert self._journal is not None
        stream = self._streams.get(partition)
        if stream is None:
            stream = self._streams[partition] = Stream(self._topic, partition)
        now = self.now()
        self._journal.add(
            _PRODUCED if error is None else _FAILED, now, stream, offset, 0,
            timestamp, now - arrived, error.code if isinstance(error, KafkaError) else 0, flags,
        )
