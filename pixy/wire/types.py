"""Names for the plain types that every package passes around."""

from __future__ import annotations

from collections.abc import Sequence

TopicPartition = tuple[str, int]
"""(topic, partition). A plain tuple: it is a dictionary key on every hot path, and hashes fastest."""

RecordHeaders = Sequence[tuple[str, bytes | None]]
"""The headers of one record: (name, value) in their order. Names may repeat; a value may be null."""

__all__ = ["RecordHeaders", "TopicPartition"]
