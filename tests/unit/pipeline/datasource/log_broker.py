"""A fake broker with a log of one partition, for faults that real brokers do not produce."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pixy.wire.batch import Batch, scan
from pixy.wire.frames import Request
from tests.unit.wire.fake_broker import PARTITION, TOPIC, FakeBroker


class LogBroker(FakeBroker):
    """Serves a log of batches.

    Args:
        batches: the log.
        start: log start offset.
        end: high watermark; None for the end of the batches.
        max_bytes: size of an answer, which has at least one batch.

    Attributes:
        errors: error codes that the next fetches return.
        hang_up: number of next fetches that close the connection.
        aborted: (producer id, first offset) of aborted transactions.
    """

    def __init__(
        self,
        batches: Iterable[Batch | bytes] = (),
        start: int = 0,
        end: int | None = None,
        max_bytes: int = 1 << 20,
    ) -> None:
        self.log = b"".join(each if isinstance(each, bytes) else each.marshal() for each in batches)
        self.start, self.max_bytes = start, max_bytes
        self.end = (
            end
            if end is not None
            else max([start, *(each.next_offset for each in scan(self.log, check_crc=False))])
        )
        self.errors: list[int] = []
        self.hang_up = 0
        self.aborted: list[tuple[int, int]] = []
        super().__init__({"Fetch": self._fetch})

    def source_options(self, **more: str) -> dict[str, str]:
        """Return options that read the log."""
        return {
            "kafka.bootstrap.servers": self.address,
            "assign": f'{{"{TOPIC}": [{PARTITION}]}}',
            "kafka.retry.backoff.ms": "1",
            "kafka.fetch.max.wait.ms": "1",
            **more,
        }

    def _fetch(self, request: Request) -> bytes | None:
        if self.hang_up:
            self.hang_up -= 1
            return None
        if self.errors:
            return self._answer(request, ErrorCode=self.errors.pop(0))
        [topic] = request.body["Topics"]
        [part] = topic["Partitions"]
        offset = part["FetchOffset"]
        if not self.start <= offset <= self.end:
            return self._answer(request, ErrorCode=1)
        found, size = b"", 0
        for each in scan(self.log, check_crc=False):
            if each.next_offset > offset:
                size += each.size
                if found and size > self.max_bytes:
                    break
                found += self.log[each.position : each.position + each.size]
        return self._answer(request, Records=found)

    def _answer(self, request: Request, **fields: Any) -> bytes:
        part = {
            "PartitionIndex": PARTITION,
            "HighWatermark": self.end,
            "LastStableOffset": self.end,
            "LogStartOffset": self.start,
            "AbortedTransactions": [{"ProducerId": pid, "FirstOffset": first} for pid, first in self.aborted],
            **fields,
        }
        return self.usual(request, Responses=[{"Topic": TOPIC, "Partitions": [part]}])

    def _ListOffsets(self, request: Request) -> dict[str, Any]:
        [asked] = request.body["Topics"][0]["Partitions"]
        offset = self.start if asked["Timestamp"] == -2 else self.end
        return {"Topics": [{"Name": TOPIC, "Partitions": [{"PartitionIndex": PARTITION, "Offset": offset}]}]}
