"""A blocking gRPC client. Start a daemon first: make run

Outside this repository, generate the stubs from kafkapixy.proto:
python -m grpc_tools.protoc -I. --python_out=. --grpc_python_out=. kafkapixy.proto
"""

import os
import sys

import grpc

from pixy.proto import kafkapixy_pb2 as pb
from pixy.proto.kafkapixy_pb2_grpc import KafkaPixyStub

TOPIC = os.environ.get("TOPIC", "foo")


def main() -> None:
    with grpc.insecure_channel(os.environ.get("GRPC", "localhost:19091")) as channel:
        stub = KafkaPixyStub(channel)
        join(stub)
        written = stub.Produce(pb.ProdRq(topic=TOPIC, key_undefined=True, message=b"Good news everyone!"))
        print(f"written to partition {written.partition} at offset {written.offset}")
        message = stub.ConsumeNAck(pb.ConsNAckRq(topic=TOPIC, group="sync", no_ack=True))
        print(f"consumed: {message.message.decode()}")
        stub.Ack(pb.AckRq(topic=TOPIC, group="sync", partition=message.partition, offset=message.offset))


def join(stub: KafkaPixyStub) -> None:
    """Join the group before producing: a new group sees only messages produced after it has joined."""
    try:
        stub.ConsumeNAck(pb.ConsNAckRq(topic=TOPIC, group="sync", auto_ack=True))
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.NOT_FOUND:  # no message within the long poll
            raise


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except grpc.RpcError as error:
        sys.exit(f"{error.code().name}: {error.details()} (start a daemon first: make run)")
