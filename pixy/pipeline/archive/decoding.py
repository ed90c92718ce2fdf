"""Decode the keys and values of a batch in Spark: typed columns beside the bytes, and counts of what became of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, functions as F
from pyspark.sql.types import StringType, StructField, StructType

from pixy.kafka.schema_registry import Registry
from pixy.pipeline.decode.planning import DecodePlan, plan_decoding
from pixy.pipeline.decode.values import DECODED, OUTCOMES, OUTCOMES_OF, batch_decoder
from pixy.pipeline.errors import Overlap, Published
from pixy.pipeline.lake.data_table import DataTable
from pixy.pipeline.spark import columns

Counts = dict[tuple[str, str], dict[str, int]]
"""Numbers of keys and values by outcome, each by part (``key``, ``value``) and topic."""

_RECORDS_AT_A_TIME: Final = 1_000
"""Records that a task decodes at a time; with records of 1 MB it holds some 3 GB."""


class Decoding:
    """Decodes the batches of one run of a job.

    Args:
        registry: the schema registry; only the driver asks it.
        table: the table of records, which gets the columns.
    """

    def __init__(self, registry: Registry, table: DataTable) -> None:
        self._registry = registry
        self._table = table
        self._plan = DecodePlan()
        self._present: dict[str, pa.DataType] = {}
        self._told: dict[str, list[str]] = {}
        """Remarks by topic that this run has published."""

    def begin(self, topics: Sequence[str]) -> None:
        """Plan a batch, whose offsets are known already.

        Raises:
            RegistryError: the registry does not answer.
        """
        self._present = self._table.typed_columns()
        self._plan = plan_decoding(topics, self._present, self._registry.schemas)

    def decoded(self, rows: DataFrame) -> DataFrame:
        """Add the typed columns and the outcome of each key and value."""
        if not self._plan.columns:
            return rows
        # Python gets this many records at a time, each with its bytes.
        rows.sparkSession.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(_RECORDS_AT_A_TIME))
        outcomes = [StructField(name, StringType()) for name in OUTCOMES_OF.values()]
        schema = StructType([*self.file_schema().fields, *outcomes])
        return rows.mapInArrow(batch_decoder(self._plan.columns), schema)  # type: ignore[arg-type]

    def file_schema(self) -> StructType:
        """Return the columns of the batch's files."""
        return columns.file_schema(self._plan.types())

    def aggregates(self) -> list[Column]:
        """Build the aggregates that :meth:`counts` converts."""
        return [
            F.count_if((F.col("topic") == each.topic) & (F.col(OUTCOMES_OF[each.part]) == outcome)).alias(
                _name(at, outcome)
            )
            for at, each in enumerate(self._plan.columns)
            for outcome in OUTCOMES
        ]

    def counts(self, observed: Mapping[str, Any]) -> Counts:
        """Return what became of the keys and values."""
        return {
            (each.part, each.topic): {outcome: observed[_name(at, outcome)] for outcome in OUTCOMES}
            for at, each in enumerate(self._plan.columns)
        }

    def events(self, counts: Counts) -> list[str]:
        """Return the batch's counts as text, and remarks that the run has not made yet."""
        events = []
        for topic, remarks in self._plan.remarks.items():
            events += [f"topic {topic}: {text}" for text in remarks if text not in self._told.get(topic, [])]
        for (part, topic), outcomes in counts.items():
            if any(outcomes.values()):
                raw = ", ".join(
                    f"{count} {outcome}"
                    for outcome, count in outcomes.items()
                    if count and outcome != DECODED
                )
                events.append(
                    f"topic {topic}: {outcomes[DECODED]} {part}s decoded, kept raw: {raw or 'none'}"
                )
        return events

    def published(self) -> None:
        """The batch's events are published: remarks are not repeated by later batches of the run."""
        self._told.update(self._plan.remarks)

    def add_columns(self) -> None:
        """Add the columns of the batch that the table lacks. A kill afterwards leaves columns without values.

        Raises:
            Overlap: another process has changed the columns since the batch was planned: its files may not fit.
        """
        self._table.refresh()
        if self._table.typed_columns() != self._present:
            raise Overlap(f"another job has changed the columns of {self._table.uri}")
        added = self._plan.added(self._present)
        if added:
            try:
                self._table.add_columns(added)
            except Published as error:
                raise Overlap(str(error)) from error
            self._table.refresh()


def _name(at: int, outcome: str) -> str:
    return f"decoded_{at}_{outcome.replace(' ', '_')}"
