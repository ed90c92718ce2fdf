"""A manifest: the entry of the log for one batch or one compaction. JSON, with its own digest.

docs/pipeline.md, "Lake format", describes the fields; a change to them needs a new ``VERSION``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pixy.pipeline.errors import ManifestError, UnknownVersion
from pixy.pipeline.lake.checksum import Stats
from pixy.pipeline.lake.layout import DATA, TOPIC, is_data_path

FORMAT = "kafka-pixy-lake"
VERSION = 1

BATCH = "batch"
COMPACTION = "compaction"

_DATE = re.compile(r"[+-]?\d{4,}-\d\d-\d\d\Z")


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets ``[start, end)`` of a partition that a batch covers.

    ``stats.count`` may be less than ``end - start``: transaction markers, aborted and compacted records
    leave gaps. A range without records is listed too, as proof that the job has read it.
    """

    topic: str
    topic_id: str
    """Kafka's UUID of the topic; empty where the broker gives none."""
    partition: int
    start: int
    end: int
    stats: Stats


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file: records of one topic and one (UTC) day, sorted by partition, offset."""

    path: str
    """Relative to the lake."""
    topic: str
    date: str
    rows: int
    size: int
    """Bytes on disk."""
    partitions: Mapping[int, Stats]


@dataclass(frozen=True, slots=True)
class Manifest:
    """One entry of the lake's log; ``digest`` and ``previous`` chain the entries."""

    seq: int
    previous: str
    """The digest of entry ``seq - 1``; empty for the first."""
    kind: str
    published: int
    """Milliseconds of the epoch; readers can see the records since then."""
    job: str
    batch: int
    """Spark's batch id within the checkpoint; -1 for a compaction."""
    checkpoint: str
    """The id of the checkpoint that planned the batch; empty for a compaction."""
    isolation: str
    ranges: tuple[Range, ...]
    files: tuple[DataFile, ...]
    replaces: tuple[str, ...] = ()
    """Paths of the files that a compaction has replaced."""
    digest: str = ""


# -- to JSON --------------------------------------------------------------------------------------


def _stats(stats: Stats) -> dict[str, Any]:
    return {
        "count": stats.count,
        "bytes": stats.bytes,
        "first": stats.first,
        "last": stats.last,
        "min_timestamp": stats.min_timestamp,
        "max_timestamp": stats.max_timestamp,
        "checksum": f"{stats.checksum:016x}",
        "content_checksum": f"{stats.content_checksum:016x}",
    }


def _document(manifest: Manifest) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "seq": manifest.seq,
        "previous": manifest.previous,
        "kind": manifest.kind,
        "published": manifest.published,
        "job": manifest.job,
        "batch": manifest.batch,
        "checkpoint": manifest.checkpoint,
        "isolation": manifest.isolation,
        "ranges": [
            {
                "topic": each.topic,
                "topic_id": each.topic_id,
                "partition": each.partition,
                "start": each.start,
                "end": each.end,
                **_stats(each.stats),
            }
            for each in manifest.ranges
        ],
        "files": [
            {
                "path": file.path,
                "topic": file.topic,
                "date": file.date,
                "rows": file.rows,
                "size": file.size,
                "partitions": [
                    {"partition": number, **_stats(stats)}
                    for number, stats in sorted(file.partitions.items())
                ],
            }
            for file in manifest.files
        ],
        "replaces": list(manifest.replaces),
    }


def _digest(document: dict[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def encode(manifest: Manifest) -> tuple[bytes, str]:
    """Encode a manifest; return the file's bytes and its digest.

    The digest is the SHA-256 of the JSON without ``digest``: keys sorted, no white space, ASCII.
    """
    document = _document(manifest)
    digest = _digest(document)
    return (json.dumps({**document, "digest": digest}, indent=1) + "\n").encode(), digest


# -- from JSON ------------------------------------------------------------------------------------


def parse_object(data: bytes, where: str, kind: str = FORMAT) -> dict[str, Any]:
    """Parse a JSON object and check its format and version.

    Args:
        data: the file's bytes.
        where: the file's name, for errors.
        kind: the expected ``format``.

    Raises:
        ManifestError: it is not JSON, or has another format.
        UnknownVersion: it has another version.
    """
    try:
        document = json.loads(data)
    except ValueError as error:
        raise ManifestError(f"{where} is not JSON ({error}): it was cut short or altered") from error
    if not isinstance(document, dict) or document.get("format") != kind:
        raise ManifestError(f"{where} is not a {kind} file")
    if document.get("version") != VERSION:
        raise UnknownVersion(
            f"{where} has format version {document.get('version')!r}; this program knows version {VERSION}"
        )
    return document


def _read_stats(found: dict[str, Any]) -> Stats:
    return Stats(
        int(found["count"]),
        int(found["bytes"]),
        int(found["first"]),
        int(found["last"]),
        int(found["min_timestamp"]),
        int(found["max_timestamp"]),
        int(found["checksum"], 16),
        int(found["content_checksum"], 16),
    )


def _path(path: Any) -> str:
    """Return the path of a data file; raise ValueError for one that is not below the lake's folder of data."""
    if not isinstance(path, str) or not is_data_path(path):
        raise ValueError(f"a path: {path!r} is not one of a file in {DATA}/")
    return path


def _matching(pattern: re.Pattern[str], text: Any) -> str:
    """Return a part of a folder's name, if it is one."""
    if not isinstance(text, str) or not pattern.match(text):
        raise ValueError(f"the name {text!r}")
    return text


def decode(data: bytes, where: str) -> Manifest:
    """Decode a manifest and check its digest.

    Args:
        data: the file's bytes.
        where: the file's name, for errors.

    Raises:
        ManifestError: it was altered, cut short, or is not a manifest.
        UnknownVersion: it has another version.
    """
    document = parse_object(data, where)
    digest = document.pop("digest", None)
    if digest != _digest(document):
        raise ManifestError(f"{where} was altered: its digest does not match its content")
    try:
        return Manifest(
            seq=int(document["seq"]),
            previous=str(document["previous"]),
            kind=str(document["kind"]),
            published=int(document["published"]),
            job=str(document["job"]),
            batch=int(document["batch"]),
            checkpoint=str(document["checkpoint"]),
            isolation=str(document["isolation"]),
            ranges=tuple(
                Range(
                    each["topic"],
                    each["topic_id"],
                    each["partition"],
                    each["start"],
                    each["end"],
                    _read_stats(each),
                )
                for each in document["ranges"]
            ),
            files=tuple(
                DataFile(
                    _path(each["path"]),
                    _matching(TOPIC, each["topic"]),
                    _matching(_DATE, each["date"]),
                    each["rows"],
                    each["size"],
                    {part["partition"]: _read_stats(part) for part in each["partitions"]},
                )
                for each in document["files"]
            ),
            replaces=tuple(_path(each) for each in document["replaces"]),
            digest=str(digest),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ManifestError(f"{where} lacks or misstates {error}") from error
