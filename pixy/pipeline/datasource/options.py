"""The options of ``format("pixy")``: those of Spark's Kafka source under the same names, and some of our own.

Unknown options and impossible values are errors that name the option: a mistyped option that was ignored
would read the wrong data. Pure, except for the files that options name.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pixy.pipeline.datasource import access, columns, positions
from pixy.pipeline.datasource.access import Access
from pixy.pipeline.datasource.positions import EARLIEST, LATEST, Kind, Position
from pixy.pipeline.errors import UsageError
from pixy.wire.compression import MAX_SIZE
from pixy.wire.types import TopicPartition

logger = logging.getLogger(__name__)

_KAFKA: Final = (
    "bootstrap.servers",
    "client.id",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "isolation.level",
    "max.partition.fetch.bytes",
    "request.timeout.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "sasl.jaas.config",
    "sasl.mechanism",
    "security.protocol",
    "socket.connection.setup.timeout.ms",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.type",
)
_OWN: Final = (
    "arrowBatchBytes",
    "arrowBatchRecords",
    "assign",
    "cluster",
    "config",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "includeControl",
    "includeHeaders",
    "insecure",
    "isolationLevel",
    "kafkaConsumer.pollTimeoutMs",
    "maxBatchBytes",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "mode",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "subscribe",
    "subscribePattern",
)
NAMES: Final = {name.lower(): name for name in (*_OWN, *(f"kafka.{name}" for name in _KAFKA))}
"""Names by their lower-case form, which Spark passes."""

_MAX_INT: Final = (1 << 31) - 1
_MAX_LONG: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Selection:
    """The partitions to read: exactly one of the three fields is set."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[TopicPartition, ...] = ()

    def __str__(self) -> str:
        if self.pattern:
            return f"subscribePattern {self.pattern}"
        return (
            f"subscribe {','.join(self.topics)}" if self.topics else f"assign {len(self.assigned)} partitions"
        )


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Limits of a task.

    Attributes:
        poll_timeout: a task fails when its partition returns nothing for this long, seconds.
        backoff: first wait between two attempts, seconds; doubled with each attempt.
        backoff_max: longest wait between two attempts, seconds.
        fetch_bytes: size of a fetch.
        fetch_min_bytes: the broker waits for this many bytes.
        fetch_wait_ms: how long the broker waits for them, milliseconds.
        arrow_records: an Arrow batch ends with the Kafka batch that reaches this number of records.
        arrow_bytes: an Arrow batch ends with the Kafka batch that reaches this size.
        batch_bytes: largest size of a decompressed Kafka batch.
    """

    poll_timeout: float = 120.0
    backoff: float = 0.1
    backoff_max: float = 1.0
    fetch_bytes: int = 4 << 20
    fetch_min_bytes: int = 1
    fetch_wait_ms: int = 500
    arrow_records: int = 10_000
    arrow_bytes: int = 16 << 20
    batch_bytes: int = MAX_SIZE


@dataclass(frozen=True, slots=True)
class Source:
    """The checked options; they travel to the executors.

    Attributes:
        headers: whether the default schema has the column ``headers``.
        control: whether to return control records.
        max_offsets: ``maxOffsetsPerTrigger``; None for no limit.
        min_partitions: ``minPartitions``; None for one task per partition.
        retries: attempts after the first one, for the driver's queries.
        retry_interval: seconds between them.
    """

    access: Access
    selection: Selection
    mode: str
    start: Position
    end: Position
    read_committed: bool
    headers: bool
    control: bool
    fail_on_data_loss: bool
    max_offsets: int | None
    min_partitions: int | None
    retries: int
    retry_interval: float
    limits: ReadLimits


def mode_of(given: Mapping[str, str]) -> str:
    """Return the option ``mode``; raises UsageError if it is unknown."""
    mode = given.get("mode", columns.RECORDS).lower()
    if mode not in columns.MODES:
        raise UsageError(f"option mode: {mode!r} is not one of {', '.join(columns.MODES)}")
    return mode


def parse(options: Mapping[str, str], *, streaming: bool | None = None) -> Source:
    """Check all options.

    Args:
        options: the options by name, in any case.
        streaming: whether the query is a stream; None if that is not known yet.

    Raises:
        UsageError: an option is unknown, wrong or missing; the text names it.
        ConfigError: the daemon's configuration is wrong.
        UnknownCluster: the daemon's configuration has no such cluster.
    """
    given = _known(options)
    stream = bool(streaming)
    ending = sorted(name for name in given if name.startswith("ending"))
    if stream and ending:
        raise UsageError(f"option {NAMES[ending[0]]}: a stream has no end; use it in batch queries only")
    if streaming is False and "maxoffsetspertrigger" in given:
        logger.warning("option maxOffsetsPerTrigger has no effect in a batch query")
    cluster_access, limits = _access(given), _limits(given)
    if limits.fetch_wait_ms >= cluster_access.request_timeout * 1000:
        raise UsageError(
            f"option kafka.fetch.max.wait.ms: {limits.fetch_wait_ms} must be less than "
            f"kafka.request.timeout.ms, which is {cluster_access.request_timeout * 1000:.0f}"
        )
    return Source(
        access=cluster_access,
        selection=_selection(given),
        mode=mode_of(given),
        start=_start(given, streaming),
        end=_end(given),
        read_committed=_isolation(given),
        headers=_flag(given, "includeHeaders", True),
        control=_flag(given, "includeControl", False),
        fail_on_data_loss=_flag(given, "failOnDataLoss", True),
        max_offsets=_optional(given, "maxOffsetsPerTrigger", _MAX_LONG),
        min_partitions=_optional(given, "minPartitions", _MAX_INT),
        retries=_number(given, "fetchOffset.numRetries", 3, 0),
        retry_interval=_number(given, "fetchOffset.retryIntervalMs", 1000, 0) / 1000,
        limits=limits,
    )


def _known(options: Mapping[str, str]) -> dict[str, str]:
    given = {name.lower(): value for name, value in options.items()}
    for name in sorted(given):
        if name not in NAMES:
            close = difflib.get_close_matches(name, NAMES, 1)
            raise UsageError(
                f"option {name} is unknown" + (f" (did you mean {NAMES[close[0]]}?)" if close else "")
            )
    return given


def _access(given: Mapping[str, str]) -> Access:
    kafka = {name.removeprefix("kafka."): value for name, value in given.items() if name.startswith("kafka.")}
    dial = _number(given, "kafka.socket.connection.setup.timeout.ms", 10_000) / 1000
    request = _number(given, "kafka.request.timeout.ms", 30_000) / 1000
    if "config" not in given:
        if "cluster" in given:
            raise UsageError(
                "option cluster: it names a cluster of the daemon's configuration, so config is required too"
            )
        return access.from_kafka(kafka, dial, request, insecure=_flag(given, "insecure", False))
    if "insecure" in given:
        raise UsageError(
            "option insecure: config already describes the access to the cluster; remove one of them"
        )
    for name in kafka:
        if name.startswith(("bootstrap.", "client.", "sasl.", "security.", "ssl.", "request.", "socket.")):
            raise UsageError(
                f"option kafka.{name}: config already describes the access to the cluster; remove one of them"
            )
    return access.from_config(given["config"], given.get("cluster", ""))


def _selection(given: Mapping[str, str]) -> Selection:
    named = [NAMES[name] for name in ("assign", "subscribe", "subscribepattern") if name in given]
    if len(named) != 1:
        given_names = " and ".join(named) or "none of them"
        raise UsageError(f"options subscribe, subscribePattern, assign: give exactly one, not {given_names}")
    if "assign" in given:
        return Selection(assigned=positions.parse_assign(given["assign"]))
    if "subscribe" in given:
        return Selection(positions.parse_subscribe(given["subscribe"]))
    return Selection(pattern=positions.parse_pattern(given["subscribepattern"]))


def _start(given: Mapping[str, str], streaming: bool | None) -> Position:
    name = "startingOffsetsByTimestampStrategy"
    strategy = given.get(name.lower(), "error").lower()
    if strategy not in ("error", "latest"):
        raise UsageError(f"option {name}: {strategy!r} is neither error nor latest")
    found = _position(given, "starting", LATEST if streaming is False else 0, strategy == "latest")
    return found or Position(Kind.LATEST if streaming else Kind.EARLIEST, "startingOffsets")


def _end(given: Mapping[str, str]) -> Position:
    return _position(given, "ending", EARLIEST, True) or Position(Kind.LATEST, "endingOffsets")


def _position(given: Mapping[str, str], side: str, refused: int, or_latest: bool) -> Position | None:
    """Choose as Spark's source does: one timestamp precedes timestamps by partition, and these precede offsets."""
    name = f"{side}Timestamp"
    if name.lower() in given:
        return positions.parse_time(given[name.lower()], name, or_latest)
    name = f"{side}OffsetsByTimestamp"
    if name.lower() in given:
        return positions.parse_times(given[name.lower()], name, or_latest)
    name = f"{side}Offsets"
    if name.lower() in given:
        return positions.parse_offsets(given[name.lower()], name, refused)
    return None


