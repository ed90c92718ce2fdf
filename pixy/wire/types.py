"""Names for plain types that all packages share."""

from __future__ import annotations

from collections.abc import Sequence

TopicPartition = tuple[str, int]
"""(topic, partition). A plain tuple: it is a dictionary key on every hot path, and hashes fastest."""

RecordHeader = tuple[str, bytes | None]
"""(key, value) of one header; a value may be null. Bytes of a key that are not UTF-8 appear as surrogates (PEP 383)
and are encoded unchanged."""

RecordHeaders = Sequence[RecordHeader]
"""The headers of one record in their order. Keys may repeat."""

__all__ = ["RecordHeader", "RecordHeaders", "TopicPartition"]
