"""What the single-partition clients do, as generators (see :mod:`pixy.wire.connection`).

One connection to the partition's leader, one request at a time, no retries: a transport or parse
error closes the connection, the next call opens another. Kafka's error codes are results.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from pixy.wire import batch, cluster, control, record_set
from pixy.wire.batch import Batch
from pixy.wire.cluster import Link, find
from pixy.wire.connection import Broker, Settings, Steps
from pixy.wire.exceptions import DecodeError
from pixy.wire.record import Record

NEWEST: Final = -1
"""The timestamp that stands for the offset after the last record."""
OLDEST: Final = -2
"""The timestamp that stands for the offset of the first record."""


@dataclass(frozen=True, slots=True)
class ProduceResult:
    """What the broker answered; with acks=0, that nothing is known (``base_offset`` -1)."""

    broker: Broker
    topic: str
    partition: int
    throttle_time_ms: int = 0
    error_code: int = 0
    base_offset: int = -1
    log_append_time: int = -1
    log_start_offset: int = -1
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class OffsetResult:
    """The offset found for a timestamp; -1 if there is none."""

    broker: Broker
    topic: str
    partition: int
    error_code: int
    offset: int
    timestamp: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class FetchResult:
    """What was fetched. ``record_set`` is as it came; a batch cut off at its end is not part of :meth:`batches`.

    A fetch that begins inside a batch gets the whole batch: ``fetch_offset`` tells where it was meant to begin.
    ``aborted``: (producer id, first offset) of aborted transactions, for ``read_committed``.
    """

    broker: Broker
    topic: str
    partition: int
    fetch_offset: int
    throttle_time_ms: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    record_set: bytes = field(repr=False)
    read_committed: bool = False

    def batches(self) -> Iterator[Batch]:
        """The batches, each checked when it is come to; compressed ones as they are."""
        return batch.iter_batches(self.record_set)

    def records(self) -> Iterator[Record]:
        """The records from ``fetch_offset`` on, decompressed; none of control batches.

        With ``read_committed`` none of aborted transactions. Needs the extra of the codec in use.
        """
        if self.record_set[16:17] in (b"\0", b"\1"):  # before Kafka 0.11; no transactions then
            found = record_set.iter_records(self.record_set)
            yield from (each for each in found if each.offset >= self.fetch_offset)
            return
        begun = sorted(self.aborted, key=lambda each: each[1], reverse=True)
        aborting: set[int] = set()
        for each in self.batches():
            while begun and begun[-1][1] <= each.last_offset:
                aborting.add(begun.pop()[0])
            if each.is_control:
                # Compaction may have left the batch and taken the marker.
                if any(control.parse(record).type == control.ControlType.ABORT for record in each.records()):
                    aborting.discard(each.producer_id)
            elif not (self.read_committed and each.is_transactional and each.producer_id in aborting):
                yield from (record for record in each.records() if record.offset >= self.fetch_offset)

    @property
    def next_offset(self) -> int:
        """Where to go on: after the last whole batch, where this fetch began if there is none.

        Counts what :meth:`records` leaves out, and what compaction took away.
        """
        return max([self.fetch_offset, *(each.next_offset for each in batch.scan(self.record_set))])


class PartitionCore(Link):
    """The connection to a partition's leader, and the calls."""

    def __init__(self, settings: Settings, topic: str, partition: int) -> None:
        super().__init__(settings)
        self.topic = topic
        self.partition = partition

    def look_up(self) -> Steps[Broker]:
        return (yield from cluster.partition_leader(self.bootstrapper, self.topic, self.partition))

    def list_offsets(self, timestamp: int, read_committed: bool = False) -> Steps[OffsetResult]:
        """The first offset whose timestamp is at least ``timestamp`` ms, or NEWEST, or OLDEST."""
        connection = yield from self.connected()
        response = yield from connection.call(
            "ListOffsets",
            {
                "ReplicaId": -1,
                "IsolationLevel": int(read_committed),
                "Topics": [self._topic("Name", {"PartitionIndex": self.partition, "Timestamp": timestamp})],
            },
        )
        found = self._own(response["Topics"], "Name", "Partitions", "PartitionIndex")
        return OffsetResult(
            connection.broker,
            self.topic,
            self.partition,
            found["ErrorCode"],
            found["Offset"],
            found["Timestamp"],
            found.get("LeaderEpoch", -1),
        )

    def produce(self, records: bytes | Batch, acks: int, timeout_ms: int) -> Steps[ProduceResult]:
        """Append a batch. With ``acks`` 0 nothing is waited for, as the broker does not answer."""
        connection = yield from self.connected()
        data = records.marshal() if isinstance(records, Batch) else bytes(records)
        response = yield from connection.call(
            "Produce",
            {
                "Acks": acks,
                "TimeoutMs": timeout_ms,
                "TopicData": [
                    {
                        "Name": self.topic,
                        "PartitionData": [{"Index": self.partition, "Records": data}],
                    }
                ],
            },
            answered=acks != 0,
        )
        if acks == 0:
            return ProduceResult(connection.broker, self.topic, self.partition)
        found = self._own(response["Responses"], "Name", "PartitionResponses", "Index")
        return ProduceResult(
            connection.broker,
            self.topic,
            self.partition,
            response["ThrottleTimeMs"],
            found["ErrorCode"],
            found["BaseOffset"],
            found["LogAppendTimeMs"],
            found.get("LogStartOffset", -1),
            found.get("ErrorMessage"),
        )

    def fetch(
        self,
        offset: int,
        *,
        min_bytes: int,
        max_bytes: int,
        max_wait_ms: int,
        read_committed: bool,
    ) -> Steps[FetchResult]:
        """Fetch from ``offset``; the broker waits up to ``max_wait_ms`` for ``min_bytes``."""
        connection = yield from self.connected()
        response = yield from connection.call(
            "Fetch",
            {
                "MaxWaitMs": max_wait_ms,
                "MinBytes": min_bytes,
                "MaxBytes": max_bytes,
                "IsolationLevel": int(read_committed),
                "Topics": [
                    self._topic(
                        "Topic",
                        {
                            "Partition": self.partition,
                            "FetchOffset": offset,
                            "PartitionMaxBytes": max_bytes,
                        },
                    )
                ],
            },
        )
        nothing = {
            "ErrorCode": response.get("ErrorCode", 0),
            "HighWatermark": -1,
            "LastStableOffset": -1,
            "AbortedTransactions": None,
            "Records": None,
        }
        # An error of the whole request leaves the topics out.
        found = (
            nothing
            if nothing["ErrorCode"]
            else self._own(response["Responses"], "Topic", "Partitions", "PartitionIndex")
        )
        return FetchResult(
            connection.broker,
            self.topic,
            self.partition,
            offset,
            response["ThrottleTimeMs"],
            found["ErrorCode"],
            found["HighWatermark"],
            found["LastStableOffset"],
            found.get("LogStartOffset", -1),
            tuple((each["ProducerId"], each["FirstOffset"]) for each in found["AbortedTransactions"] or ()),
            found["Records"] or b"",
            read_committed,
        )

    def _topic(self, name: str, partition: dict[str, Any]) -> dict[str, Any]:
        return {name: self.topic, "Partitions": [partition]}

    def _own(self, topics: list[dict[str, Any]], name: str, partitions: str, index: str) -> dict[str, Any]:
        """The part of an answer about this partition; an answer about others is a broken connection."""
        try:
            return find(find(topics, name, self.topic)[partitions], index, self.partition)
        except DecodeError:
            self.close()
            raise
