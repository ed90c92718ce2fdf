"""Manifests of lakes of format 1, which kept a log of their own: what ``migrate`` reads of them.

An entry ``_manifests/<seq>.json`` lists what a batch or a compaction added and replaced; ``digest`` and ``previous``
chain the entries. ``_lake.json`` has the lake's identity.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pixy.pipeline.errors import ManifestError, UnknownVersion
from pixy.pipeline.lake.data_table import DataFile, describe_file
from pixy.pipeline.lake.entry import FORMAT, Range, range_of
from pixy.pipeline.lake.layout import DATA, TOPIC, is_data_path

VERSION: Final = 1
BATCH: Final = "batch"
_DATE: Final = re.compile(r"[+-]?\d{4,}-\d\d-\d\d\Z")
_PLAIN_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d\Z")


@dataclass(frozen=True, slots=True)
class Manifest:
    """One entry of the old log."""

    seq: int
    previous: str
    digest: str
    kind: str
    published: int
    job: str
    batch: int
    isolation: str
    ranges: tuple[Range, ...]
    files: tuple[DataFile, ...]
    replaces: tuple[str, ...]


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


def digest_of(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of an entry without its ``digest``: keys sorted, no white space, ASCII."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


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


def _range(found: Mapping[str, Any]) -> Range:
    return range_of({**found, "skipped": ""})


def _file(found: Mapping[str, Any]) -> DataFile:
    topic, day = _matching(TOPIC, found["topic"]), _matching(_DATE, found["date"])
    parts = {
        int(each["partition"]): _range({"topic": topic, "topic_id": "", "start": 0, "end": 0, **each}).stats
        for each in found["partitions"]
    }
    return describe_file(
        _path(found["path"]), topic, day if _PLAIN_DATE.match(day) else "", int(found["size"]), parts
    )


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
    if digest != digest_of(document):
        raise ManifestError(f"{where} was altered: its digest does not match its content")
    try:
        return Manifest(
            seq=int(document["seq"]),
            previous=str(document["previous"]),
            digest=str(digest),
            kind=str(document["kind"]),
            published=int(document["published"]),
            job=str(document["job"]),
            batch=int(document["batch"]),
            isolation=str(document["isolation"]),
            ranges=tuple(_range(each) for each in document["ranges"]),
            files=tuple(_file(each) for each in document["files"]),
            replaces=tuple(_path(each) for each in document["replaces"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ManifestError(f"{where} lacks or misstates {error}") from error


__all__ = ["BATCH", "VERSION", "Manifest", "decode", "digest_of", "parse_object"]
