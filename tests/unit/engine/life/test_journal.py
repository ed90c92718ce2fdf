"""A message's events are found in the journal, within bounds, and what is missing is said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

from pixy.engine.life.journal import MOST_EVENTS, JournalScan, read_journal
from pixy.errors import KafkaError
from pixy.journal import AUTO, WAITED, Event, Kind, Lost, Refusal, Stream, encode
from pixy.kafka.errors import error_of
from pixy.kafka.log_reader import Budget, LogReader
from pixy.wire.record import Record

PRODUCED, GROUP = Stream("t", 1), Stream("t", 1, "g", 3)


def event(kind: Kind, at: int, stream: Stream, offset: int, **fields: int) -> Event:
    row = {"attempt": 0, "timestamp": 5, "took": -1, "code": 0, "flags": 0, **fields}
    return (
        int(kind),
        at,
        stream,
        offset,
        row["attempt"],
        row["timestamp"],
        row["took"],
        row["code"],
        row["flags"],
    )


class Logs(LogReader):
    """A journal in memory; a partition that is an error cannot be read."""

    def __init__(self, partitions: dict[int, list[bytes] | KafkaError]) -> None:
        self._partitions = partitions

    def scan(self, topic: str, partition: int, start: int, stop: int, budget: Budget) -> Iterator[Record]:
        found = self._partitions[partition]
        if isinstance(found, KafkaError):
            raise found
        for offset in range(start, stop):
            if not budget.left:
                return
            budget.records -= 1
            yield Record(offset, offset * 1000, None, found[offset])


def scanned(partitions: dict[int, Any], records: int = 100, offset: int = 7) -> JournalScan:
    ranges = {
        number: (0, len(found) if isinstance(found, list) else 1) for number, found in partitions.items()
    }
    return read_journal(Logs(partitions), "j", ranges, ("t", 1, offset), Budget(records, 1 << 20, 60.0))


def batch(events: Iterable[Event], client: str = "d", **options: Any) -> bytes:
    return encode(client, 1, 0, list(events), **options)


def test_events_of_the_message_and_of_its_partition_are_told_apart_from_others() -> None:
    found = scanned(
        {
            0: [
                batch(
                    [
                        event(Kind.PRODUCED, 1_000_000, PRODUCED, 7, took=2500, flags=WAITED),
                        event(Kind.PRODUCED, 1_000_000, PRODUCED, 8),
                        event(Kind.PRODUCED, 1_000_000, Stream("t", 2), 7),
                        event(Kind.PRODUCED, 1_000_000, Stream("other", 1), 7),
                    ]
                )
            ],
            1: [
                batch(
                    [
                        event(Kind.ASSIGNED, 2_000_000, GROUP, 5),
                        event(Kind.OFFERED, 3_000_000, GROUP, 7, attempt=0),
                        event(Kind.RETURNED, 3_100_000, GROUP, 7),
                        event(Kind.OFFERED, 4_000_000, GROUP, 7, attempt=1),
                        event(Kind.ACK_REFUSED, 4_500_000, GROUP, 7, code=int(Refusal.DUPLICATE)),
                        event(Kind.ACKED, 5_000_000, GROUP, 7, attempt=1, flags=AUTO),
                        event(Kind.REVOKED, 6_000_000, GROUP, 9, code=1),
                    ],
                    "other-daemon",
                )
            ],
        }
    )
    assert [(each.time, each.event, each.daemon) for each in found.events][:2] == [
        (1.0, "produced", "d"),
        (2.0, "assigned", "other-daemon"),
    ]
    assert [each.event for each in found.events] == [
        "produced", "assigned", "offered", "returned", "offered", "ack_refused", "acked", "revoked",
    ]  # fmt: skip
    assert found.events[0].detail == {"took": 0.0025, "answered": True}
    assert [each.detail["attempt"] for each in found.events if each.event == "offered"] == [1, 2]
    assert found.events[5].detail == {"reason": "duplicate"}
    assert found.events[6].detail == {"auto": True, "attempt": 2}
    assert found.events[7].detail == {"position": 9, "drained": False}
    assert (found.read_until, found.lost, found.damaged, found.failed) == (None, 0, 0, "")


def test_what_was_not_read_is_said() -> None:
    one = batch([event(Kind.PRODUCED, 1, PRODUCED, 7)])
    full = scanned({0: [batch([]), batch([]), one], 1: [batch([])] * 3}, records=4)
    assert full.events == [] and full.read_until == 1.0, "each partition had two of four records"
    assert scanned({0: [batch([]), one]}).read_until is None


def test_losses_damages_and_errors_are_said() -> None:
    found = scanned(
        {
            0: [b"no journal", batch([], lost=Lost(4, 1, 2))],
            1: error_of(3),
            2: [batch([event(Kind.PRODUCED, 1, PRODUCED, 7)])],
        }
    )
    assert (found.lost, found.damaged, len(found.events)) == (4, 1, 1)
    assert "does not exist" in found.failed


def test_events_are_bounded() -> None:
    many = batch([event(Kind.OFFERED, 1, GROUP, 7)] * 300)
    found = scanned({0: [many, many]})
    assert (len(found.events), found.full) == (MOST_EVENTS, True)
    assert cast(Any, found.events[0]).group == "g"
