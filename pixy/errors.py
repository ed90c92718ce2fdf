"""The proxy's one exception hierarchy. Each API maps it to its statuses in one module.

The texts are part of the contract with the Go original's clients; see docs/compatibility.md.
"""

from __future__ import annotations

import errno
import os

DEFAULTS_URL = "https://github.com/mailgun/kafka-pixy/blob/master/default.yaml"


class PixyError(Exception):
    """Base class of the errors that an API answers with; ``str(error)`` is the text of the answer."""


def needs_extra(what: str, extra: str, error: ImportError | None = None) -> str:
    """Say how to install what is missing: Kafka-Pixy is installed from a checkout, no index has it.

    Args:
        what: cannot be done without it.
        extra: of ``setup.cfg``.
        error: names the library.
    """
    cause = "" if error is None else f" ({error})"
    return f"{what} needs the extra {extra}: pip install '.[{extra}]' in a checkout of Kafka-Pixy{cause}"


def reason_of(error: OSError) -> str:
    """Return why the system has refused something, in lower case: without the number, and what libraries put around the reason."""
    # Errors that a library derives (of names, of TLS) have numbers of their own.
    if error.errno and type(error).__module__ == "builtins":
        return os.strerror(error.errno).lower()
    if str(error).startswith("could not bind on any address"):  # asyncio since Python 3.13, without a number
        return os.strerror(errno.EADDRNOTAVAIL).lower()
    return (error.strerror or str(error)).lower()


def in_words(error: Exception) -> str:
    """Return an error as one line; one of the system as the file, if there is one, and the reason."""
    text = reason_of(error) if isinstance(error, OSError) else str(error)
    where = getattr(error, "filename", None)
    return " ".join((f"{where}: {text}" if where else text).split())


class ConfigError(PixyError):
    """The configuration is invalid."""


class StartError(PixyError):
    """The service or a part of it failed to start."""


class NotValidNow(StartError):
    """A certificate is not valid at this time, and the one in use is.

    Args:
        text: says so.
        since: when it becomes valid, in seconds since 1970; None: it has expired.
    """

    def __init__(self, text: str, since: float | None = None) -> None:
        super().__init__(text)
        self.since = since


class InvalidParameter(PixyError):
    """A request is invalid; the text names the parameter."""


class UnknownCluster(InvalidParameter):
    """The request names a cluster that is not configured."""

    def __init__(self, cluster: str) -> None:
        super().__init__(f"proxy `{cluster}` does not exist")


class HeadersUnsupported(InvalidParameter):
    """Record headers need ``kafka.version`` 0.11 or later."""

    def __init__(self) -> None:
        super().__init__(
            "headers are not supported with this version of Kafka. Consider changing "
            f"`kafka.version` ({DEFAULTS_URL}#L35)"
        )


class UnknownGroup(InvalidParameter):
    """No such consumer group, or it does not consume the topic."""


class LongPollTimeout(PixyError):
    """No message arrived before the long poll timed out."""

    def __init__(self) -> None:
        super().__init__("long polling timeout")


class TooManyRequests(PixyError):
    """A bounded queue is full; ``parameter`` names the configuration key of its bound, or is empty if it has none."""

    def __init__(self, parameter: str = "consumer.channel_buffer_size") -> None:
        # The original has one such bound; its text, link included, is kept. The other texts are ours.
        if not parameter:
            super().__init__("Too many requests, try again")
            return
        link = f" ({DEFAULTS_URL}#L43)" if parameter == "consumer.channel_buffer_size" else ""
        super().__init__(f"Too many requests. Consider increasing `{parameter}`{link}")


class Limited(TooManyRequests):
    """A caller has used up what ``limits`` gives him, or his share of what all callers share.

    Attributes:
        retry_after: seconds after which the same request may be accepted.
    """

    def __init__(self, what: str, retry_after: float = 1.0) -> None:
        PixyError.__init__(self, f"Too many requests: {what}")
        self.retry_after = retry_after


class Unauthenticated(PixyError):
    """The caller has not said who he is, or has not proved it.

    Attributes:
        reason: a word for the audit log.
    """

    def __init__(self, text: str, reason: str = "no_credentials") -> None:
        super().__init__(text)
        self.reason = reason


class Forbidden(PixyError):
    """No rule allows the caller to do this. The text does not depend on whether the topic or group exists."""


class Unavailable(PixyError):
    """The service cannot accept the request now."""


class ShuttingDown(Unavailable):
    """The service is draining before it stops."""

    def __init__(self) -> None:
        super().__init__("service is shutting down")


