"""Finds one message in a lake: which batch has covered its offset, and which file has its record."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from pixy.pipeline.errors import LakeError
from pixy.pipeline.lake.data_table import DataFile
from pixy.pipeline.lake.lake import Lake
from pixy.pipeline.lake.state import Archived, State


@dataclass(frozen=True, slots=True)
class Found:
    """What a lake has of an offset, in one epoch of its topic.

    Attributes:
        topic_id: Kafka's id of the topic; empty where it is not known.
        published: when readers could see it, in milliseconds of the epoch.
        job: the archive job; ``batch`` the number of its batch.
        file: the Parquet file that has the record now, by the name that people use; empty: no record has the offset.
        timestamp: of the record, in milliseconds of the epoch; None without a record.
        skipped: why the offset was left out; empty if it was not.
    """

    topic_id: str
    published: int
    job: str
    batch: int
    file: str = ""
    timestamp: int | None = None
    skipped: str = ""


def find_message(lake: Lake, topic: str, partition: int, offset: int) -> list[Found]:
    """Find an offset in every epoch of its topic, the last epoch first.

    Args:
        lake: where.
        topic: of the message.
        partition: of the message.
        offset: of the message.

    Raises:
        LakeError: the history or a file cannot be read.
    """
    state = lake.state()
    found: list[Found] = []
    for (name, topic_id, number), ranges in state.all_ranges.items():
        if (name, number) != (topic, partition):
            continue
        covering = next((each for each in ranges if each.range.start <= offset < each.range.end), None)
        if covering is not None:
            found.append(_found(lake, state, covering, topic_id, offset))
    return sorted(found, key=lambda each: each.published, reverse=True)


def ends(lake: Lake, topic: str, partition: int) -> int | None:
    """Return the offset after the last one that the lake covers of a partition; None if it has none."""
    ledger = lake.ledger()
    return ledger.end((topic, ledger.topic_ids.get(topic, ""), partition))


def _found(lake: Lake, state: State, covering: Archived, topic_id: str, offset: int) -> Found:
    each = covering.range
    head = Found(topic_id, covering.published, covering.job, covering.batch, skipped=each.skipped)
    if each.skipped:
        return head
    for path, file in sorted(state.all_files.items(), key=lambda item: item[1].first):
        mine = file.topic == each.topic and state.id_of(file) == topic_id
        if mine and file.may_hold(each.partition) and file.first <= offset <= file.last:
            timestamp = _look(lake, file, each.partition, offset)
            if timestamp is not None:
                return Found(
                    topic_id, covering.published, covering.job, covering.batch, lake.path(path), timestamp
                )
    removed = state.all_removed.get((each.topic, topic_id, each.partition), ())
    why = (one.range.skipped for one in removed if one.range.start <= offset < one.range.end)
    return replace(head, skipped=next(why, ""))


def _look(lake: Lake, file: DataFile, partition: int, offset: int) -> int | None:
    """Return the timestamp of a record; None if the file does not have it. Row groups without it are not read."""
    wanted = [("partition", "=", partition), ("offset", "=", offset)]
    path, columns = lake.location.for_arrow(file.path), ["partition", "offset", "timestamp"]
    try:
        table = pq.read_table(path, columns=columns, filters=wanted, filesystem=lake.location.filesystem)
        if not len(table):
            return None
        return int(table.column("timestamp").cast(pa.timestamp("ms"), safe=False).cast(pa.int64())[0].as_py())
    except (OSError, pa.ArrowException) as error:
        raise LakeError(f"{lake.path(file.path)} cannot be read: {error}") from error


__all__ = ["Found", "ends", "find_message"]
