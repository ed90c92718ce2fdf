"""Run the engine inside your own asyncio service: no sockets, the same delivery semantics.

Set KAFKA to a broker's address; without it the example uses the in-memory sandbox.
"""

import asyncio
import logging
import os
import sys

from pixy.config import App, Kafka, Proxy
from pixy.engine.engine import Engine
from pixy.errors import PixyError
from pixy.kafka.sandbox import Sandbox

TOPIC = os.environ.get("TOPIC", "foo")


async def main() -> None:
    sandbox = None if "KAFKA" in os.environ else Sandbox()
    peers = sandbox.seed_peers if sandbox else [os.environ["KAFKA"]]
    proxy = Proxy(kafka=Kafka(seed_peers=peers))
    proxy.consumer.initial_offset = "oldest"
    async with Engine(App(proxies={"default": proxy})) as engine:
        cluster = engine.cluster()
        partition, offset = await cluster.produce(TOPIC, b"Good news everyone!", key=b"k")
        print(f"written to partition {partition} at offset {offset}")
        delivery = await cluster.consume(TOPIC, "embedded")
        delivery.sent()  # we have it; give_back() would offer it to another consumer
        print(f"consumed: {delivery.message.value().decode()}")
        await cluster.ack(TOPIC, "embedded", delivery.partition, delivery.offset)


if __name__ == "__main__":
    logging.disable()  # librdkafka logs every failed connection; StartError names the cause
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except PixyError as error:
        sys.exit(str(error))
