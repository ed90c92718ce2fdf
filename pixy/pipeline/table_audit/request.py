"""The request of an audit of a foreign table: where it is, what its columns mean, and what it is compared with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pixy.config.model import Proxy
from pixy.pipeline.errors import UsageError

FORMATS: Final = ("parquet", "delta", "iceberg")
REQUIRED: Final = ("partition", "offset")
OPTIONAL: Final = ("topic", "timestamp", "written")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class TableRequest:
    """One audit of a table.

    Attributes:
        table: path or URI of the table, or its name in a catalog of Spark's.
        format: one of :data:`FORMATS`.
        columns: the table's column of each role: ``partition`` and ``offset``, perhaps ``topic``, ``timestamp``
            (the record's) and ``written`` (when the row was written). A dot enters a struct.
        topics: the topics to audit; exactly one if the table has no column for the topic, otherwise empty for all.
        proxy: the cluster.
        lake: folder or URI of a lake that has the topics; empty for none.
        late_after: a row is late if it comes later than this after its record, milliseconds.
        since_table: whether a partition is expected only from the table's first offset on.
    """

    table: str
    format: str
    columns: Mapping[str, str]
    proxy: Proxy
    topics: tuple[str, ...] = ()
    lake: str = ""
    late_after: int = 600_000
    since_table: bool = False
    options: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Raise UsageError for what contradicts itself."""
        if "topic" not in self.columns and len(self.topics) != 1:
            raise UsageError(
                "--columns names no column of the topic, so --topics must name the one topic of the table"
            )
        if "written" in self.columns and "timestamp" not in self.columns:
            raise UsageError("--columns: written needs timestamp too: a row is late by the difference")
        for topic in self.topics:
            if not _NAME.fullmatch(topic):
                raise UsageError(f"--topics: {topic!r} is not a name of a topic")


def parse_columns(text: str) -> dict[str, str]:
    """Parse ``partition=kafka_partition,offset=kafka_offset``; a role without ``=`` is its own column.

    Raises:
        UsageError: a role is unknown, missing or given twice.
    """
    roles = (*REQUIRED, *OPTIONAL)
    found: dict[str, str] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        role, equals, column = part.partition("=")
        role, column = role.strip(), column.strip() if equals else role.strip()
        if role not in roles or not column or role in found:
            why = (
                "is given twice"
                if role in found
                else f"is not ROLE=COLUMN with one of the roles {', '.join(roles)}"
            )
            raise UsageError(f"--columns: {part!r} {why}")
        found[role] = column
    missing = [role for role in REQUIRED if role not in found]
    if missing:
        raise UsageError(
            f"--columns: {' and '.join(missing)} must be named, as in partition=kafka_partition,offset=kafka_offset"
        )
    return found


__all__ = ["FORMATS", "TableRequest", "parse_columns"]
