"""gRPC's health checks (grpc.health.v1): ``Check`` and ``Watch``.

grpc_health's own servicer writes to a watcher while it holds the lock of all of them: one who takes no answers stops the
others, and the change of the status itself.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2 as pb

from pixy.api.grpc.gate import Gate

NAME = "grpc.health.v1.Health"


class Health:
    """The status of services.

    Args:
        services: their names; all are SERVING at first.
    """

    def __init__(self, services: tuple[str, ...]) -> None:
        self._services = services
        self._status = pb.HealthCheckResponse.SERVING
        self._changed = asyncio.Event()

    def drain(self) -> None:
        """Report NOT_SERVING for all services from now on."""
        self._status = pb.HealthCheckResponse.NOT_SERVING
        self._changed.set()

    def handlers(self, gate: Gate) -> Any:
        """Return the handlers of the service."""
        methods = {
            "Check": gate.unary(self._check, public=True),
            "Watch": gate.server_stream(self._watch),
        }
        return grpc.method_handlers_generic_handler(NAME, methods)

    async def _check(self, raw: bytes, context: Any, _caller: str) -> bytes:
        if (await _wanted(raw, context)) not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        return pb.HealthCheckResponse(status=self._status).SerializeToString()  # type: ignore[no-any-return]

    async def _watch(self, raw: bytes, context: Any) -> None:
        known = (await _wanted(raw, context)) in self._services
        if known:
            told = self._status
            await context.write(pb.HealthCheckResponse(status=told))
            await self._changed.wait()  # or it has changed during the write
            if self._status != told:
                await context.write(pb.HealthCheckResponse(status=self._status))
        else:
            await context.write(pb.HealthCheckResponse(status=pb.HealthCheckResponse.SERVICE_UNKNOWN))
        await asyncio.get_running_loop().create_future()  # until the client or the server ends the call


async def _wanted(raw: bytes, context: Any) -> str:
    try:
        return pb.HealthCheckRequest.FromString(raw).service  # type: ignore[no-any-return]
    except DecodeError:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "malformed request: not a HealthCheckRequest")
        raise


__all__ = ["NAME", "Health"]
