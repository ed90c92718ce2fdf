"""Run the audit's work on Spark: survey the journal, pack facts, classify blocks, merge tallies."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from typing import TypeVar

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pixy.config.model import Proxy
from pixy.pipeline.audit.classify import Context, classify_block
from pixy.pipeline.audit.facts import FACTS, PACKED_DDL, pack, unpack
from pixy.pipeline.audit.journal_scan import SURVEY_DDL, StreamKey, survey, to_facts
from pixy.pipeline.audit.tallies import FIRST_MAXIMUM, FIRST_RANGE, TALLIES, TALLIES_DDL, Ints
from pixy.pipeline.errors import SourceError
from pixy.wire.types import TopicPartition

_RECORDS_PER_BATCH = 1000
"""Records per Arrow batch; a journal's record has some 10 kB, so Spark's 10,000 would be too many."""

_PACKED_TOGETHER = 500
"""Arrow batches that are packed together: half a million facts."""

_MAX_ERROR_LINES = 3

_NO_PYTHON = re.compile(r'Cannot run program "([^"]*python[^"]*)"')
_PYTHON_ADVICE = (
    "there is no {} where Spark runs Python. It must be at this path on the executors and on the driver, with the extra "
    "`pipeline`: name it with --conf spark.pyspark.python=PATH or $PYSPARK_PYTHON"
)

T = TypeVar("T")


def survey_journal(records: DataFrame) -> list[bytes]:
    """Run the first pass over a journal's records; raises SourceError if they cannot be read."""
    rows = run(lambda: records.mapInArrow(survey, SURVEY_DDL).collect(), "the journal cannot be read")
    return [bytes(row.survey) for row in rows]


def journal_facts(
    records: DataFrame,
    streams: dict[StreamKey, int],
    partitions: dict[TopicPartition, int],
    skip: frozenset[tuple[int, int]],
    slices: Mapping[TopicPartition, tuple[int, int]] | None = None,
) -> DataFrame:
    """Return the packed facts of a journal's events; for the arguments see :func:`journal_scan.to_facts`."""
    return records.mapInArrow(to_facts(streams, partitions, skip, slices), PACKED_DDL)


def packed(facts: DataFrame) -> DataFrame:
    """Pack facts that are given as rows."""
    return facts.mapInArrow(_pack, PACKED_DDL)


def _pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if len(waiting) >= _PACKED_TOGETHER:
            yield pack(_columns(pa.Table.from_batches(waiting)))
            waiting = []
    if waiting:
        yield pack(_columns(pa.Table.from_batches(waiting)))


def _columns(table: pa.Table) -> dict[str, Ints]:
    return {name: table.column(name).to_numpy().astype(np.int64) for name in FACTS.names}


def classify_facts(spark: SparkSession, facts: Iterable[DataFrame], context: Context) -> pa.Table:
    """Classify packed facts block by block; returns the merged tallies.

    Args:
        spark: the session to run on.
        facts: frames of packed facts.
        context: goes to every task.

    Raises:
        SourceError: a source cannot be read.
    """
    parts = list(facts)
    if not parts:
        return TALLIES.empty_table()
    shared = spark.sparkContext.broadcast(context)

    def classify(block: pa.Table) -> pa.Table:
        facts = unpack(
            block.column("tp_id")[0].as_py(),
            block.column("block")[0].as_py(),
            block.column("facts").to_pylist(),
        )
        columns = classify_block(facts, shared.value)
        return pa.table(
            [
                pa.array(columns[field.name].astype(field.type.to_pandas_dtype()), field.type)
                for field in TALLIES
            ],
            schema=TALLIES,
        )

    every = reduce(DataFrame.unionByName, parts)
    tallies = run(
        lambda: every.groupBy("tp_id", "block").applyInArrow(classify, TALLIES_DDL).toArrow(),
        "a source cannot be read",
    )
    shared.destroy()
    return merge(tallies)


def read_log(
    spark: SparkSession,
    proxy: Proxy,
    bounds: Mapping[TopicPartition, tuple[int, int]],
    schema: str,
    **options: str,
) -> DataFrame | None:
    """Read ranges of the broker's log with ``format("pixy")``, one task per partition.

    Expired offsets are left out.

    Args:
        spark: the session to run on.
        proxy: the cluster.
        bounds: by partition, the offsets ``[start, end)`` to read.
        schema: the columns, as DDL.
        options: more options of the data source.

    Returns:
        None if all ranges are empty.
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
    """Merge the tallies of blocks: add counts and sketches, take the largest maxima, keep all ranges."""
    kind = tallies.column("kind").to_numpy()
    is_maximum = (kind >= FIRST_MAXIMUM) & (kind < FIRST_RANGE)
    keys = ["kind", "tp_id", "group", "window", "bucket"]
    parts = []
    for rows, how in ((kind < FIRST_MAXIMUM, "sum"), (is_maximum, "max")):
        grouped = tallies.filter(pa.array(rows)).group_by(keys).aggregate([("n", how)])
        parts.append(grouped.rename_columns([*grouped.column_names[:-1], "n"]).select(TALLIES.names))
    parts.append(tallies.filter(pa.array(kind >= FIRST_RANGE)))
    return pa.concat_tables(part.cast(TALLIES) for part in parts).combine_chunks()


def run(query: Callable[[], T], failure: str) -> T:
    """Run a query and return its result.

    Args:
        query: calls Spark.
        failure: begins the error's text.

    Raises:
        SourceError: Spark cannot run the query; the text has the lines of its error that name files and
            causes.
    """
    try:
        return query()
    except (PySparkException, Py4JJavaError) as error:
        python = _NO_PYTHON.search(str(error))
        if python is not None:
            raise SourceError(f"{failure}: {_PYTHON_ADVICE.format(python[1])}") from error
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        causes = [line for line in lines if "file:" in line or "Error" in line or "Exception" in line]
        raise SourceError(f"{failure}: {' | '.join((causes or lines)[:_MAX_ERROR_LINES])}") from error


def set_up(spark: SparkSession) -> None:
    """Set what the audit needs in the session."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(_RECORDS_PER_BATCH))


__all__ = [
    "classify_facts",
    "journal_facts",
    "merge",
    "packed",
    "read_log",
    "run",
    "set_up",
    "survey_journal",
]
