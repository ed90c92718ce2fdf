"""An asyncio gRPC client: many concurrent calls over one connection. Start a daemon first: make run"""

import asyncio
import os
import sys

import grpc

from pixy.proto import kafkapixy_pb2 as pb
from pixy.proto.kafkapixy_pb2_grpc import KafkaPixyStub

TOPIC = os.environ.get("TOPIC", "foo")
COUNT = 100


async def consume(stub: KafkaPixyStub) -> pb.ConsRs | None:
    try:
        return await stub.ConsumeNAck(pb.ConsNAckRq(topic=TOPIC, group="asyncio", auto_ack=True))
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.NOT_FOUND:
            return None  # no message within the long poll
        raise


async def main() -> None:
    async with grpc.aio.insecure_channel(os.environ.get("GRPC", "localhost:19091")) as channel:
        stub = KafkaPixyStub(channel)
        await consume(stub)  # join first: a new group begins at the end of the topic
        await asyncio.gather(
            *[
                stub.Produce(
                    pb.ProdRq(topic=TOPIC, key_value=b"%d" % n, message=b"Good news everyone! %d" % n)
                )
                for n in range(COUNT)
            ]
        )
        seen = set()
        while len(seen) < COUNT:
            for message in await asyncio.gather(*[consume(stub) for _ in range(16)]):
                if message is not None:
                    seen.add(message.message)
        print(f"{len(seen)} messages; the first by value: {min(seen).decode()}")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except grpc.aio.AioRpcError as error:
        sys.exit(f"{error.code().name}: {error.details()} (start a daemon first: make run)")
