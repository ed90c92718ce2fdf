"""Decide the typed columns of a batch before it is read: which schemas are decoded, into which columns.

The batch's offsets are known before the registry is asked. A producer registers a schema before it writes the first
record of it, so each record of the batch has one of the schemas that the registry lists then (for the naming of
subjects by topic, ``<topic>-value``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from pixy.kafka.schema_registry import AVRO, RegisteredSchema
from pixy.pipeline.decode.avro_columns import NoColumn, columns_of
from pixy.pipeline.decode.evolution import Incompatible, merge
from pixy.pipeline.lake.data_table import TYPED


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """How the values of one topic are decoded.

    Attributes:
        column: the name of the typed column.
        type: its type, a struct; None if no schema of the topic can be decoded.
        schemas: those whose values fit.
        refused: ids of schemas whose values are kept raw, and why.
    """

    column: str
    type: pa.StructType | None
    schemas: tuple[RegisteredSchema, ...]
    refused: Mapping[int, str]


@dataclass(slots=True)
class DecodePlan:
    """How the values of a batch are decoded.

    Attributes:
        topics: by name; topics without a schema in the registry are missing.
        remarks: by topic, what is not decoded and why.
    """

    topics: dict[str, TopicPlan] = field(default_factory=dict)
    remarks: dict[str, list[str]] = field(default_factory=dict)

    def added(self, present: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
        """Return the columns that the table lacks, or has with fewer fields."""
        return {
            each.column: each.type
            for each in self.topics.values()
            if each.type is not None and present.get(each.column) != each.type
        }


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
        column = TYPED + topic
        known = spelled.setdefault(column.lower(), column)
        if known != column:
            remarks.append(f"its column {column} would differ from {known} in case only: nothing is decoded")
        elif schemas := schemas_of(f"{topic}-value"):
            plan.topics[topic] = _plan_topic(column, present.get(column), schemas, remarks)
        else:
            remarks.append(f"the registry has no subject {topic}-value: nothing is decoded")
        if remarks:
            plan.remarks[topic] = remarks
    return plan


def _plan_topic(
    column: str,
    present: pa.DataType | None,
    schemas: Sequence[RegisteredSchema],
    remarks: list[str],
) -> TopicPlan:
    """Take the schemas one after the other; the first one to name a field gives its type."""
    merged, taken, refused = present, [], {}
    for each in schemas:
        name = f"schema {each.id} (version {each.version})"
        try:
            if each.kind != AVRO:
                raise NoColumn(f"it is of type {each.kind}, which is not decoded")
            if each.references:
                raise NoColumn("it refers to other subjects")
            found, left_out = columns_of(each.text)
            merged = found if merged is None else merge(merged, found)
        except (NoColumn, Incompatible) as error:
            refused[each.id] = str(error)
            remarks.append(f"{name} is kept raw: {error}")
            continue
        taken.append(each)
        remarks += [f"{name} has no column for {field}" for field in left_out]
    return TopicPlan(column, merged, tuple(taken), refused)


__all__ = ["DecodePlan", "TopicPlan", "plan_decoding"]
