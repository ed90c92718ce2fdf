"""Faults of topics and groups: trimmed, reset, transactions, refused batches; clients that vanish; rebalance storms."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import msgspec
from confluent_kafka import KafkaException

from pixy.proto import kafkapixy_pb2 as pb
from tests.chaos.kit import odd
from tests.chaos.kit.brokers import UNREACHABLE, Brokers
from tests.chaos.kit.clients import DEADLINE, Clients
from tests.chaos.kit.instances import V2
from tests.chaos.kit.plan import DAEMONS
from tests.chaos.kit.record import Recorder
from tests.chaos.kit.schedule import Planned

BURST = 100
"""Messages handed over at once: in one batch they are several times larger than the topic ``narrow`` takes."""
_ROUNDS, _ROUND = 100, 0.02
"""How often messages that Kafka refuses are handed over, and the seconds between."""
EMPTY_AFTER = 15.0
"""Seconds after which a group without clients has certainly left: ``subscription_timeout``, and its drain."""
EMPTY_WITHIN = 25.0
"""Seconds in which a group without clients must have left."""


class TopicFaults:
    """See :class:`tests.chaos.kit.faults.Faults`."""

    def __init__(self, brokers: Brokers, clients: Clients, records: Recorder) -> None:
        self._brokers = brokers
        self._clients = clients
        self._records = records
        self._zookeeper = clients.plan.membership == "zookeeper"

    async def delete_records(self, planned: Planned) -> str:
        """Delete records, some of which nobody has consumed yet."""
        bounds = await asyncio.to_thread(self._brokers.bounds, "trimmed")
        below = {
            partition: low + int((high - low) * (0.5 + planned.dice / 2))
            for partition, (low, high) in bounds.items()
        }
        self._records.event("records deleted", topic="trimmed", below=list(below.items()))
        await asyncio.to_thread(self._brokers.trim, "trimmed", below)
        return f"below {below}"

    async def reset_offsets(self, planned: Planned) -> str:
        """Set the offsets of a group back, or forward, from outside, while it has no clients."""
        self._clients.paused.add("g-reset")
        try:
            if self._zookeeper:
                await asyncio.sleep(EMPTY_AFTER)  # Kafka does not know the members
            async with asyncio.timeout(EMPTY_WITHIN):
                while await asyncio.to_thread(self._brokers.members, "g-reset"):
                    await asyncio.sleep(0.5)
            found = await asyncio.to_thread(self._brokers.committed, "g-reset", "reset")
            bounds = await asyncio.to_thread(self._brokers.bounds, "reset")
            step = int(planned.dice * 80) - 60
            wanted = {
                partition: min(max(offset + step, bounds[partition][0]), bounds[partition][1])
                for partition, offset in found.items()
            }
            moves = [[partition, found[partition], offset] for partition, offset in wanted.items()]
            t0 = time.time()
            if wanted:
                await asyncio.to_thread(self._brokers.set_committed, "g-reset", "reset", wanted)
            self._records.event("offsets reset", group="g-reset", topic="reset", t0=t0, moves=moves)
            return f"by {step}: {moves}"
        except (TimeoutError, *UNREACHABLE) as error:
            return f"missed: {error!r}"
        finally:
            self._clients.paused.discard("g-reset")

    async def clients_vanish(self, planned: Planned) -> str:
        """Make requests and drop them before their answers."""
        stub = self._clients.stub(planned.daemon)
        url = self._clients.url(planned.daemon, "/topics/single/messages?group=g-rest&noAck")

        async def over_grpc(seconds: float) -> None:
            request = pb.ConsNAckRq(topic="single", group="g-grpc", no_ack=True)
            call = stub.ConsumeNAck(request)
            try:
                await asyncio.wait_for(call, seconds)
            except (TimeoutError, grpc.RpcError):
                call.cancel()

        async def over_rest(seconds: float) -> None:
            try:
                await asyncio.wait_for(self._clients.call("GET", url), seconds)
            except TimeoutError:
                pass

        t0 = time.time()
        waits = [planned.dice * number / 100 for number in range(1, 21)]
        await asyncio.gather(*map(over_grpc, waits), *map(over_rest, waits))
        t1 = time.time()
        about: dict[str, Any] = {"topic": "single", "d": planned.daemon, "result": "unknown"}
        for group in ("g-grpc", "g-rest"):
            for _ in waits:
                self._records.write("polls", t0=t0, t1=t1, group=group, **about, text="the client vanished")
        return f"{2 * len(waits)} requests to d{planned.daemon}"

    async def full_batch(self, planned: Planned) -> str:
        """Hand a daemon so many messages at once that Kafka refuses their batches, though not the messages."""
        stub, taken = self._clients.stub(planned.daemon), 0
        noise = self._clients.rng("full-batch", planned.at)  # a batch counts as it is compressed

        async def hand_over(number: int) -> None:
            nonlocal taken
            name = f"full{planned.daemon}.{planned.at}.{number}"
            about = {"topic": "narrow", "d": planned.daemon, "ids": [name], "t0": time.time()}
            value = name.encode() + b"|" + noise.randbytes(80)
            request = pb.ProdRq(topic="narrow", message=value, key_undefined=True, async_mode=True)
            try:
                await stub.Produce(request, timeout=DEADLINE)
            except grpc.RpcError as error:
                self._records.write("unproduced", **about, t1=time.time(), error=error.code().name)
            else:
                taken += 1
                self._records.write("accepted", **about, t1=time.time())

        await asyncio.gather(*map(hand_over, range(BURST)))
        return f"{taken} messages to d{planned.daemon}"

    async def bad_records(self, planned: Planned) -> str:
        """Hand each daemon messages without a key, which Kafka refuses in a compacted topic, together with their batches.

        What is on its way to this topic meanwhile, with keys, must arrive.
        """
        stubs = [self._clients.stub(daemon) for daemon in range(1, DAEMONS + 1)]
        bad = pb.ProdRq(topic="compacted", message=b"no key", key_undefined=True, async_mode=True)
        taken = 0
        for _ in range(_ROUNDS):
            answers = await asyncio.gather(
                *(stub.Produce(bad, timeout=DEADLINE) for stub in stubs), return_exceptions=True
            )
            taken += sum(isinstance(each, pb.ProdRs) for each in answers)
            await asyncio.sleep(_ROUND)
        return f"{taken} messages without a key"

    async def open_transaction(self, planned: Planned) -> str:
        """Begin a transaction and never end it: until it times out, what comes after it cannot be read."""
        rng = self._clients.rng("open-transaction", planned.at)
        records = [odd.shape(rng, f"aborted.open.{planned.at}.{number}") for number in range(5)]
        try:
            settings = odd.settings(self._brokers.bootstrap)
            await asyncio.to_thread(odd.begin, settings, "odd", records)
        except KafkaException as error:
            return f"missed: {error}"
        return "of five records"

    async def rebalance_storm(self, planned: Planned) -> str:
        """Let members join two groups and leave them at once, over and over."""
        end = time.monotonic() + planned.seconds
        joins = 0
        while time.monotonic() < end:
            joins += 1
            for group, topic in (
                ("g-instances", "bulk"),
                *(() if self._zookeeper else (("g-grpc", "single"),)),
            ):
                name = f"storm-{planned.at}-{joins}"
                url = self._clients.url(1 + joins % 3, f"/consumers/{group}")
                options = {"name": name, "auto.commit.enable": "false"}
                await self._post(url, options)
                await self._post(f"{url}/instances/{name}/subscription", {"topics": [topic]})
                await asyncio.sleep(0.4)
                await self._clients.call("DELETE", f"{url}/instances/{name}")
        return f"{joins} joins"

    async def _post(self, url: str, document: Any) -> None:
        await self._clients.call(
            "POST", url, data=msgspec.json.encode(document), headers={"Content-Type": V2}
        )


__all__ = ["TopicFaults"]
