"""Clients that consume over gRPC or REST, one message in a request, and acknowledge, mostly as they should.

Each is bound to one daemon, so a partition's owner always has clients that wait. Some acknowledge with the
next request, some messages not at all, some twice, and some offsets that nobody has.
"""

from __future__ import annotations

import asyncio
import base64
import random
import time
from dataclasses import dataclass
from typing import Any

import grpc
import msgspec

from pixy.proto import kafkapixy_pb2 as pb
from tests.chaos.kit.clients import DEADLINE, PAUSE, Clients
from tests.chaos.kit.plan import DAEMONS, Group, Topic

FAR = 1_000_000_000
"""Added to an offset, it is one that nobody was offered."""
REFUSED = frozenset(
    {
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)
"""Statuses that only the daemon itself answers with: nothing was delivered."""


@dataclass(frozen=True, slots=True)
class Received:
    """A message that a client got."""

    partition: int
    offset: int
    name: str


@dataclass(frozen=True, slots=True)
class Nothing:
    """A request that brought no message.

    Attributes:
        result: ``empty`` (the long poll timed out), ``refused`` or ``unknown``.
        text: what was answered.
    """

    result: str
    text: str


def name_of(value: bytes, headers: Any) -> str:
    """Return the id of a message: its header ``id`` if it has one, else the beginning of its value.

    Args:
        value: of the message.
        headers: pairs of a name and bytes.
    """
    for key, content in headers:
        if key == "id":
            return (content or b"").decode()
    return value.split(b"|", 1)[0].decode(errors="replace")


class GrpcReader:
    """Requests over gRPC to one daemon."""

    def __init__(self, clients: Clients, topic: str, group: str, daemon: int) -> None:
        self._stub = clients.stub(daemon)
        self._topic, self._group = topic, group

    async def consume(self, ack: tuple[int, int] | None, auto: bool) -> Received | Nothing:
        """Consume a message.

        Args:
            ack: partition and offset of an earlier one to acknowledge with the request; None: none.
            auto: acknowledge this one when it is answered.
        """
        request = pb.ConsNAckRq(
            topic=self._topic, group=self._group, auto_ack=auto, no_ack=ack is None and not auto
        )
        if ack is not None:
            request.ack_partition, request.ack_offset = ack
        try:
            answer = await self._stub.ConsumeNAck(request, timeout=DEADLINE)
        except grpc.RpcError as error:
            return self._nothing(error)
        name = name_of(answer.message, ((header.key, header.value) for header in answer.headers))
        return Received(answer.partition, answer.offset, name)

    @staticmethod
    def _nothing(error: Any) -> Nothing:
        text = str(error.details())
        if text == "long polling timeout":
            return Nothing("empty", text)
        return Nothing("refused" if error.code() in REFUSED else "unknown", f"{error.code().name}: {text}")

    async def ack(self, partition: int, offset: int) -> Nothing | None:
        """Acknowledge a message; return None if it was accepted."""
        request = pb.AckRq(topic=self._topic, group=self._group, partition=partition, offset=offset)
        try:
            await self._stub.Ack(request, timeout=DEADLINE)
        except grpc.RpcError as error:
            return self._nothing(error)
        return None


class RestReader:
    """Requests over REST to one daemon."""

    def __init__(self, clients: Clients, topic: str, group: str, daemon: int) -> None:
        self._clients = clients
        self._messages = clients.url(daemon, f"/topics/{topic}/messages?group={group}")
        self._acks = clients.url(daemon, f"/topics/{topic}/acks?group={group}")

    async def consume(self, ack: tuple[int, int] | None, auto: bool) -> Received | Nothing:
        """See :meth:`GrpcReader.consume`."""
        if ack is not None:
            query = f"&ackPartition={ack[0]}&ackOffset={ack[1]}"
        else:
            query = "" if auto else "&noAck"
        status, body = await self._clients.call("GET", self._messages + query)
        if status != 200:
            return self._nothing(status, body)
        found = msgspec.json.decode(body)
        value = base64.b64decode(found["value"] or "")
        headers = ((each["key"], base64.b64decode(each["value"] or "")) for each in found["headers"])
        return Received(found["partition"], found["offset"], name_of(value, headers))

    @staticmethod
    def _nothing(status: int, body: bytes) -> Nothing:
        text = body.decode(errors="replace")
        if "long polling timeout" in text:
            return Nothing("empty", "")
        return Nothing("unknown" if status == 0 else "refused", f"{status}: {text}")

    async def ack(self, partition: int, offset: int) -> Nothing | None:
        """See :meth:`GrpcReader.ack`."""
        status, body = await self._clients.call("POST", f"{self._acks}&partition={partition}&offset={offset}")
        return None if status == 200 else self._nothing(status, body)


class Reader:
    """One client of a group, bound to one daemon."""

    def __init__(self, clients: Clients, topic: Topic, group: Group, daemon: int, number: int) -> None:
        self._clients = clients
        self._daemon = daemon
        self._about = {"group": group.name, "topic": topic.name, "d": daemon}
        self._name = f"{group.name}-{daemon}{number}"
        self._auto = group.mode == "auto"
        self._group = group.name
        api = GrpcReader if group.api == "grpc" else RestReader
        self._api = api(clients, topic.name, group.name, daemon)
        self._rng: random.Random = clients.rng(self._name)
        self._ack_next: tuple[int, int] | None = None

    async def run(self) -> None:
        """Consume until told to stop."""
        while self._clients.consuming:
            if self._group in self._clients.paused:
                await asyncio.sleep(PAUSE)
                continue
            ack, self._ack_next = self._ack_next, None
            t0 = time.time()
            found = await self._api.consume(ack, self._auto)
            t1 = time.time()
            if ack is not None:
                self._note_ack(t0, t1, *ack, "sent" if isinstance(found, Received) else "unknown")
            if isinstance(found, Received):
                records = [[found.partition, found.offset, found.name]]
                self._clients.records.write(
                    "delivered", t0=t0, t1=t1, **self._about, reader=self._name, records=records
                )
                if not self._auto:
                    await self._acknowledge(found)
                continue
            self._clients.records.write(
                "polls", t0=t0, t1=t1, **self._about, result=found.result, text=found.text[:200]
            )
            if found.result != "empty":
                await asyncio.sleep(PAUSE)

    async def _acknowledge(self, found: Received) -> None:
        whim = self._rng.random()
        if whim < 0.004:
            return  # never
        if whim < 0.006:
            await self._send_ack(found.partition, found.offset + FAR)
        if whim < 0.3:
            self._ack_next = (found.partition, found.offset)
            return
        await self._send_ack(found.partition, found.offset)
        if whim < 0.31:
            await self._send_ack(found.partition, found.offset)

    async def _send_ack(self, partition: int, offset: int) -> None:
        t0 = time.time()
        refusal = await self._api.ack(partition, offset)
        result = "ok" if refusal is None else "unknown" if refusal.result == "unknown" else "refused"
        self._note_ack(t0, time.time(), partition, offset, result, "" if refusal is None else refusal.text)

    def _note_ack(
        self, t0: float, t1: float, partition: int, offset: int, result: str, text: str = ""
    ) -> None:
        about = {**self._about, "partition": partition, "offset": offset, "result": result}
        self._clients.records.write("acks", t0=t0, t1=t1, **about, **({"text": text[:200]} if text else {}))


def start(clients: Clients, topic: Topic, group: Group) -> None:
    """Start the clients of a group, so many for each daemon."""
    for daemon in range(1, DAEMONS + 1):
        for number in range(group.readers):
            clients.run(Reader(clients, topic, group, daemon, number).run())


__all__ = ["Nothing", "Received", "name_of", "start"]
