"""Translates confluent-kafka's errors into :mod:`pixy.errors`, with the texts of the Go client.

Clients of the Go original match on these texts, so a broker's error keeps Sarama's wording; errors that
Sarama does not have keep librdkafka's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from confluent_kafka import KafkaError as _KafkaError, KafkaException

from pixy import errors
from pixy.wire.types import TopicPartition

OUT_OF_BROKERS = "kafka: client has run out of available brokers to talk to (Is your cluster reachable?)"

_SARAMA = {
    -1: "Unexpected (unknown?) server error.",
    1: "The requested offset is outside the range of offsets maintained by the server for the given topic/partition.",
    2: "Message contents does not match its CRC.",
    3: "Request was for a topic or partition that does not exist on this broker.",
    4: "The message has a negative size.",
    5: "In the middle of a leadership election, there is currently no leader for this partition and hence it is unavailable for writes.",
    6: "Tried to send a message to a replica that is not the leader for some partition. Your metadata is out of date.",
    7: "Request exceeded the user-specified time limit in the request.",
    8: "Broker not available. Not a client facing error, we should never receive this!!!",
    9: "Replica information not available, one or more brokers are down.",
    10: "Message was too large, server rejected it to avoid allocation error.",
    12: "Specified a string larger than the configured maximum for offset metadata.",
    13: "The server disconnected before a response was received.",
    14: "The broker is still loading offsets after a leader change for that offset's topic partition.",
    15: "Offset's topic has not yet been created.",
    16: "Request was for a consumer group that is not coordinated by this broker.",
    17: "The request attempted to perform an operation on an invalid topic.",
    18: "The request included message batch larger than the configured segment size on the server.",
    19: "Messages are rejected since there are fewer in-sync replicas than required.",
    20: "Messages are written to the log, but to fewer in-sync replicas than required.",
    21: "The number of required acks is invalid (should be either -1, 0, or 1).",
    22: "The provided generation id is not the current generation.",
    23: "The provider group protocol type is incompatible with the other members.",
    24: "The provided group id was empty.",
    25: "The provided member is not known in the current generation.",
    26: "The provided session timeout is outside the allowed range.",
    27: "A rebalance for the group is in progress. Please re-join the group.",
    28: "The provided commit metadata was too large.",
    29: "The client is not authorized to access this topic.",
    30: "The client is not authorized to access this group.",
    31: "The client is not authorized to send this request type.",
    32: "The timestamp of the message is out of acceptable range.",
    33: "The broker does not support the requested SASL mechanism.",
    34: "Request is not valid given the current SASL state.",
    35: "The version of API is not supported.",
}
_UNKNOWN_TOPIC_CODES = frozenset(
    {
        _KafkaError.UNKNOWN_TOPIC_OR_PART,
        _KafkaError._UNKNOWN_TOPIC,
        _KafkaError._UNKNOWN_PARTITION,
    }
)
_NO_TOPIC_CODES = _UNKNOWN_TOPIC_CODES - {_KafkaError._UNKNOWN_PARTITION}
_UNREACHABLE_CODES = frozenset({_KafkaError._ALL_BROKERS_DOWN, _KafkaError._TRANSPORT})

GROUP_ACTIVE_CODES = frozenset(
    {
        _KafkaError.UNKNOWN_MEMBER_ID,
        _KafkaError.ILLEGAL_GENERATION,
        _KafkaError.REBALANCE_IN_PROGRESS,
        _KafkaError.NON_EMPTY_GROUP,
        _KafkaError.FENCED_MEMBER_EPOCH,
        _KafkaError.STALE_MEMBER_EPOCH,
    }
)
"""A broker's answers to a commit from outside a group that has members."""

REBALANCING_CODES = frozenset(
    {
        _KafkaError.ILLEGAL_GENERATION,
        _KafkaError.REBALANCE_IN_PROGRESS,
        _KafkaError.STALE_MEMBER_EPOCH,
    }
)
"""A member's group has a new generation, or is about to: what the member commits in that one is taken."""

REMOVED_CODES = frozenset(
    {
        _KafkaError.UNKNOWN_MEMBER_ID,
        _KafkaError.FENCED_MEMBER_EPOCH,
        _KafkaError.GROUP_ID_NOT_FOUND,
    }
)
"""The group does not know the member that commits any more, or does not exist any more itself."""

