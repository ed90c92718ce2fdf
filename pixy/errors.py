"""The one exception hierarchy of the proxy. Each API maps it in one table of its own.

The texts are part of the contract with the original's clients; see docs/compatibility.md.
"""

from __future__ import annotations

DEFAULTS_URL = "https://github.com/mailgun/kafka-pixy/blob/master/default.yaml"


class PixyError(Exception):
    """Base of all errors that an API may answer with; ``str()`` is the answer's text."""


class ConfigError(PixyError):
    """The configuration can not be used."""


class StartError(PixyError):
    """The service, or a part of it, could not start."""


class InvalidParameter(PixyError):
    """The client sent something that can not be right; the text names the parameter."""


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
    """Nothing to consume within the long poll's wait."""

    def __init__(self) -> None:
        super().__init__("long polling timeout")


class TooManyRequests(PixyError):
    """A bounded queue is full; ``parameter`` is the bound's name in the configuration."""

    def __init__(self, parameter: str = "consumer.channel_buffer_size") -> None:
        # The original's text for its one such bound, link and all; the others are ours.
        link = f" ({DEFAULTS_URL}#L43)" if parameter == "consumer.channel_buffer_size" else ""
        super().__init__(f"Too many requests. Consider increasing `{parameter}`{link}")


class Unavailable(PixyError):
    """The service can not take the request now."""


class ShuttingDown(Unavailable):
    """The service drains."""

    def __init__(self) -> None:
        super().__init__("service is shutting down")


class Disabled(Unavailable):
    """The consumer is switched off in the configuration."""

    def __init__(self) -> None:
        super().__init__("service is disabled by configuration")


class NotConsumed(PixyError):
    """An ack for a partition that this instance has not consumed."""

    def __init__(self, group: str, topic: str, partition: int) -> None:
        super().__init__(f"acks channel missing for {{{group} {topic} {partition}}}")


class PartitionLost(PixyError):
    """An ack for a partition that belongs to another member by now; the ack was not applied."""

    def __init__(self, group: str, topic: str, partition: int) -> None:
        super().__init__(
            f"partition lost: {topic}/{partition} of group {group} was reassigned to another "
            "member; the message may be delivered again"
        )


class NeverOffered(InvalidParameter):
    """An ack for an offset that was not handed out: applying it would lose the message."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        super().__init__(f"bad offset: {offset} of {topic}/{partition} has not been offered")


class GroupActive(PixyError):
    """Offsets of a group can be set only while nobody consumes."""

    def __init__(self, group: str) -> None:
        super().__init__(
            f"group {group} is being consumed; its offsets can be set only after all its members have left"
        )


class KafkaError(PixyError):
    """What Kafka, or the way to it, refused.

    Attributes:
        code: Kafka's error code (KIP protocol table), or a negative one of the client library.
        name: the code's name, such as ``UNKNOWN_TOPIC_OR_PART``.
        retriable: whether the same request may succeed later.
    """

    def __init__(self, text: str, code: int, name: str, *, retriable: bool = False) -> None:
        super().__init__(text)
        self.code = code
        self.name = name
        self.retriable = retriable

    def wrapped(self, what: str) -> KafkaError:
        """The same error with ``what`` failed in front of its text."""
        return type(self)(f"{what}: {self}", self.code, self.name, retriable=self.retriable)


class UnknownTopic(KafkaError):
    """The topic or partition does not exist."""


class UnknownPartition(UnknownTopic):
    """The topic exists, the partition does not."""


class OffsetOutOfRange(InvalidParameter):
    """The partition does not hold the offset."""

    def __init__(self, offset: int, begin: int, end: int) -> None:
        super().__init__(f"bad offset: {offset} is out of range, the partition holds {begin} to {end}")


class FetchPoolBusy(Unavailable):
    """All consumers for reads by offset are at work (``max_fetches``)."""

    def __init__(self) -> None:
        super().__init__("all consumers for reads by offset are at work (`max_fetches`)")


class OverBudget(Unavailable):
    """Taking this on would exceed the memory that requests and answers may use together."""

    def __init__(self, parameter: str) -> None:
        super().__init__(f"too much is under way (`{parameter}`), try again")


class UnknownInstance(PixyError):
    """No such consumer instance here, or not any more."""

    def __init__(self) -> None:
        super().__init__("Consumer instance not found.")


class InstanceExists(PixyError):
    """The group has a consumer instance of that name."""

    def __init__(self) -> None:
        super().__init__(
            "Consumer with specified consumer ID already exists in the specified consumer group."
        )


class OtherSubscription(PixyError):
    """The instance consumes other topics already."""

    def __init__(self) -> None:
        super().__init__(
            "Consumer cannot subscribe the the specified target because it has already subscribed "
            "to other topics."
        )


class IllegalState(PixyError):
    """The instance is not in a state in which it can do that."""


class FormatMismatch(PixyError):
    """A read asks for another format than the instance was created with."""

    def __init__(self) -> None:
        super().__init__(
            "The requested embedded data format does not match the deserializer for this consumer instance"
        )
