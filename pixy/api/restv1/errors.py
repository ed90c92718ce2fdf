"""Every error of this API: its status, code and text, and the exceptions that it answers.

An error's body is ``{"error_code": int, "message": str}``. The code is the HTTP status, or that
status with two more digits; one exception is 422 with 40001. The texts of :class:`ErrorKind` are a contract with existing clients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pixy import errors


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """A status, its code, and its text if the API has a fixed one."""

    status: int
    code: int
    text: str = ""

    def with_text(self, text: str) -> ErrorKind:
        """Return the same error with another text."""
        return replace(self, text=text)


BAD_REQUEST = ErrorKind(400, 400)
KAFKA_BAD_REQUEST = ErrorKind(400, 40002)
UNAUTHENTICATED = ErrorKind(401, 401)
FORBIDDEN = ErrorKind(403, 403)
KAFKA_AUTHENTICATION = ErrorKind(401, 40101)
KAFKA_AUTHORIZATION = ErrorKind(403, 40301)
NOT_FOUND = ErrorKind(404, 404, "HTTP 404 Not Found")
TOPIC_NOT_FOUND = ErrorKind(404, 40401, "Topic not found.")
PARTITION_NOT_FOUND = ErrorKind(404, 40402, "Partition not found.")
CONSUMER_INSTANCE_NOT_FOUND = ErrorKind(404, 40403, "Consumer instance not found.")
LEADER_NOT_AVAILABLE = ErrorKind(404, 40404, "Leader not available.")
GROUP_NOT_FOUND = ErrorKind(404, 40405, "Consumer group id not found.")
METHOD_NOT_ALLOWED = ErrorKind(405, 405, "HTTP 405 Method Not Allowed")
MISDIRECTED = ErrorKind(421, 421)
NOT_ACCEPTABLE = ErrorKind(406, 406, "HTTP 406 Not Acceptable")
FORMAT_MISMATCH = ErrorKind(
    406,
    40601,
    "The requested embedded data format does not match the deserializer for this consumer instance",
)
SERIALIZATION = ErrorKind(408, 40801)
"""Also the ``error_code`` of a record that cannot be shown in the requested format."""
CONFLICT = ErrorKind(409, 409)
ALREADY_SUBSCRIBED = ErrorKind(
    409,
    40901,
    "Consumer cannot subscribe the the specified target because it has already subscribed to other topics.",
)
INSTANCE_EXISTS = ErrorKind(
    409,
    40902,
    "Consumer with specified consumer ID already exists in the specified consumer group.",
)
ILLEGAL_STATE = ErrorKind(409, 40903, "Illegal state: ")
"""Its text continues with the reason."""
TOO_LARGE = ErrorKind(413, 413)
UNSUPPORTED_MEDIA_TYPE = ErrorKind(415, 415, "HTTP 415 Unsupported Media Type")
INVALID = ErrorKind(422, 422)
INVALID_CONSUMER_CONSTRAINT = ErrorKind(
    422, 40001, "Invalid consumer configuration. It does not abide by the constraints: "
)
KEY_SCHEMA_MISSING = ErrorKind(422, 42201, "Request includes keys but does not include key schema")
VALUE_SCHEMA_MISSING = ErrorKind(422, 42202, "Request includes values but does not include value schema")
CONVERSION = ErrorKind(422, 42203, "Conversion of JSON to Object failed: ")
INVALID_CONSUMER_CONFIG = ErrorKind(422, 42204, "Invalid consumer configuration: ")
INVALID_SCHEMA = ErrorKind(422, 42205, "Invalid schema: ")
TOO_MANY_REQUESTS = ErrorKind(429, 429)
INTERNAL = ErrorKind(500, 500, "Internal Server Error")
KAFKA_ERROR = ErrorKind(500, 50002, "Kafka error: ")
"""KIP-80 calls it 50001, the REST proxies 50002 (``rest.kafka_error_code`` decides)."""
KAFKA_RETRIABLE = ErrorKind(500, 50003, "Kafka error: ")
UNAVAILABLE = ErrorKind(503, 503)
NO_SIMPLE_CONSUMER = ErrorKind(
    503,
    50301,
    "No SimpleConsumer is available at the time in the pool. The request can be retried. You can "
    "increase the pool size or the pool timeout to avoid this error in the future.",
)
BROKER_NOT_AVAILABLE = ErrorKind(503, 50302, "Kafka error: ")


class ApiError(errors.PixyError):
    """An error to answer with.

    Args:
        kind: status, code and text.
        detail: appended if the text ends with a blank; replaces it otherwise.
    """

    def __init__(self, kind: ErrorKind, detail: str = "") -> None:
        text = kind.text + detail if kind.text.endswith(" ") else detail or kind.text
        super().__init__(text)
        self.kind = kind.with_text(text)


class NotAllowed(ApiError):
    """405: the path exists with other methods.

    Args:
        allowed: those methods.
    """

    def __init__(self, allowed: frozenset[str]) -> None:
        super().__init__(METHOD_NOT_ALLOWED)
        self.allowed = allowed


# The first class that matches counts. KafkaError has its own rules, below.
_KINDS: tuple[tuple[type[Exception], ErrorKind], ...] = (
    (errors.Unauthenticated, UNAUTHENTICATED),
    (errors.Forbidden, FORBIDDEN),
    (errors.UnknownPartition, PARTITION_NOT_FOUND),
    (errors.UnknownTopic, TOPIC_NOT_FOUND),
    (errors.UnknownCluster, NOT_FOUND),
    (errors.OffsetOutOfRange, INVALID),
    (errors.FetchPoolBusy, NO_SIMPLE_CONSUMER),
    (errors.InvalidParameter, INVALID),
    (errors.UnknownInstance, CONSUMER_INSTANCE_NOT_FOUND),
    (errors.InstanceExists, INSTANCE_EXISTS),
    (errors.OtherSubscription, ALREADY_SUBSCRIBED),
    (errors.FormatMismatch, FORMAT_MISMATCH),
    (errors.GroupActive, CONFLICT),
    (errors.NotHeld, CONFLICT),
    (errors.TopicExists, CONFLICT),
    (errors.ChangesForbidden, KAFKA_AUTHORIZATION),
    (errors.TooManyRequests, TOO_MANY_REQUESTS),
    (errors.OverBudget, UNAVAILABLE),
    (errors.Unavailable, UNAVAILABLE),
)
_AUTHENTICATION = frozenset({"_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED"})
_AUTHORIZATION = frozenset(
    {
        "TOPIC_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    }
)
_RECORD_TOO_LARGE = frozenset({"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"})
_BAD_ARGUMENT = frozenset({"_INVALID_ARG", "OFFSET_METADATA_TOO_LARGE", "INVALID_GROUP_ID"})
_NO_LEADER = frozenset({"LEADER_NOT_AVAILABLE"})
_NO_BROKER = frozenset({"_ALL_BROKERS_DOWN", "_TRANSPORT", "_TIMED_OUT", "BROKER_NOT_AVAILABLE"})


def kind_of(error: Exception) -> ErrorKind:
    """Return the error, with its text, that answers an exception."""
    if isinstance(error, ApiError):
        return error.kind
    for cls, kind in _KINDS:
        if isinstance(error, cls):
            # Fixed texts are the contract; otherwise the exception has the details.
            return kind.with_text(kind.text if kind.code != kind.status and kind.text else str(error))
    if isinstance(error, errors.IllegalState):
        return ILLEGAL_STATE.with_text(ILLEGAL_STATE.text + str(error))
    if isinstance(error, errors.KafkaError):
        kind = _kafka_kind(error)
        return kind if kind is LEADER_NOT_AVAILABLE else kind.with_text(kind.text + str(error))
    return INTERNAL


def _kafka_kind(error: errors.KafkaError) -> ErrorKind:
    if error.name in _AUTHENTICATION:
        return KAFKA_AUTHENTICATION
    if error.name in _AUTHORIZATION:
        return KAFKA_AUTHORIZATION
    if error.name in _RECORD_TOO_LARGE:
        return TOO_LARGE
    if error.name in _BAD_ARGUMENT:
        return INVALID
    if error.name in _NO_LEADER:
        return LEADER_NOT_AVAILABLE
    if error.name in _NO_BROKER:
        return BROKER_NOT_AVAILABLE
    return KAFKA_RETRIABLE if error.retriable else KAFKA_ERROR


def entry_code(error: Exception) -> int:
    """Return the ``error_code`` of one failed record of a produce request.

    50003: a retry may succeed. 50002: it will not. 40101, 40301: the proxy is not allowed to write to the
    topic. An error in the record itself keeps its own code.
    """
    if isinstance(error, ApiError):
        return error.kind.code
    kind = kind_of(error)
    if kind.code in (KAFKA_AUTHENTICATION.code, KAFKA_AUTHORIZATION.code, PARTITION_NOT_FOUND.code):
        return kind.code
    if kind.status in (404, 429, 503):
        return KAFKA_RETRIABLE.code
    if isinstance(error, errors.KafkaError) and error.retriable:
        return KAFKA_RETRIABLE.code
    return KAFKA_ERROR.code