UNSUPPORTED_CODES = frozenset(
    {
        _KafkaError._UNSUPPORTED_FEATURE,
        _KafkaError.UNSUPPORTED_VERSION,
    }
)
TRANSIENT_CODES = frozenset(
    {
        _KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        _KafkaError.COORDINATOR_NOT_AVAILABLE,
        _KafkaError.NOT_COORDINATOR,
        _KafkaError.LEADER_NOT_AVAILABLE,
        _KafkaError.NOT_LEADER_FOR_PARTITION,
        _KafkaError._TRANSPORT,
        _KafkaError._WAIT_COORD,
    }
)
"""Errors that pass within seconds, after a broker's start or an election."""

GROUP_REFUSED_CODES = frozenset(
    {
        _KafkaError.GROUP_AUTHORIZATION_FAILED,
        _KafkaError.INCONSISTENT_GROUP_PROTOCOL,
        _KafkaError.INVALID_GROUP_ID,
        _KafkaError.INVALID_SESSION_TIMEOUT,
        _KafkaError.GROUP_MAX_SIZE_REACHED,
    }
)
"""Errors with which a coordinator refuses a member. librdkafka reports them, not as fatal, and asks again for ever."""

REFUSED_BATCH_CODES = frozenset(
    {
        _KafkaError.INVALID_RECORD,
        _KafkaError._INVALID_DIFFERENT_RECORD,
        _KafkaError.INVALID_TIMESTAMP,
        _KafkaError.MSG_SIZE_TOO_LARGE,
        _KafkaError.RECORD_LIST_TOO_LARGE,
    }
)
"""Errors of a message that may be no fault of its own. Kafka names the records at fault (KIP-467), but librdkafka 2.16 tells the
others by ``_INVALID_DIFFERENT_RECORD`` only if there are several such records: of one, all messages of the batch get the error.
"""

REFUSAL_CODES = REFUSED_BATCH_CODES | {
    _KafkaError.INVALID_MSG,
    _KafkaError.POLICY_VIOLATION,
    _KafkaError.TOPIC_AUTHORIZATION_FAILED,
    _KafkaError.TOPIC_EXCEPTION,
    _KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
    _KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}
"""Errors with which a broker refuses messages of one topic for good. Each makes an idempotent producer begin a new epoch."""

PRODUCER_CODES = frozenset(
    {
        _KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        _KafkaError.DUPLICATE_SEQUENCE_NUMBER,
        _KafkaError.INVALID_PRODUCER_EPOCH,
        _KafkaError.INVALID_PRODUCER_ID_MAPPING,
        _KafkaError.UNKNOWN_PRODUCER_ID,
        _KafkaError.PRODUCER_FENCED,
        _KafkaError._FENCED,
        _KafkaError._FATAL,
    }
)
"""Errors for which an idempotent producer cannot write a message, though another one can."""

INCURABLE_CODES = frozenset(
    {
        _KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        _KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        _KafkaError.INVALID_TRANSACTION_TIMEOUT,
        _KafkaError._UNSUPPORTED_FEATURE,
    }
)
"""Fatal errors that every new producer has, too, until a person changes something."""

AUTH_CODES = frozenset(
    {
        _KafkaError.TOPIC_AUTHORIZATION_FAILED,
        _KafkaError.GROUP_AUTHORIZATION_FAILED,
        _KafkaError.SASL_AUTHENTICATION_FAILED,
        _KafkaError._AUTHENTICATION,
    }
)
"""Errors that do not pass: the client is not authorized."""

REBALANCE_IN_PROGRESS = int(_KafkaError.REBALANCE_IN_PROGRESS)
MESSAGE_TOO_LARGE = int(_KafkaError.MSG_SIZE_TOO_LARGE)


def server_text(code: int) -> str:
    """Return Sarama's text of a broker's error code."""
    return f"kafka server: {_SARAMA[code]}"


def message_too_large() -> errors.KafkaError:
    """Return the error of a message above ``producer.max_message_bytes``."""
    return errors.KafkaError(server_text(MESSAGE_TOO_LARGE), MESSAGE_TOO_LARGE, "MSG_SIZE_TOO_LARGE")


def unknown_topic() -> errors.UnknownTopic:
    """Return the error of a topic or partition that does not exist."""
    code = int(_KafkaError.UNKNOWN_TOPIC_OR_PART)
    return errors.UnknownTopic(server_text(code), code, "UNKNOWN_TOPIC_OR_PART")


