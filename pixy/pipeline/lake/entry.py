"""An entry of the lake's history: the metadata of one commit of the table of records, chained by digests.

An entry is the commit's ``userMetadata``, JSON. docs/pipeline.md, "Lake format", describes the fields; a change
to them needs a new ``VERSION``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pixy.pipeline.errors import ManifestError, UnknownVersion
from pixy.pipeline.lake.checksum import Stats

FORMAT: Final = "kafka-pixy-lake"
VERSION: Final = 2

BATCH: Final = "batch"
OPTIMIZATION: Final = "optimization"
EXPIRY: Final = "expiry"
ERASURE: Final = "erasure"
REMOVALS: Final = (EXPIRY, ERASURE)
"""Kinds of entries whose ranges tell of records that were archived and are gone on purpose."""

_HEX: Final = re.compile(r"[0-9a-f]{16}\Z")


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets ``[start, end)`` of a partition that a batch covers, or that an entry of ``REMOVALS`` has removed records of.

    ``stats.count`` may be less than ``end - start``: transaction markers, aborted and compacted records
    leave gaps. A range without records is listed too, as proof that the job has read it. The stats of a removal are those
    of the removed records.
    """

    topic: str
    topic_id: str
    """Kafka's UUID of the topic; empty where the broker gives none. A topic created again has another."""
    partition: int
    start: int
    end: int
    stats: Stats = Stats()
    skipped: str = ""
    """Why the records are not in the lake: never archived, ``expired: ...`` or ``erased: ...``; empty if they are."""

    @property
    def reason(self) -> str:
        """The first word of ``skipped``: ``expired``, ``erased``."""
        return self.skipped.partition(":")[0]


@dataclass(frozen=True, slots=True)
class Entry:
    """One commit of the lake; ``digest`` and ``previous`` chain the entries."""

    kind: str
    job: str = ""
    batch: int = -1
    """Number of the job's batch; -1 for other kinds."""
    isolation: str = ""
    published: int = 0
    """Milliseconds of the epoch; readers can see the records since then."""
    ranges: tuple[Range, ...] = ()
    events: tuple[str, ...] = ()
    """Changes of topics that the job met, as text."""
    seq: int = -1
    previous: str = ""
    """The digest of entry ``seq - 1``; empty for the first."""
    digest: str = ""


def range_document(each: Range) -> dict[str, Any]:
    """Convert a range to plain values: a row of the table of ranges, and the JSON of an entry."""
    stats = each.stats
    return {
        "topic": each.topic,
        "topic_id": each.topic_id,
        "partition": each.partition,
        "start": each.start,
        "end": each.end,
        "count": stats.count,
        "bytes": stats.bytes,
        "first": stats.first,
        "last": stats.last,
        "min_timestamp": stats.min_timestamp,
        "max_timestamp": stats.max_timestamp,
        "checksum": f"{stats.checksum:016x}",
        "content_checksum": f"{stats.content_checksum:016x}",
        "skipped": each.skipped,
    }


def range_of(found: Mapping[str, Any]) -> Range:
    """Convert plain values back; raises KeyError, TypeError or ValueError."""
    if not _HEX.match(found["checksum"]) or not _HEX.match(found["content_checksum"]):
        raise ValueError("a checksum")
    return Range(
        str(found["topic"]),
        str(found["topic_id"]),
        int(found["partition"]),
        int(found["start"]),
        int(found["end"]),
        Stats(
            int(found["count"]),
            int(found["bytes"]),
            int(found["first"]),
            int(found["last"]),
            int(found["min_timestamp"]),
            int(found["max_timestamp"]),
            int(found["checksum"], 16),
            int(found["content_checksum"], 16),
        ),
        str(found["skipped"]),
    )


def _document(entry: Entry) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "seq": entry.seq,
        "previous": entry.previous,
        "kind": entry.kind,
        "published": entry.published,
        "job": entry.job,
        "batch": entry.batch,
        "isolation": entry.isolation,
        "ranges": [range_document(each) for each in entry.ranges],
        "events": list(entry.events),
    }


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def digest_of(entry: Entry) -> str:
    """Return the SHA-256 of the entry's JSON without ``digest``: keys sorted, no white space, ASCII."""
    return f"sha256:{hashlib.sha256(_text(_document(entry)).encode()).hexdigest()}"


def encode(entry: Entry) -> str:
    """Encode an entry, with its digest, as a commit's ``userMetadata``."""
    return _text({**_document(entry), "digest": entry.digest})


def decode(text: str, where: str) -> Entry | None:
    """Decode a commit's ``userMetadata`` and check its digest.

    Args:
        text: the metadata.
        where: the commit's name, for errors.

    Returns:
        The entry; None if another program made the commit.

    Raises:
        ManifestError: it was altered.
        UnknownVersion: it has another version.
    """
    try:
        document = json.loads(text)
    except ValueError:
        return None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        return None
    if document.get("version") != VERSION:
        raise UnknownVersion(
            f"{where} has format version {document.get('version')!r}; this program knows version {VERSION}"
        )
    try:
        entry = Entry(
            kind=str(document["kind"]),
            job=str(document["job"]),
            batch=int(document["batch"]),
            isolation=str(document["isolation"]),
            published=int(document["published"]),
            ranges=tuple(range_of(each) for each in document["ranges"]),
            events=tuple(str(each) for each in document["events"]),
            seq=int(document["seq"]),
            previous=str(document["previous"]),
            digest=str(document["digest"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ManifestError(f"{where} lacks or misstates {error}") from error
    check_digest(entry, where)
    return entry


def check_digest(entry: Entry, where: str) -> None:
    """Raise ManifestError if the entry's digest is not that of its content."""
    if entry.digest != digest_of(entry):
        raise ManifestError(f"{where} was altered: its digest does not match its content")
