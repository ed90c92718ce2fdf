"""gRPC on grpc.aio."""
