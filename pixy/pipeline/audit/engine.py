"""Running the judge on Spark: facts in, tallies out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from typing import TypeVar

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pixy.config.model import Proxy
from pixy.pipeline.audit.classify import Context, judge
from pixy.pipeline.audit.facts import (
    FACTS,
    FIRST_MAXIMUM,
    FIRST_RANGE,
    PACKED_DDL,
    TALLIES,
    TALLIES_DDL,
    Ints,
    pack,
    unpack,
)
from pixy.pipeline.audit.journal_scan import SURVEY_DDL, StreamKey, survey, to_facts
from pixy.pipeline.errors import SourceError
from pixy.wire.types import TopicPartition

_RECORDS_PER_BATCH = 1000
"""Of Arrow, into Python: a journal's record is a batch of some 10 kB, and ten thousand are too many."""

_BATCHES = 500
"""Of Arrow, packed together: half a million facts."""

_LINES = 3

T = TypeVar("T")


def survey_journal(records: DataFrame) -> list[bytes]:
    """The first pass over a journal."""
    return [
        bytes(row.survey)
        for row in run(
            lambda: records.mapInArrow(survey, SURVEY_DDL).collect(), "the journal can not be read"
        )
    ]


def journal_facts(
    records: DataFrame,
    streams: dict[StreamKey, int],
    places: dict[tuple[str, int], int],
    skip: frozenset[tuple[int, int]],
) -> DataFrame:
    """Packed facts of a journal's events."""
    return records.mapInArrow(to_facts(streams, places, skip), PACKED_DDL)


def packed(facts: DataFrame) -> DataFrame:
    """Facts that came row by row, packed."""
    return facts.mapInArrow(_pack, PACKED_DDL)


def _pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if len(waiting) >= _BATCHES:
            yield pack(_columns(pa.Table.from_batches(waiting)))
            waiting = []
    if waiting:
        yield pack(_columns(pa.Table.from_batches(waiting)))


def _columns(table: pa.Table) -> dict[str, Ints]:
    return {name: table.column(name).to_numpy().astype(np.int64) for name in FACTS.names}


def run_judge(spark: SparkSession, facts: Iterable[DataFrame], context: Context) -> pa.Table:
    """All tallies of packed facts, each key once; raises SourceError if a source can not be read."""
    parts = list(facts)
    if not parts:
        return TALLIES.empty_table()
    shared = spark.sparkContext.broadcast(context)

    def judged(block: pa.Table) -> pa.Table:
        facts = unpack(
            block.column("tp")[0].as_py(), block.column("block")[0].as_py(), block.column("facts").to_pylist()
        )
        found = judge(facts, shared.value)
        return pa.table(
            [
                pa.array(found[field.name].astype(field.type.to_pandas_dtype()), field.type)
                for field in TALLIES
            ],
            schema=TALLIES,
        )

    every = reduce(DataFrame.unionByName, parts)
    found = run(
        lambda: every.groupBy("tp", "block").applyInArrow(judged, TALLIES_DDL).toArrow(),
        "a source can not be read",
    )
    shared.destroy()
    return merge(found)


def read_log(
    spark: SparkSession,
    proxy: Proxy,
    bounds: Mapping[TopicPartition, tuple[int, int]],
    schema: str,
    **options: str,
) -> DataFrame | None:
    """Ranges of offsets of the broker's log, by ``format("pixy")``, one task a partition; what is gone is left out.

    Returns:
        None if the ranges are empty.
    """
    from pixy.pipeline.datasource import register
    from pixy.pipeline.datasource.access import from_proxy

    partitions: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for (topic, partition), (start, end) in bounds.items():
        if start < end:
            partitions.setdefault(topic, []).append(partition)
            starts.setdefault(topic, {})[str(partition)] = start
            ends.setdefault(topic, {})[str(partition)] = end
    if not partitions:
        return None
    register(spark)
    return (
        spark.read.format("pixy")
        .schema(schema)
        .options(**from_proxy(proxy).spark_options(), **options)
        .options(
            assign=json.dumps(partitions),
            startingOffsets=json.dumps(starts),
            endingOffsets=json.dumps(ends),
            failOnDataLoss="false",
        )
        .load()
    )


def merge(tallies: pa.Table) -> pa.Table:
    """Tallies of many blocks as one: counts and sketches add up, maxima do not, ranges stay."""
    what = tallies.column("what").to_numpy()
    maximum = (what >= FIRST_MAXIMUM) & (what < FIRST_RANGE)
    keys = ["what", "tp", "group", "window", "bucket"]
    parts = []
    for rows, how in ((what < FIRST_MAXIMUM, "sum"), (maximum, "max")):
        grouped = tallies.filter(pa.array(rows)).group_by(keys).aggregate([("n", how)])
        parts.append(grouped.rename_columns([*grouped.column_names[:-1], "n"]).select(TALLIES.names))
    parts.append(tallies.filter(pa.array(what >= FIRST_RANGE)))
    return pa.concat_tables(part.cast(TALLIES) for part in parts).combine_chunks()


def run(query: Callable[[], T], failed: str) -> T:
    """The query's result; raises SourceError, whose text begins with ``failed``, if Spark can not run it."""
    try:
        return query()
    except (PySparkException, Py4JJavaError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        telling = [line for line in lines if "file:" in line or "Error" in line or "Exception" in line]
        raise SourceError(f"{failed}: {' | '.join((telling or lines)[:_LINES])}") from error


def set_up(spark: SparkSession) -> None:
    """Settings of the session that the audit relies on."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(_RECORDS_PER_BATCH))


__all__ = ["journal_facts", "merge", "packed", "read_log", "run", "run_judge", "set_up", "survey_journal"]
