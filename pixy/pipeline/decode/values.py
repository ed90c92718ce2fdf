"""Decode a column of values in a task of Spark. A value that cannot be decoded is null, and says why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from pixy.kafka.schema_registry import Decoder, UnknownSchema
from pixy.pipeline.decode.avro_columns import SINGLE
from pixy.pipeline.decode.planning import TopicPlan

OUTCOME: Final = "_decoded"
"""Column with the outcome of each record; null for a tombstone and for topics that are not decoded."""
DECODED: Final = "decoded"
INCOMPATIBLE: Final = "incompatible"
UNKNOWN: Final = "unknown schema"
MALFORMED: Final = "malformed"
OUTCOMES: Final = (DECODED, INCOMPATIBLE, UNKNOWN, MALFORMED)


class ValueDecoder:
    """Decode values of one topic.

    Args:
        plan: how.
    """

    def __init__(self, plan: TopicPlan) -> None:
        self._type = plan.type if plan.type is not None else pa.null()
        self._refused = plan.refused
        self._decoder = Decoder(plan.schemas)

    def decode(self, values: Iterable[bytes | None]) -> tuple[pa.Array, list[str | None]]:
        """Return the typed column, and the outcome of each value."""
        rows, outcomes = [], []
        for value in values:
            row, outcome = (None, None) if value is None else self._decode_one(value)
            rows.append(row)
            outcomes.append(outcome)
        try:
            return pa.array(rows, self._type), outcomes
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            return self._one_by_one(rows, outcomes), outcomes

    def _decode_one(self, value: bytes) -> tuple[Any, str]:
        try:
            found = self._decoder.decode(value)
        except UnknownSchema as error:
            return None, INCOMPATIBLE if error.args[0] in self._refused else UNKNOWN
        except Exception:  # the bytes come from anybody, and the decoder raises what it meets
            return None, MALFORMED
        return (found if isinstance(found, dict) else {SINGLE: found}), DECODED

    def _one_by_one(self, rows: list[Any], outcomes: list[str | None]) -> pa.Array:
        """Convert each row alone, to find those that have no place in their column, such as a decimal too long."""
        parts = []
        for number, row in enumerate(rows):
            try:
                parts.append(pa.array([row], self._type))
            except (pa.ArrowException, ValueError, TypeError, OverflowError):
                parts.append(pa.array([None], self._type))
                outcomes[number] = MALFORMED
        return pa.concat_arrays(parts)


def batch_decoder(
    plans: Mapping[str, TopicPlan],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that adds typed columns and outcomes to batches of records.

    The columns are those of the plans that have one, in their order, and at the end :data:`OUTCOME`.
    """

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoders = {topic: ValueDecoder(plan) for topic, plan in plans.items()}
        for batch in batches:
            yield _with_columns(batch, plans, decoders)

    return decode


def _with_columns(
    batch: pa.RecordBatch, plans: Mapping[str, TopicPlan], decoders: Mapping[str, ValueDecoder]
) -> pa.RecordBatch:
    topics = batch.column("topic").to_pylist()
    values = batch.column("value").to_pylist()
    outcomes: list[str | None] = [None] * len(topics)
    added: list[pa.Array] = []
    present = set(topics)
    for topic, plan in plans.items():
        if topic not in present:
            if plan.type is not None:
                added.append(pa.nulls(len(topics), plan.type))
            continue
        own = [name == topic for name in topics]
        column, found = decoders[topic].decode(
            value if mine else None for value, mine in zip(values, own, strict=True)
        )
        if plan.type is not None:
            added.append(column)
        outcomes = [new if mine else old for new, old, mine in zip(found, outcomes, own, strict=True)]
    typed = [plan.column for plan in plans.values() if plan.type is not None]
    names = [*batch.schema.names, *typed, OUTCOME]
    return pa.RecordBatch.from_arrays([*batch.columns, *added, pa.array(outcomes, pa.string())], names=names)


__all__ = [
    "DECODED",
    "INCOMPATIBLE",
    "MALFORMED",
    "OUTCOME",
    "OUTCOMES",
    "UNKNOWN",
    "ValueDecoder",
    "batch_decoder",
]
