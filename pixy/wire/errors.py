"""Kafka's error codes up to Kafka 4.3: names, meanings, and whether a retry may help.

A code in a response is an answer, not a failure of the call. :class:`KafkaError` is for callers that raise one.
"""

from __future__ import annotations

import enum
from typing import Any

from pixy.wire.exceptions import WireError

_RETRY, _REFRESH = 1, 2


class ErrorCode(enum.IntEnum):
    """An error code, with its name in Kafka's own table (``org.apache.kafka.common.protocol.Errors``).

    ``retriable``: the same request may succeed later. ``refresh``: only after metadata or the coordinator has been
    looked up again. ``message``: the meaning in English.
    """

    message: str
    retriable: bool
    refresh: bool

    def __new__(cls, code: int, message: str = "", again: int = 0) -> ErrorCode:
        """Make a member; ``again`` is 0, _RETRY or _REFRESH."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.message = message
        member.retriable = again > 0
        member.refresh = again == _REFRESH
        return member

    UNKNOWN_SERVER_ERROR = -1, "the broker met an error that it has no code for"
    NONE = 0, "no error"
    OFFSET_OUT_OF_RANGE = 1, "the offset is outside the partition's log"
    CORRUPT_MESSAGE = (
        2,
        "a record set fails its checksum, is too large, or has a null key on a compacted topic",
        _RETRY,
    )
    UNKNOWN_TOPIC_OR_PARTITION = 3, "the broker does not host this topic or partition", _REFRESH
    INVALID_FETCH_SIZE = 4, "the fetch size is not valid"
    LEADER_NOT_AVAILABLE = 5, "the partition has no leader at the moment", _REFRESH
    NOT_LEADER_OR_FOLLOWER = (
        6,
        "the broker is not the partition's leader, nor a replica that may answer",
        _REFRESH,
    )
    REQUEST_TIMED_OUT = 7, "the broker did not finish in the time that the request allows", _RETRY
    BROKER_NOT_AVAILABLE = 8, "the broker is not available"
    REPLICA_NOT_AVAILABLE = 9, "the replica is not available", _REFRESH
    MESSAGE_TOO_LARGE = 10, "a batch is larger than the topic or broker allows (max.message.bytes)"
    STALE_CONTROLLER_EPOCH = 11, "the controller has moved to another broker"
    OFFSET_METADATA_TOO_LARGE = 12, "the metadata of a committed offset is too long"
    NETWORK_EXCEPTION = 13, "the broker disconnected before it answered", _REFRESH
    COORDINATOR_LOAD_IN_PROGRESS = (
        14,
        "the group or transaction coordinator is still loading its state",
        _RETRY,
    )
    COORDINATOR_NOT_AVAILABLE = 15, "the coordinator is not available", _REFRESH
    NOT_COORDINATOR = 16, "the broker is not the coordinator of this group or transactional id", _REFRESH
    INVALID_TOPIC_EXCEPTION = 17, "the topic's name is not valid, or the topic is internal"
    RECORD_LIST_TOO_LARGE = 18, "a batch is larger than a segment of the log"
    NOT_ENOUGH_REPLICAS = (
        19,
        "fewer replicas are in sync than min.insync.replicas asks for; nothing was written",
        _RETRY,
    )
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        "written, but fewer replicas are in sync than min.insync.replicas asks for",
        _RETRY,
    )
    INVALID_REQUIRED_ACKS = 21, "acks must be -1, 0 or 1"
    ILLEGAL_GENERATION = 22, "the generation is not the group's current one"
    INCONSISTENT_GROUP_PROTOCOL = 23, "the member's protocol type or protocols do not fit the group's"
    INVALID_GROUP_ID = 24, "the group id is not valid"
    UNKNOWN_MEMBER_ID = 25, "the coordinator does not know this member"
    INVALID_SESSION_TIMEOUT = 26, "the session timeout is outside what the broker allows"
    REBALANCE_IN_PROGRESS = 27, "the group is rebalancing: join again"
    INVALID_COMMIT_OFFSET_SIZE = 28, "the offsets to commit are too large"
    TOPIC_AUTHORIZATION_FAILED = 29, "not authorized for the topic"
    GROUP_AUTHORIZATION_FAILED = 30, "not authorized for the group"
    CLUSTER_AUTHORIZATION_FAILED = 31, "not authorized for the cluster"
    INVALID_TIMESTAMP = 32, "a record's timestamp is outside what the topic allows"
    UNSUPPORTED_SASL_MECHANISM = 33, "the broker does not offer this SASL mechanism"
    ILLEGAL_SASL_STATE = 34, "the request does not fit the state of the SASL exchange"
    UNSUPPORTED_VERSION = 35, "the broker does not support this version of the request"
    TOPIC_ALREADY_EXISTS = 36, "the topic exists already"
    INVALID_PARTITIONS = 37, "the number of partitions is not valid"
    INVALID_REPLICATION_FACTOR = 38, "the replication factor is below 1 or above the number of brokers"
    INVALID_REPLICA_ASSIGNMENT = 39, "the replica assignment is not valid"
    INVALID_CONFIG = 40, "a configuration value is not valid"
    NOT_CONTROLLER = 41, "the broker is not the controller", _RETRY
    INVALID_REQUEST = 42, "the request is malformed or contradicts itself"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "the log's message format does not support the request"
    POLICY_VIOLATION = 44, "the broker's policy forbids the request"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "a batch's sequence number does not follow the one before"
    DUPLICATE_SEQUENCE_NUMBER = 46, "a batch with this sequence number was written before"
    INVALID_PRODUCER_EPOCH = 47, "a newer producer has the same id: this one's epoch is old"
    INVALID_TXN_STATE = 48, "the transaction is not in a state for this operation"
    INVALID_PRODUCER_ID_MAPPING = 49, "the producer id does not belong to the transactional id"
    INVALID_TRANSACTION_TIMEOUT = 50, "the transaction timeout is longer than the broker allows"
    CONCURRENT_TRANSACTIONS = 51, "another operation of the same transaction is still going on", _RETRY
    TRANSACTION_COORDINATOR_FENCED = (
        52,
        "the marker was sent by a transaction coordinator that is no longer the current one",
    )
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "not authorized for the transactional id"
    SECURITY_DISABLED = 54, "security features are disabled"
    OPERATION_NOT_ATTEMPTED = (
        55,
        "the broker did not try this operation, because others in the request failed",
    )
    KAFKA_STORAGE_ERROR = 56, "the broker's disk failed", _REFRESH
    LOG_DIR_NOT_FOUND = 57, "the log directory does not exist on the broker"
    SASL_AUTHENTICATION_FAILED = 58, "SASL authentication failed"
    UNKNOWN_PRODUCER_ID = (
        59,
        "the broker has no state of this producer id, for instance because its records have expired",
    )
    REASSIGNMENT_IN_PROGRESS = 60, "a reassignment of the partition is in progress"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "delegation tokens are disabled"
    DELEGATION_TOKEN_NOT_FOUND = 62, "the delegation token does not exist"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "the principal is neither owner nor renewer of the token"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, "delegation tokens are not given out on a connection like this"
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "not authorized for the delegation token"
    DELEGATION_TOKEN_EXPIRED = 66, "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, "the principal's type is not supported"
    NON_EMPTY_GROUP = 68, "the group has members"
    GROUP_ID_NOT_FOUND = 69, "the group does not exist"
    FETCH_SESSION_ID_NOT_FOUND = 70, "the broker does not know this fetch session", _RETRY
    INVALID_FETCH_SESSION_EPOCH = 71, "the fetch session's epoch is not the expected one", _RETRY
    LISTENER_NOT_FOUND = 72, "the leader has no listener like the one that was asked", _REFRESH
    TOPIC_DELETION_DISABLED = 73, "deletion of topics is disabled"
    FENCED_LEADER_EPOCH = 74, "the leader epoch in the request is older than the broker's", _REFRESH
    UNKNOWN_LEADER_EPOCH = 75, "the leader epoch in the request is newer than the broker's", _RETRY
    UNSUPPORTED_COMPRESSION_TYPE = 76, "the partition's compression codec cannot be sent to this client"
    STALE_BROKER_EPOCH = 77, "the broker was restarted: its epoch is old"
    OFFSET_NOT_AVAILABLE = 78, "the new leader does not know yet up to where offsets are safe", _RETRY
    MEMBER_ID_REQUIRED = 79, "join again with the member id in the answer"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "the preferred leader is not available", _REFRESH
    GROUP_MAX_SIZE_REACHED = 81, "the group has as many members as the broker allows"
    FENCED_INSTANCE_ID = 82, "another member with the same group.instance.id has taken over"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "no eligible leader is available", _REFRESH
    ELECTION_NOT_NEEDED = 84, "the partition has the leader it should have", _REFRESH
    NO_REASSIGNMENT_IN_PROGRESS = 85, "no reassignment is in progress"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "the group is subscribed to the topic"
    INVALID_RECORD = 87, "the broker refuses a record of the batch"
    UNSTABLE_OFFSET_COMMIT = 88, "offsets of an open transaction are pending", _RETRY
    THROTTLING_QUOTA_EXCEEDED = 89, "a quota is exceeded", _RETRY
    PRODUCER_FENCED = 90, "a newer producer has the same transactional id"
    RESOURCE_NOT_FOUND = 91, "the request refers to something that does not exist"
    DUPLICATE_RESOURCE = 92, "the request refers to the same thing twice"
    UNACCEPTABLE_CREDENTIAL = 93, "the credential is not acceptable"
    INCONSISTENT_VOTER_SET = 94, "sender or receiver is not one of the expected voters"
    INVALID_UPDATE_VERSION = 95, "the update version is not valid"
    FEATURE_UPDATE_FAILED = 96, "the finalized features could not be updated"
    PRINCIPAL_DESERIALIZATION_FAILURE = (
        97,
        "a forwarded principal could not be read: the brokers' security is misconfigured",
    )
    SNAPSHOT_NOT_FOUND = 98, "the snapshot does not exist"
    POSITION_OUT_OF_RANGE = 99, "the position is outside the snapshot"
    UNKNOWN_TOPIC_ID = 100, "the broker does not host a topic of this id", _REFRESH
    DUPLICATE_BROKER_REGISTRATION = 101, "the broker id is in use"
    BROKER_ID_NOT_REGISTERED = 102, "the broker id is not registered"
    INCONSISTENT_TOPIC_ID = 103, "the log has another topic id than the request", _REFRESH
    INCONSISTENT_CLUSTER_ID = 104, "the cluster has another id than the request"
    TRANSACTIONAL_ID_NOT_FOUND = 105, "the transactional id does not exist"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "the fetch session mixes topic ids inconsistently", _RETRY
    INELIGIBLE_REPLICA = 107, "the new in-sync replicas contain one that may not be there"
    NEW_LEADER_ELECTED = 108, "done, but the partition has a new leader"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "the offset has moved to tiered storage"
    FENCED_MEMBER_EPOCH = 110, "the member's epoch is fenced: give up all partitions and join again"
    UNRELEASED_INSTANCE_ID = 111, "another member still uses the instance id"
    UNSUPPORTED_ASSIGNOR = 112, "the group does not support the assignor or its version"
    STALE_MEMBER_EPOCH = 113, "the member's epoch is old: try again after the next heartbeat"
    MISMATCHED_ENDPOINT_TYPE = 114, "the endpoint is of another type than the request is for"
    UNSUPPORTED_ENDPOINT_TYPE = 115, "endpoints of this type are not supported yet"
    UNKNOWN_CONTROLLER_ID = 116, "the controller id is not known"
    UNKNOWN_SUBSCRIPTION_ID = 117, "the telemetry subscription is unknown or out of date"
    TELEMETRY_TOO_LARGE = 118, "the telemetry is larger than the broker accepts"
    INVALID_REGISTRATION = 119, "the controller does not accept the broker's registration"
    TRANSACTION_ABORTABLE = 120, "the transaction failed; it can be aborted and the transactional id used on"
    INVALID_RECORD_STATE = 121, "the record is in no state for this acknowledgement"
    SHARE_SESSION_NOT_FOUND = 122, "the broker does not know this share session", _RETRY
    INVALID_SHARE_SESSION_EPOCH = 123, "the share session's epoch is not the expected one", _RETRY
    FENCED_STATE_EPOCH = 124, "the share group's state epoch does not match"
    INVALID_VOTER_KEY = 125, "the voter's key is not the replica's"
    DUPLICATE_VOTER = 126, "the voter is in the set already"
    VOTER_NOT_FOUND = 127, "the voter is not in the set"
    INVALID_REGULAR_EXPRESSION = 128, "the regular expression is not valid"
    REBOOTSTRAP_REQUIRED = 129, "the client's metadata is stale: bootstrap again"
    STREAMS_INVALID_TOPOLOGY = 130, "the topology is not valid"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "the topology's epoch is not valid"
    STREAMS_TOPOLOGY_FENCED = 132, "the topology's epoch is out of date"
    SHARE_SESSION_LIMIT_REACHED = 133, "the broker has as many share sessions as it allows", _RETRY
    NOT_LEADER_FOR_PARTITION = 6  # its name before Kafka 2.6, and in libkafka


def lookup(code: int) -> ErrorCode:
    """Return the error of a code. An unknown code, of a later Kafka, is UNKNOWN_SERVER_ERROR, as in Java's client."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def describe(code: int) -> str:
    """Describe a code: ``NOT_CONTROLLER (41): the broker is not the controller``. An unknown code keeps its number."""
    if code not in ErrorCode.__members__.values():
        return f"unknown error code {code}"
    error = ErrorCode(code)
    return f"{error.name} ({code}): {error.message}"


class KafkaError(WireError):
    """An error code that a broker answered, with the broker's own text in ``broker_message``."""

    def __init__(self, code: int, message: str | None = None) -> None:
        super().__init__(describe(code) + (f": {message}" if message else ""))
        self.code = code
        self.error = lookup(code)
        self.broker_message = message

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.code, self.broker_message)


def check(code: int, message: str | None = None) -> None:
    """Raise KafkaError unless the code is 0.

    Args:
        code: of a response.
        message: the broker's own words; None: it sent none.
    """
    if code:
        raise KafkaError(code, message)
