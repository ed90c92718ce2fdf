"""Read topics with Spark's Kafka source and with ours."""

from __future__ import annotations

from typing import Any

from tests.integration.pipeline.support import World

JVM_COLUMNS = ("topic", "partition", "offset", "key", "value", "timestamp", "timestampType", "headers")


def ours(world: World, topic: str, schema: str = "", **options: Any) -> Any:
    """Return a frame of ``format("pixy")``."""
    from pixy.pipeline.datasource import register

    register(world.spark)
    reader = world.spark.read.format("pixy")
    if schema:
        reader = reader.schema(schema)
    return reader.options(**given(world, topic, options)).load()


def jvm(world: World, topic: str, **options: Any) -> Any:
    """Return a frame of Spark's own source."""
    return (
        world.spark.read.format("kafka").options(includeHeaders="true", **given(world, topic, options)).load()
    )


def given(world: World, topic: str, options: dict[str, Any]) -> dict[str, str]:
    chosen = {"kafka.bootstrap.servers": world.kafka.bootstrap()[0]}
    if not {"assign", "subscribePattern"} & set(options):
        chosen["subscribe"] = topic
    return {**chosen, **{name: str(value) for name, value in options.items()}}


def rows(frame: Any, *columns: str) -> list[dict[str, Any]]:
    """Return all rows in the order of the log, with timestamps as milliseconds."""
    from pyspark.sql import functions as sf

    wanted = columns or JVM_COLUMNS
    table = frame.select(
        *(
            sf.unix_millis(name).alias(name)
            if name in ("timestamp", "maxTimestamp", "baseTimestamp")
            else name
            for name in wanted
        )
    ).toArrow()
    found = table.to_pylist()
    return sorted(
        found,
        key=lambda row: tuple(
            row[name] for name in ("topic", "partition", "offset", "baseOffset") if name in row
        ),
    )
