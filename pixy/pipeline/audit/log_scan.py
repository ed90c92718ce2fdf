"""Scan a broker's log around missing offsets: batch headers, and records only where they are needed.

Only the neighbourhood of missing offsets is fetched, so a gap in a terabyte costs one request. A batch whose
record count matches its offsets is not decompressed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pixy.pipeline.audit.gaps import BatchSpan
from pixy.pipeline.audit.intervals import Intervals
from pixy.pipeline.datasource.access import Access
from pixy.pipeline.errors import SourceError
from pixy.wire import control
from pixy.wire.batch import Batch
from pixy.wire.client import PartitionFetcher
from pixy.wire.errors import describe
from pixy.wire.exceptions import WireError
from pixy.wire.partition import FetchResult

_MAX_BYTES = 4 << 20
_MAX_WAIT_MS = 100


def scan_log(
    access: Access, topic: str, partition: int, missing: Intervals, start: int
) -> tuple[BatchSpan, ...]:
    """Return the batches around missing offsets, and the one that the log starts with.

    Args:
        access: the way to the cluster.
        topic: the topic's name.
        partition: the partition's number.
        missing: offsets to look for; those below ``start`` are gone and cannot be seen.
        start: log start offset.

    Raises:
        SourceError: the broker cannot be asked, or its answer cannot be read.
    """
    wanted = missing - Intervals.span(0, start)
    if missing and missing.start < start:
        wanted |= Intervals.span(start, start + 1)
    if not wanted:
        return ()
    spans: dict[int, BatchSpan] = {}
    access = replace(access, client_id=f"{access.client_id.removesuffix('-spark')}-audit")
    try:
        with PartitionFetcher(
            list(access.bootstrap),
            topic,
            partition,
            max_bytes=_MAX_BYTES,
            max_wait_ms=_MAX_WAIT_MS,
            read_committed=True,
            **access.options(),
        ) as fetcher:
            for result in _fetch(fetcher, wanted):
                for span in _spans(result, wanted):
                    spans[span.base] = span
    except (WireError, OSError) as error:
        raise SourceError(f"{topic}/{partition}: the log cannot be scanned: {error}") from error
    return tuple(spans[base] for base in sorted(spans))


def _fetch(fetcher: PartitionFetcher, wanted: Intervals) -> Iterator[FetchResult]:
    offset = wanted.start
    while True:
        result = fetcher.fetch(offset)
        if result.error_code:
            raise SourceError(
                f"{fetcher.topic}/{fetcher.partition} at {offset}: {describe(result.error_code)}"
            )
        yield result
        if result.next_offset <= offset:
            return  # the last stable offset is reached
        rest = wanted - Intervals.span(0, result.next_offset)
        if not rest:
            return
        offset = rest.start


def _spans(result: FetchResult, wanted: Intervals) -> Iterator[BatchSpan]:
    begun = sorted(result.aborted, key=lambda each: each[1], reverse=True)
    aborting: set[int] = set()
    for batch in result.batches():
        while begun and begun[-1][1] <= batch.last_offset:
            aborting.add(begun.pop()[0])
        aborted = batch.is_transactional and not batch.is_control and batch.producer_id in aborting
        yield _span(batch, wanted, aborted)
        if (
            batch.is_control
            and batch.is_transactional
            and batch.records_count
            and control.parse(batch.records()[0]).type == control.ControlType.ABORT
        ):
            aborting.discard(batch.producer_id)


def _span(batch: Batch, wanted: Intervals, aborted: bool) -> BatchSpan:
    whole = Intervals.span(batch.base_offset, batch.next_offset)
    if batch.is_control:
        return BatchSpan(batch.base_offset, batch.next_offset, Intervals(), control=True)
    wanted_here = whole & wanted
    if aborted or (batch.records_count == whole.count and not wanted_here):
        return BatchSpan(batch.base_offset, batch.next_offset, whole, aborted=aborted)
    records = batch.records()
    return BatchSpan(
        batch.base_offset,
        batch.next_offset,
        Intervals.offsets(each.offset for each in records),
        timestamps=tuple((each.offset, each.timestamp) for each in records if each.offset in wanted_here),
    )


__all__ = ["scan_log"]