def is_unknown_topic(error: object, or_partition: bool = True) -> bool:
    """Return whether librdkafka refuses a message because it knows no such topic.

    Args:
        error: a ``KafkaError``, a ``KafkaException``, or anything else.
        or_partition: or because the topic has no such partition.
    """
    if isinstance(error, KafkaException):
        error = error.args[0]
    codes = _UNKNOWN_TOPIC_CODES if or_partition else _NO_TOPIC_CODES
    return isinstance(error, _KafkaError) and error.code() in codes


def ends_consumer(error: _KafkaError) -> bool:
    """Return whether a consumer that polled an error sends no more heartbeats, and joins its group never again.

    Of a fatal answer to a KIP-848 heartbeat librdkafka 2.16 tells by the code; the error's own flag is not set.
    """
    return bool(error.fatal()) or error.code() == _KafkaError._FATAL


def timed_out(what: str) -> errors.KafkaError:
    """Return the error of a request that Kafka did not answer in time; ``what`` names the request."""
    return errors.KafkaError(
        f"kafka: no answer in time to {what}", int(_KafkaError._TIMED_OUT), "_TIMED_OUT", retriable=True
    )


def not_fetched(partitions: Sequence[TopicPartition]) -> errors.KafkaError:
    """Return the error of a client that does not fetch partitions, though they have messages: another client may."""
    names = ", ".join(f"{topic}/{number}" for topic, number in sorted(partitions)[:3])
    return errors.KafkaError(
        f"kafka: the client does not fetch {names}, though there are messages",
        int(_KafkaError._STATE),
        "_STATE",
        retriable=True,
    )


def not_shared_out(topics: Iterable[str]) -> errors.KafkaError:
    """Return the error of a classic group's member that may never be given partitions of topics made again: another client may.

    If the group was shared out while a topic did not exist, librdkafka (2.16) does not see later that it has come back, because the
    number of its partitions is the one that it remembers.
    """
    names = ", ".join(sorted(topics)[:3])
    return errors.KafkaError(
        f"kafka: {names} was made again, and the group may not have shared it out",
        int(_KafkaError._STATE),
        "_STATE",
        retriable=True,
    )


def removed(seconds: float) -> errors.KafkaError:
    """Return the error of a client whose group has removed it, and that does not notice: another client may join.

    Args:
        seconds: for how long commits have been refused.
    """
    return errors.KafkaError(
        f"kafka: the group removed this member, and the client has not noticed for {seconds:.0f} s",
        int(_KafkaError._STATE),
        "_STATE",
        retriable=True,
    )


def left_behind(seconds: float) -> errors.KafkaError:
    """Return the error of a client that has not heard of its assignment: another client gets a new one.

    Args:
        seconds: for how long it has been behind its group.
    """
    return errors.KafkaError(
        f"kafka: the answer with this member's assignment was lost, and it is behind its group for {seconds:.0f} s",
        int(_KafkaError._STATE),
        "_STATE",
        retriable=True,
    )


def unsupported(what: str) -> errors.KafkaError:
    """Return the error of a request that the broker does not implement; ``what`` names the request."""
    return errors.KafkaError(
        f"kafka: {what} is not supported by this broker",
        _KafkaError._UNSUPPORTED_FEATURE,
        "_UNSUPPORTED_FEATURE",
    )


def error_of(code: int, text: str | None = None) -> errors.KafkaError:
    """Return our error for an error code of Kafka or of librdkafka.

    Args:
        code: Kafka's codes are positive, librdkafka's negative.
        text: what the broker says; None for the text that belongs to the code.
    """
    return translate(_KafkaError(code, text))


def translate(error: object) -> errors.KafkaError:
    """Translate a ``KafkaError``, a ``KafkaException`` or any other error that a client raised."""
    if isinstance(error, errors.KafkaError):
        return error
    if isinstance(error, KafkaException):
        error = error.args[0]
    if not isinstance(error, _KafkaError):
        return errors.KafkaError(f"kafka: {error}", -1, "UNKNOWN")
    code, name = error.code(), error.name()
    if code in _UNKNOWN_TOPIC_CODES:
        return unknown_topic()
    if code in _UNREACHABLE_CODES:
        return errors.KafkaError(OUT_OF_BROKERS, code, name, retriable=True)
    if code in _SARAMA:
        text = server_text(code)
    elif code > 0:
        text = f"kafka server: {error.str()}"
    else:
        text = f"kafka: {error.str()}"
    return errors.KafkaError(text, code, name, retriable=error.retriable() or code in TRANSIENT_CODES)
