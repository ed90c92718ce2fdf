"""A worker with at-least-once processing: acknowledge a message only after its work is done.

Each call acknowledges the previous message and fetches the next one: one round trip per message. If the
worker dies before it acknowledges a message, the message is delivered again after consumer.ack_timeout, so
the work must tolerate being done twice. Start a daemon first: make run
"""

import os
import sys
import time

import grpc

from pixy.proto import kafkapixy_pb2 as pb
from pixy.proto.kafkapixy_pb2_grpc import KafkaPixyStub

TOPIC = os.environ.get("TOPIC", "foo")
GROUP = "workers"
UNTIL = int(os.environ.get("MESSAGES", "5"))
REMIND_AFTER = 30  # seconds


def work(value: bytes) -> None:
    print(f"done: {value.decode()}")


def run(stub: KafkaPixyStub) -> None:
    done = refused = 0
    last: pb.ConsRs | None = None
    produced = False
    while done < UNTIL:
        request = pb.ConsNAckRq(topic=TOPIC, group=GROUP, no_ack=last is None)
        if last is not None:
            request.ack_partition, request.ack_offset = last.partition, last.offset
        try:
            last = stub.ConsumeNAck(request)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:  # no message came; the ack was accepted
                last = None
                if not produced:  # give the example messages to work on
                    produced = True
                    for number in range(UNTIL):
                        text = f"Good news everyone! {number}"
                        stub.Produce(pb.ProdRq(topic=TOPIC, key_undefined=True, message=text.encode()))
                continue
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED):
                if refused % REMIND_AFTER == 0:  # at once, then every so often
                    print(f"waiting for the proxy: {error.details()}", file=sys.stderr)
                refused += 1
                time.sleep(1)
                continue
            raise
        refused = 0
        work(last.message)
        done += 1
    if last is not None:
        stub.Ack(pb.AckRq(topic=TOPIC, group=GROUP, partition=last.partition, offset=last.offset))


if __name__ == "__main__":
    try:
        with grpc.insecure_channel(os.environ.get("GRPC", "localhost:19091")) as channel:
            run(KafkaPixyStub(channel))
    except KeyboardInterrupt:
        sys.exit(130)
