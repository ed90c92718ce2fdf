"""Decode columns of keys and values in a task of Spark. What cannot be decoded is null, and says why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from pixy.kafka.schema_decoders import Decoder, OtherMessage, UnknownSchema
from pixy.pipeline.decode.planning import ColumnPlan
from pixy.pipeline.decode.schema_columns import Rows
from pixy.pipeline.lake.data_table import TYPED

OUTCOMES_OF: Final = {part: f"_decoded_{part}" for part in TYPED}
"""Columns with the outcome of each key and value; null for null, for tombstones and for topics that are not decoded."""
DECODED: Final = "decoded"
INCOMPATIBLE: Final = "incompatible"
UNKNOWN: Final = "unknown schema"
MALFORMED: Final = "malformed"
OUTCOMES: Final = (DECODED, INCOMPATIBLE, UNKNOWN, MALFORMED)

_NO_PLACE: Final = (pa.ArrowException, ValueError, TypeError, OverflowError)
"""What Arrow raises for a value that its type cannot hold."""


class ColumnDecoder:
    """Decode the keys or the values of one topic.

    Args:
        plan: how.
    """

    def __init__(self, plan: ColumnPlan) -> None:
        self._type = plan.type if plan.type is not None else pa.null()
        self._refused = plan.refused
        self._decoder = Decoder(plan.schemas)
        self._rows = Rows(self._type)

    def decode(self, data: Iterable[bytes | None]) -> tuple[pa.Array, list[str | None]]:
        """Return the typed column, and the outcome of each."""
        rows, outcomes = [], []
        for each in data:
            row, outcome = (None, None) if each is None else self._decode_one(each)
            rows.append(row)
            outcomes.append(outcome)
        try:
            return pa.array(rows, self._type), outcomes
        except _NO_PLACE:
            return self._one_by_one(rows, outcomes), outcomes

    def _decode_one(self, data: bytes) -> tuple[Any, str]:
        try:
            return self._rows.row(*self._decoder.decode(data)), DECODED
        except UnknownSchema as error:
            return None, INCOMPATIBLE if error.args[0] in self._refused else UNKNOWN
        except OtherMessage:
            return None, INCOMPATIBLE
        except Exception:  # the bytes come from anybody, and the decoders raise what they meet
            return None, MALFORMED

    def _one_by_one(self, rows: list[Any], outcomes: list[str | None]) -> pa.Array:
        """Convert each row alone, to find those that have no place in their column, such as a decimal too long."""
        parts = []
        for number, row in enumerate(rows):
            try:
                parts.append(pa.array([row], self._type))
            except _NO_PLACE:
                parts.append(pa.array([None], self._type))
                outcomes[number] = MALFORMED
        return pa.concat_arrays(parts)


def batch_decoder(
    plans: Sequence[ColumnPlan],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that adds typed columns and outcomes to batches of records.

    The columns are those of the plans that have a type, in their order, and at the end :data:`OUTCOMES_OF`.
    """

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoders = [ColumnDecoder(plan) for plan in plans]
        for batch in batches:
            yield _with_columns(batch, plans, decoders)

    return decode


def _with_columns(
    batch: pa.RecordBatch, plans: Sequence[ColumnPlan], decoders: Sequence[ColumnDecoder]
) -> pa.RecordBatch:
    topics = batch.column("topic").to_pylist()
    data = {part: batch.column(part).to_pylist() for part in TYPED}
    outcomes: dict[str, list[str | None]] = {part: [None] * len(topics) for part in TYPED}
    added: list[pa.Array] = []
    present = set(topics)
    for plan, decoder in zip(plans, decoders, strict=True):
        if plan.topic not in present:
            if plan.type is not None:
                added.append(pa.nulls(len(topics), plan.type))
            continue
        own = [name == plan.topic for name in topics]
        column, found = decoder.decode(
            each if mine else None for each, mine in zip(data[plan.part], own, strict=True)
        )
        if plan.type is not None:
            added.append(column)
        outcomes[plan.part] = [
            new if mine else old for new, old, mine in zip(found, outcomes[plan.part], own, strict=True)
        ]
    typed = [plan.column for plan in plans if plan.type is not None]
    names = [*batch.schema.names, *typed, *OUTCOMES_OF.values()]
    told = [pa.array(outcomes[part], pa.string()) for part in TYPED]
    return pa.RecordBatch.from_arrays([*batch.columns, *added, *told], names=names)


__all__ = [
    "DECODED",
    "INCOMPATIBLE",
    "MALFORMED",
    "OUTCOMES",
    "OUTCOMES_OF",
    "UNKNOWN",
    "ColumnDecoder",
    "batch_decoder",
]
