"""What a broker has where something is missing: batch headers, and records only where they are needed.

Only the neighbourhood of what is missing is fetched, so a gap in a terabyte costs one request. A batch
whose count fits its offsets is not decompressed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pixy.config.model import Proxy
from pixy.pipeline.audit.gaps import Span
from pixy.pipeline.audit.intervals import Intervals
from pixy.pipeline.datasource.access import from_proxy
from pixy.pipeline.errors import SourceError
from pixy.wire import control
from pixy.wire.batch import Batch
from pixy.wire.client import PartitionFetcher
from pixy.wire.errors import describe
from pixy.wire.exceptions import WireError
from pixy.wire.partition import FetchResult

_MAX_BYTES = 4 << 20
_MAX_WAIT_MS = 100


def scan(proxy: Proxy, topic: str, partition: int, missing: Intervals, start: int) -> tuple[Span, ...]:
    """The batches where offsets are missing, and the one that the log starts with.

    Args:
        missing: offsets to look at; those below ``start`` are gone, nothing can be seen of them.
        start: log start offset.

    Raises:
        SourceError: the broker can not be asked, or what it has can not be read.
    """
    wanted = missing - Intervals.span(0, start)
    if missing and missing.start < start:
        wanted |= Intervals.span(start, start + 1)
    if not wanted:
        return ()
    spans: dict[int, Span] = {}
    access = replace(from_proxy(proxy), client_id=f"{proxy.client_id}-audit")
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
            for result in _fetched(fetcher, wanted):
                for span in _spans(result, wanted):
                    spans[span.base] = span
    except (WireError, OSError) as error:
        raise SourceError(f"{topic}/{partition} can not be looked at: {error}") from error
    return tuple(spans[base] for base in sorted(spans))


def _fetched(fetcher: PartitionFetcher, wanted: Intervals) -> Iterator[FetchResult]:
    at = wanted.start
    while True:
        result = fetcher.fetch(at)
        if result.error_code:
            raise SourceError(f"{fetcher.topic}/{fetcher.partition} at {at}: {describe(result.error_code)}")
        yield result
        if result.next_offset <= at:
            return  # the end of what is committed
        rest = wanted - Intervals.span(0, result.next_offset)
        if not rest:
            return
        at = rest.start


def _spans(result: FetchResult, wanted: Intervals) -> Iterator[Span]:
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


def _span(batch: Batch, wanted: Intervals, aborted: bool) -> Span:
    whole = Intervals.span(batch.base_offset, batch.next_offset)
    if batch.is_control:
        return Span(batch.base_offset, batch.next_offset, Intervals(), control=True)
    looked_at = whole & wanted
    if aborted or (batch.records_count == whole.count and not looked_at):
        return Span(batch.base_offset, batch.next_offset, whole, aborted=aborted)
    records = batch.records()
    return Span(
        batch.base_offset,
        batch.next_offset,
        Intervals.offsets(each.offset for each in records),
        stamps=tuple((each.offset, each.timestamp) for each in records if each.offset in looked_at),
    )


__all__ = ["scan"]
