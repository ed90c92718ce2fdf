"""The gRPC handlers without a transport, and the statuses of errors in both APIs."""

from __future__ import annotations

import grpc
import pytest

from pixy import errors
from pixy.api.grpc.server import status_of as grpc_status
from pixy.api.handlers import Handlers
from pixy.api.not_found import NotFound
from pixy.api.rest.responses import BodyTooLarge, status_of as http_status
from pixy.config import App
from pixy.engine.message_spans import MessageSpans
from pixy.proto import kafkapixy_pb2 as pb

CODE = grpc.StatusCode


class Message:
    """A consumed message; ``broken`` makes its value unreadable."""

    def __init__(self, broken: bool = False) -> None:
        self.broken = broken

    def key(self) -> bytes | None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000

    def value(self) -> bytes:
        if self.broken:
            raise RuntimeError("unreadable")
        return b"v"

    def headers(self) -> list[tuple[str, bytes | None]]:
        return [("h", None)]


class Delivery:
    partition, offset = 3, 7

    def __init__(self, message: Message) -> None:
        self.message = message
        self.returned = False

    def give_back(self) -> None:
        self.returned = True


class Cluster:
    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery
        self.asked: dict[str, object] = {}

    async def consume(self, topic: str, group: str, **asked: object) -> Delivery:
        self.asked = asked
        return self.delivery


class Engine:
    guard = None
    config = App()
    spans = MessageSpans()

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def cluster(self, _name: str) -> Cluster:
        return self._cluster


class Call:
    delivered: object = None

    def deliver(self, delivery: object) -> None:
        self.delivered = delivery


@pytest.mark.parametrize(
    ("fields", "auto_ack", "ack"),
    [
        ({}, False, (0, 0)),
        ({"ack_partition": 1, "ack_offset": 2}, False, (1, 2)),
        ({"auto_ack": True, "ack_partition": 1}, True, None),
        ({"no_ack": True, "auto_ack": True, "ack_offset": -1}, False, None),
    ],
)
async def test_ack_modes(fields: dict, auto_ack: bool, ack: object) -> None:
    delivery = Delivery(Message())
    cluster, call = Cluster(delivery), Call()
    rs = await Handlers(Engine(cluster)).consume_n_ack(pb.ConsNAckRq(**fields), call)
    assert cluster.asked == {"auto_ack": auto_ack, "ack": ack}
    assert call.delivered is delivery and not delivery.returned
    assert (rs.partition, rs.offset, rs.message, rs.key_undefined) == (3, 7, b"v", True)
    assert [(header.key, header.value) for header in rs.headers] == [("h", b"")]


async def test_a_message_that_can_not_be_rendered_is_given_back() -> None:
    delivery = Delivery(Message(broken=True))
    call = Call()
    with pytest.raises(RuntimeError):
        await Handlers(Engine(Cluster(delivery))).consume_n_ack(pb.ConsNAckRq(no_ack=True), call)
    assert delivery.returned and call.delivered is None


@pytest.mark.parametrize(
    ("error", "http", "code"),
    [
        (errors.InvalidParameter("x"), 400, CODE.INVALID_ARGUMENT),
        (errors.UnknownCluster("x"), 400, CODE.INVALID_ARGUMENT),
        (errors.HeadersUnsupported(), 400, CODE.INVALID_ARGUMENT),
        (errors.NeverOffered("t", 0, 1), 400, CODE.INVALID_ARGUMENT),
        (NotFound("x"), 400, CODE.NOT_FOUND),
        (BodyTooLarge(9, 1), 413, CODE.INVALID_ARGUMENT),
        (errors.LongPollTimeout(), 408, CODE.NOT_FOUND),
        (errors.TooManyRequests(), 429, CODE.RESOURCE_EXHAUSTED),
        (errors.ShuttingDown(), 503, CODE.UNAVAILABLE),
        (errors.Disabled(), 503, CODE.UNAVAILABLE),
        (errors.UnknownTopic("x", 3, "n"), 404, CODE.NOT_FOUND),
        (errors.GroupActive("g"), 409, CODE.FAILED_PRECONDITION),
        (errors.PartitionLost("g", "t", 0), 409, CODE.FAILED_PRECONDITION),
        (errors.NotConsumed("g", "t", 0), 409, CODE.FAILED_PRECONDITION),
        (errors.KafkaError("x", 10, "n"), 500, CODE.INTERNAL),
    ],
)
def test_statuses(error: Exception, http: int, code: grpc.StatusCode) -> None:
    assert (http_status(error), grpc_status(error)) == (http, code)