def _isolation(given: Mapping[str, str]) -> bool:
    found = {
        name: given[name.lower()].lower()
        for name in ("isolationLevel", "kafka.isolation.level")
        if name.lower() in given
    }
    for name, level in found.items():
        if level not in ("read_committed", "read_uncommitted"):
            raise UsageError(f"option {name}: {level!r} is neither read_committed nor read_uncommitted")
    if len(set(found.values())) > 1:
        raise UsageError("options isolationLevel and kafka.isolation.level contradict each other")
    return "read_committed" in found.values()


def _limits(given: Mapping[str, str]) -> ReadLimits:
    default = ReadLimits()
    return ReadLimits(
        _number(given, "kafkaConsumer.pollTimeoutMs", 120_000) / 1000,
        _number(given, "kafka.retry.backoff.ms", 100, 0) / 1000,
        _number(given, "kafka.retry.backoff.max.ms", 1000, 0) / 1000,
        _number(given, "kafka.max.partition.fetch.bytes", default.fetch_bytes),
        _number(given, "kafka.fetch.min.bytes", default.fetch_min_bytes, 0),
        _number(given, "kafka.fetch.max.wait.ms", default.fetch_wait_ms, 0),
        _number(given, "arrowBatchRecords", default.arrow_records),
        _number(given, "arrowBatchBytes", default.arrow_bytes),
        _number(given, "maxBatchBytes", default.batch_bytes),
    )


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    found = given.get(name.lower(), str(default)).lower()
    if found not in ("true", "false"):
        raise UsageError(f"option {name}: {found!r} is neither true nor false")
    return found == "true"


def _number(given: Mapping[str, str], name: str, default: int, least: int = 1, most: int = _MAX_INT) -> int:
    text = given.get(name.lower(), str(default))
    if not (text.isascii() and text.isdecimal()) or not least <= int(text) <= most:
        raise UsageError(f"option {name}: {text!r} is not a whole number from {least} to {most}")
    return int(text)


def _optional(given: Mapping[str, str], name: str, most: int) -> int | None:
    return _number(given, name, 1, 1, most) if name.lower() in given else None


__all__ = ["NAMES", "ReadLimits", "Selection", "Source", "mode_of", "parse"]
