"""Decide the typed columns of a batch before it is read: which schemas are decoded, into which columns.

The batch's offsets are known before the registry is asked. A producer registers a schema before it writes the first
record of it, so each record of the batch has one of the schemas that the registry lists then (for the naming of
subjects by topic, ``<topic>-key`` and ``<topic>-value``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from pixy.kafka.schema_registry import RegisteredSchema
from pixy.pipeline.decode.evolution import Incompatible, merge
from pixy.pipeline.decode.schema_columns import columns_of
from pixy.pipeline.decode.structs import NoColumn
from pixy.pipeline.lake.data_table import KEY, TYPED, VALUE

_MAX_REMARKS: Final = 20
"""Remarks on the fields of one schema: they go to the lake's history."""


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """How the keys, or the values, of one topic are decoded.

    Attributes:
        topic: the topic.
        part: ``key`` or ``value``.
        type: the column's type, a struct; None if no schema of the subject can be decoded.
        schemas: those whose data fit.
        refused: ids of schemas whose data are kept raw, and why.
    """

    topic: str
    part: str
    type: pa.StructType | None
    schemas: tuple[RegisteredSchema, ...]
    refused: Mapping[int, str]

    @property
    def column(self) -> str:
        """The name of the typed column."""
        return f"{self.part}_{self.topic}"


@dataclass(slots=True)
class DecodePlan:
    """How the keys and values of a batch are decoded.

    Attributes:
        columns: those of topics with schemas in the registry.
        remarks: by topic, what is not decoded and why.
    """

    columns: list[ColumnPlan] = field(default_factory=list)
    remarks: dict[str, list[str]] = field(default_factory=dict)

    def types(self) -> dict[str, pa.StructType]:
        """Return the typed columns of the batch."""
        return {each.column: each.type for each in self.columns if each.type is not None}

    def added(self, present: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
        """Return the columns that the table lacks, or has with fewer fields."""
        return {name: type_ for name, type_ in self.types().items() if present.get(name) != type_}


def plan_decoding(
    topics: Iterable[str],
    present: Mapping[str, pa.DataType],
    schemas_of: Callable[[str], Sequence[RegisteredSchema]],
) -> DecodePlan:
    """Plan the decoding of a batch.

    Args:
        topics: topics of the batch.
        present: columns of the table.
        schemas_of: returns the schemas of a subject, oldest first.
    """
    plan = DecodePlan()
    spelled = {name.lower(): name for name in present}
    for topic in sorted(set(topics)):
        remarks: list[str] = []
        for part in TYPED:
            column, subject = f"{part}_{topic}", f"{topic}-{part}"
            known = spelled.setdefault(column.lower(), column)
            if known != column:
                remarks.append(
                    f"its column {column} would differ from {known} in case only: no {part} is decoded"
                )
            elif schemas := schemas_of(subject):
                plan.columns.append(_plan_column(topic, part, present.get(column), schemas, remarks))
            elif part == VALUE:
                remarks.append(f"the registry has no subject {subject}: no value is decoded")
        if remarks:
            plan.remarks[topic] = remarks
    return plan


def _plan_column(
    topic: str,
    part: str,
    present: pa.DataType | None,
    schemas: Sequence[RegisteredSchema],
    remarks: list[str],
) -> ColumnPlan:
    """Take the schemas one after the other; the first one to name a field gives its type."""
    merged, taken, refused = present, [], {}
    for each in schemas:
        name = f"{'key ' if part == KEY else ''}schema {each.id} (version {each.version})"
        try:
            found, left_out = columns_of(each)
            merged = found if merged is None else merge(merged, found)
        except (NoColumn, Incompatible) as error:
            refused[each.id] = str(error)
            remarks.append(f"{name} is kept raw: {error}")
            continue
        taken.append(each)
        remarks += [f"{name} has no column for {field}" for field in left_out[:_MAX_REMARKS]]
        if len(left_out) > _MAX_REMARKS:
            remarks.append(f"{name} has no column for {len(left_out) - _MAX_REMARKS} further fields")
    return ColumnPlan(topic, part, merged, tuple(taken), refused)


__all__ = ["ColumnPlan", "DecodePlan", "plan_decoding"]
