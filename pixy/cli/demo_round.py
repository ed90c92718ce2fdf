"""The round of ``make demo``: the sandbox, and both APIs on screen."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Any

import aiohttp
import grpc

from pixy.cli.serve import listeners
from pixy.config import App, Kafka, Proxy
from pixy.engine.engine import Engine, StopResult
from pixy.kafka.sandbox import Sandbox
from pixy.proto import kafkapixy_pb2 as pb
from pixy.proto.kafkapixy_pb2_grpc import KafkaPixyStub

TOPIC, GROUP = "demo", "demo-group"
EXIT_INTERRUPTED = 130


def _say(text: str) -> None:
    print(text, flush=True)


async def _rest(base: str) -> None:
    async with aiohttp.ClientSession() as http:

        async def call(method: str, path: str, **options: Any) -> Any:
            async with http.request(method, base + path, **options) as answer:
                body = json.loads(await answer.read())
                _say(f"  {method} {path}  ->  {answer.status} {json.dumps(body)}")
                answer.raise_for_status()
                return body

        _say("\nREST")
        produced = await call(
            "POST",
            f"/topics/{TOPIC}/messages?sync&key=1",
            data="Good news everyone!",
            headers={"Content-Type": "text/plain"},
        )
        message = await call("GET", f"/topics/{TOPIC}/messages?group={GROUP}&noAck")
        if (message["partition"], message["offset"]) != (produced["partition"], produced["offset"]):
            raise RuntimeError("consumed another message than was produced")
        await call(
            "POST",
            f"/topics/{TOPIC}/acks?group={GROUP}&partition={message['partition']}&offset={message['offset']}",
        )
        await asyncio.sleep(0.7)  # offsets are committed every 500 ms
        await call("GET", f"/topics/{TOPIC}/offsets?group={GROUP}")


async def _grpc(address: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = KafkaPixyStub(channel)  # type: ignore[no-untyped-call]
        _say("\ngRPC")
        written = await stub.Produce(pb.ProdRq(topic=TOPIC, key_value=b"1", message=b"To shreds, you say?"))
        _say(f"  Produce      ->  partition {written.partition}, offset {written.offset}")
        message = await stub.ConsumeNAck(pb.ConsNAckRq(topic=TOPIC, group=GROUP, no_ack=True))
        _say(f"  ConsumeNAck  ->  {message.message.decode()!r} at offset {message.offset}")
        if message.offset != written.offset:
            raise RuntimeError("consumed another message than was produced")
        await stub.Ack(pb.AckRq(topic=TOPIC, group=GROUP, partition=message.partition, offset=message.offset))
        _say("  Ack          ->  ok")
        await asyncio.sleep(0.7)
        answer = await stub.GetOffsets(pb.GetOffsetsRq(topic=TOPIC, group=GROUP))
        for po in answer.offsets:
            _say(f"  GetOffsets   ->  partition {po.partition}: offset {po.offset}, lag {po.lag}")
            if po.lag:
                raise RuntimeError(f"partition {po.partition} lags by {po.lag}")


async def _round(engine: Engine) -> None:
    await engine.start(listeners(engine, engine.config))
    _say("Kafka-Pixy on its in-memory sandbox:")
    for name, address in engine.addresses.items():
        _say(f"  {name:<5} {address}")
    _say("(the first consume joins the group, which takes about 3 seconds here)")
    await _rest(f"http://{engine.addresses['rest']}")
    await _grpc(engine.addresses["grpc"])


async def run() -> bool:
    """Start the sandbox, show the round, stop; return False if Ctrl-C has cut it short. Raises whatever goes wrong.

    Ctrl-C ends the round, but not the stop, which would then leave tasks behind that Python reports. A second one ends
    the process at once.
    """
    interrupted = asyncio.Event()

    def interrupt() -> None:
        if interrupted.is_set():
            os._exit(EXIT_INTERRUPTED)
        interrupted.set()

    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupt)
    sandbox = Sandbox()
    app = App(grpc_addr="127.0.0.1:0", tcp_addr="127.0.0.1:0")
    app.proxies["default"] = Proxy(kafka=Kafka(seed_peers=sandbox.seed_peers))
    app.proxies["default"].consumer.initial_offset = "oldest"
    engine = Engine(app)
    shown, ended = asyncio.create_task(_round(engine)), asyncio.create_task(interrupted.wait())
    await asyncio.wait((shown, ended), return_when=asyncio.FIRST_COMPLETED)
    for task in (shown, ended):
        task.cancel()
    await asyncio.gather(shown, ended, return_exceptions=True)
    result = await engine.stop() if engine.addresses else StopResult()
    if interrupted.is_set():
        return False
    shown.result()
    if not result.clean:
        raise RuntimeError(f"not drained: {result}")
    _say("\nDone: two messages produced, consumed, acknowledged and committed.")
    return True


__all__ = ["run"]