class Disabled(Unavailable):
    """Consuming is disabled in the configuration."""

    def __init__(self) -> None:
        super().__init__("service is disabled by configuration")


class NotHeld(PixyError):
    """A client acknowledged a message of a partition that is not assigned to this daemon; nothing was applied."""


class NotConsumed(NotHeld):
    """The daemon has not consumed the partition since it, or the group's actor, has started."""

    def __init__(self, group: str, topic: str, partition: int) -> None:
        # The original's text, and then what it means.
        super().__init__(
            f"acks channel missing for {{{group} {topic} {partition}}}: the partition is not assigned to this "
            "daemon; the message may be delivered again"
        )


class PartitionLost(NotHeld):
    """A client acknowledged a message of a partition that this member has given back; the ack was not applied."""

    def __init__(self, group: str, topic: str, partition: int) -> None:
        super().__init__(
            f"partition lost: {topic}/{partition} of group {group} was given back, to another "
            "member or because the group began anew; the message may be delivered again"
        )


class NeverOffered(InvalidParameter):
    """A client acknowledged an offset that was never offered: applying the ack would lose the message."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        super().__init__(f"bad offset: {offset} of {topic}/{partition} has not been offered")


class GroupActive(PixyError):
    """A client set offsets of a group that has members."""

    def __init__(self, group: str) -> None:
        super().__init__(
            f"group {group} is being consumed; its offsets can be set only after all its members have left"
        )


class GroupHasMembers(GroupActive):
    """A client deleted a group that has members."""

    def __init__(self, group: str) -> None:
        PixyError.__init__(
            self, f"group {group} has members; it can be deleted only after all of them have left"
        )


class TopicExists(PixyError):
    """A client created a topic whose name is taken."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic} exists already")


class ChangesForbidden(PixyError):
    """The configuration forbids clients to change topics and groups."""

    def __init__(self) -> None:
        super().__init__("changes of topics and groups are disabled by configuration (`admin_changes`)")


class KafkaError(PixyError):
    """Kafka, or the connection to it, refused a request.

    Attributes:
        code: Kafka's error code, or a negative code of librdkafka.
        name: the code's name, such as ``UNKNOWN_TOPIC_OR_PART``.
        retriable: whether the same request may succeed later.
    """

    def __init__(self, text: str, code: int, name: str, *, retriable: bool = False) -> None:
        super().__init__(text)
        self.code = code
        self.name = name
        self.retriable = retriable

    def wrapped(self, what: str) -> KafkaError:
        """Return the same error with ``what: `` in front of its text."""
        return type(self)(f"{what}: {self}", self.code, self.name, retriable=self.retriable)


class UnknownTopic(KafkaError):
    """The topic or partition does not exist."""


class UnknownPartition(UnknownTopic):
    """The topic exists but the partition does not."""


class OffsetOutOfRange(InvalidParameter):
    """The offset is outside the range that the partition holds."""

    def __init__(self, offset: int, begin: int, end: int) -> None:
        super().__init__(f"bad offset: {offset} is out of range, the partition holds {begin} to {end}")


class FetchPoolBusy(Unavailable):
    """All consumers of the pool for reads by offset are busy (``max_fetches``)."""

    def __init__(self) -> None:
        super().__init__("all consumers for reads by offset are at work (`max_fetches`)")


class OverBudget(Unavailable):
    """The request would exceed the memory budget that requests and answers share."""

    def __init__(self, parameter: str) -> None:
        super().__init__(f"too much is under way (`{parameter}`), try again")


class UnknownInstance(PixyError):
    """The consumer instance does not exist, or no longer exists."""

    def __init__(self) -> None:
        super().__init__("Consumer instance not found.")


class InstanceExists(PixyError):
    """The group already has a consumer instance of that name."""

    def __init__(self) -> None:
        super().__init__(
            "Consumer with specified consumer ID already exists in the specified consumer group."
        )


class OtherSubscription(PixyError):
    """The consumer instance is subscribed to other topics."""

    def __init__(self) -> None:
        super().__init__(
            "Consumer cannot subscribe the the specified target because it has already subscribed "
            "to other topics."
        )


class IllegalState(PixyError):
    """The consumer instance's state does not allow the operation."""


class FormatMismatch(PixyError):
    """A read asks for another format than the consumer instance was created with."""

    def __init__(self) -> None:
        super().__init__(
            "The requested embedded data format does not match the deserializer for this consumer instance"
        )
