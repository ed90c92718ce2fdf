"""Clients of the demo: one message a request, as a service sends and consumes them.

Producing is asynchronous REST over a few connections with several requests in flight on each (HTTP/1.1
pipelining): the client costs a tenth of the proxy, so the rate is the proxy's. Consuming is gRPC: each call
acknowledges the previous message and takes the next.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import grpc
import xxhash

from pixy.proto import kafkapixy_pb2 as pb
from pixy.proto.kafkapixy_pb2_grpc import KafkaPixyStub

CONNECTIONS, IN_FLIGHT = 8, 64
CONSUMERS = 16
CUSTOMERS = 1000
MASK = (1 << 64) - 1
_TRIES = 200
_PAUSE = 0.05

Message = tuple[bytes, bytes]
"""Key and value."""


@dataclass(slots=True)
class Tally:
    """Number of messages, and a sum of their hashes that does not depend on the order."""

    count: int = 0
    checksum: int = 0

    def add(self, key: bytes | None, value: bytes | None) -> None:
        """Count a message."""
        self.count += 1
        self.checksum = (self.checksum + xxhash.xxh64_intdigest((key or b"") + b"\0" + (value or b""))) & MASK


def message(number: int) -> Message:
    """Make the order of one of a thousand customers; the same number makes the same message."""
    value = {"order": number, "amount": number * 7919 % 100_000 / 100, "item": f"No. {number * 31 % 5003}"}
    return b"customer-%d" % (number * 2_654_435_761 % CUSTOMERS), json.dumps(value).encode()


async def produce(port: int, topic: str, count: int, on_progress: Callable[[int], None]) -> Tally:
    """Send messages to the proxy.

    Args:
        port: the proxy's REST port.
        topic: topic to produce to.
        count: number of messages.
        on_progress: called with the number of messages sent.

    Returns:
        The tally of all messages.

    Raises:
        RuntimeError: the proxy refused a message.
    """
    numbers, sent = iter(range(count)), Tally()
    await asyncio.gather(*(_sender(port, topic, numbers, sent, on_progress) for _ in range(CONNECTIONS)))
    return sent


async def _sender(
    port: int, topic: str, numbers: Iterator[int], sent: Tally, on_progress: Callable[[int], None]
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while batch := [message(number) for number in islice(numbers, IN_FLIGHT)]:
            for each in batch:
                sent.add(*each)
            for _ in range(_TRIES):
                batch = await _send(reader, writer, topic, batch)
                if not batch:
                    break
                await asyncio.sleep(_PAUSE)  # 429: a bounded queue is full, the message was not accepted
            else:
                raise RuntimeError(f"the proxy was too busy for {_TRIES * _PAUSE:.0f} s")
            on_progress(sent.count)
    finally:
        writer.close()


async def _send(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, topic: str, batch: list[Message]
) -> list[Message]:
    """Send the messages and read the answers; return the messages that the proxy had no room for."""
    writer.write(
        b"".join(
            [
                b"POST /topics/%b/messages?key=%b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%b" % (topic.encode(), key, len(value), value)
                for key, value in batch
            ]
        )
    )
    refused = []
    for each in batch:
        head = await reader.readuntil(b"\r\n\r\n")
        lower = head.lower()
        at = lower.index(b"content-length:") + len(b"content-length:")
        body = await reader.readexactly(int(lower[at : lower.index(b"\r", at)]))
        status = head[9:12]
        if status == b"429":
            refused.append(each)
        elif status != b"200":
            raise RuntimeError(f"the proxy answered {status.decode()}: {body.decode()}")
    return refused


async def consume(port: int, topic: str, group: str, count: int, on_progress: Callable[[int], None]) -> int:
    """Consume messages as a group and acknowledge each.

    Args:
        port: the proxy's gRPC port.
        topic: topic to consume.
        group: the group.
        count: number of messages.
        on_progress: called with the number of messages consumed.

    Returns:
        The number of messages consumed.
    """
    taken = left = 0
    left = count

    async def worker(stub: KafkaPixyStub) -> None:
        nonlocal taken, left
        last: pb.ConsRs | None = None
        while left > 0:
            left -= 1
            request = pb.ConsNAckRq(topic=topic, group=group, no_ack=last is None)
            if last is not None:
                request.ack_partition, request.ack_offset = last.partition, last.offset
            try:
                last = await stub.ConsumeNAck(request)
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.NOT_FOUND:
                    raise
                last, left = None, left + 1  # no message came within the long poll; the ack was accepted
                continue
            taken += 1
            on_progress(taken)
        if last is not None:
            await stub.Ack(pb.AckRq(topic=topic, group=group, partition=last.partition, offset=last.offset))

    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await asyncio.gather(*(worker(KafkaPixyStub(channel)) for _ in range(CONSUMERS)))
    return taken
