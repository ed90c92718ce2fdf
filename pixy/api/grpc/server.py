"""Serve :mod:`pixy.api.handlers` over grpc.aio, with health checks and reflection."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Collection
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from pixy import errors
from pixy.api.edge import sockets
from pixy.api.edge.budget import Share
from pixy.api.edge.edge import Edge
from pixy.api.grpc.access import UnknownMethods, metered, recorded
from pixy.api.grpc.call import GrpcCall
from pixy.api.grpc.gate import WINDOW, Behaviour, Gate, Gated
from pixy.api.grpc.health import NAME as HEALTH, Health
from pixy.api.grpc.retiring import count_connections, stop_listening
from pixy.api.grpc.untaken import end_connections
from pixy.api.handlers import Handler, Handlers
from pixy.api.listener import Listener, split_address
from pixy.api.not_found import NotFound
from pixy.api.parts import LONG, check_records, parser
from pixy.api.tls import ServerTls
from pixy.auth.limits import whole_seconds
from pixy.config.model import App, Connections
from pixy.engine.engine import Engine
from pixy.proto import kafkapixy_pb2 as pb

logger = logging.getLogger("pixy.api")

SERVICE = "KafkaPixy"
MIN_RECEIVE = 1024 * 1024
_SLACK = 64 * 1024
_GRACE = 1.0
_LINGER = 5.0
"""Seconds that connections may take to end; the core waits for what it has sent, also where nobody takes it."""
_RETIRE_LOOK = 0.25
_PENDING = 4096
"""Calls that have not begun: as many as one connection may have by default."""
_LEAST_READS = 8
"""Messages that may be arriving at the same time, whatever ``max_buffered_bytes`` is."""
_SMALL = 1024
"""Bytes of a request or an answer that the byte budget does not count: so many of them hold little together."""
_RESULT = 128
"""Bytes of the answer to ProduceMany that are held for each record until there is one; a result with an error has about as many."""
_REFUSABLE = frozenset(
    {
        "ConsumeNAck",  # the message is offered again
        "DescribeGroup",
        "Fetch",
        "FindOffsets",
        "GetOffsets",
        "GetStatus",
        "GetTopicMetadata",
        "ListConsumers",
        "ListGroups",
        "ListTopics",
    }
)
"""Methods whose answer may be refused when ``max_buffered_bytes`` has no room for it: nothing is lost by that."""
_WRITTEN: Final = frozenset({"ConsumeNAck"})
"""Methods that have to know whether their answer was written: with auto-ack its message counts as consumed then."""
_unstoppable: list[Any] = []
"""Servers whose own tasks somebody has cancelled with all others (``asyncio.run`` does at its end).

grpc's core still has the address of the memory in which it would announce the next call, and grpc 1.85 has freed that
memory with the task. A stop, also the one that ``grpc.aio.Server.__del__`` begins, writes into it, whatever is there by
now: with actors that was a coroutine, and the interpreter crashed. Therefore such a server is never stopped or freed.
"""

# The first class that matches decides.
_STATUS: tuple[tuple[type[Exception], grpc.StatusCode], ...] = (
    (NotFound, grpc.StatusCode.NOT_FOUND),
    (errors.Unauthenticated, grpc.StatusCode.UNAUTHENTICATED),
    (errors.Forbidden, grpc.StatusCode.PERMISSION_DENIED),
    (errors.InvalidParameter, grpc.StatusCode.INVALID_ARGUMENT),
    (errors.LongPollTimeout, grpc.StatusCode.NOT_FOUND),
    (errors.UnknownTopic, grpc.StatusCode.NOT_FOUND),
    (errors.TooManyRequests, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.Unavailable, grpc.StatusCode.UNAVAILABLE),
    (errors.GroupActive, grpc.StatusCode.FAILED_PRECONDITION),
    (errors.NotHeld, grpc.StatusCode.FAILED_PRECONDITION),
    (errors.TopicExists, grpc.StatusCode.ALREADY_EXISTS),
    (errors.ChangesForbidden, grpc.StatusCode.PERMISSION_DENIED),
)


def status_of(error: Exception) -> grpc.StatusCode:
    """Return the gRPC status of an error."""
    for kind, status in _STATUS:
        if isinstance(error, kind):
            return status
    return grpc.StatusCode.INTERNAL


def _retry_after(error: Exception) -> tuple[tuple[str, str], ...]:
    """Return the trailing metadata that tells when to try again."""
    return (("retry-after", whole_seconds(error)),) if isinstance(error, errors.Limited) else ()


def _in_trace(handler: Handler, engine: Engine) -> Handler:
    """Wrap a handler so that it runs in its caller's trace (W3C trace context in the call's metadata)."""

    async def traced(request: Any, call: Any) -> Any:
        with engine.diagnostics.context(call.traceparent):
            return await handler(request, call)

    return functools.wraps(handler)(traced)


async def _take(share: Share, size: int, context: Any) -> None:
    """Hold bytes; abort the call if there is no room for them."""
    try:
        share.take(size)
    except errors.OverBudget as error:
        await context.abort(status_of(error), str(error))


def _bind(request_class: Any, handler: Handler, name: str, edge: Edge, *, writes: bool = False) -> Behaviour:
    """Make the behaviour of a method.

    Args:
        request_class: of its requests.
        handler: answers them.
        name: the method's.
        edge: counts bytes.
        writes: whether it writes the answer.
    """
    parse, steps, many = parser(request_class), edge.steps, name == "ProduceMany"
    yields, refusable = name == "ConsumeNAck", name in _REFUSABLE
    # A small ProduceMany may have a long answer, which cannot be refused any more.
    uncounted = 0 if many else _SMALL

    async def behaviour(raw: bytes, context: Any, caller: str) -> bytes:
        if len(raw) <= uncounted:
            call = GrpcCall(context, None, steps, caller)
            answer = await answered(raw, call, context, caller)
        else:
            with edge.budget.share(caller) as share:
                await _take(share, len(raw), context)
                call = GrpcCall(context, share, steps, caller)
                answer = await answered(raw, call, context, caller, share)
        if len(answer) > _SMALL:
            await keep(answer, context, caller)
        if writes:
            await call.write(answer)
        return answer

    async def keep(answer: bytes, context: Any, caller: str) -> None:
        """Count an answer until it is taken."""
        share = edge.budget.share(caller)
        if refusable:
            await _take(share, len(answer), context)
        else:
            share.keep(len(answer))
        context.add_done_callback(lambda _context: share.give_back())

    async def answered(
        raw: bytes, call: GrpcCall, context: Any, caller: str, share: Share | None = None
    ) -> bytes:
        # Parsed here, because grpc answers INTERNAL for bytes that it cannot parse.
        if len(raw) > LONG and (turn := steps.enter(caller)) is not None:
            await steps.wait(turn, caller)
        try:
            request = parse(raw)
            if share is not None and many:
                check_records(request)
        except errors.InvalidParameter as error:
            await context.abort(status_of(error), str(error))
        except DecodeError:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"malformed request: not a {request_class.DESCRIPTOR.name}",
            )
        if share is not None and many:
            # Many may be under way before the first one has an answer, which is counted only then.
            await _take(share, _RESULT * len(request.records), context)
        try:
            answer = await handler(request, call)
        except errors.PixyError as error:
            await context.abort(status_of(error), str(error), _retry_after(error))
        except Exception as error:
            logger.exception("%s failed", handler.__name__)
            await context.abort(grpc.StatusCode.INTERNAL, f"internal error: {error!r}")
        if yields:
            # A cancellation that has reached this process is delivered to this task here, before
            # the answer counts as sent.
            await asyncio.sleep(0)
        return answer.SerializeToString()  # type: ignore[no-any-return]

    return behaviour


def _connection_options(settings: Connections, most: int) -> list[tuple[str, int]]:
    """Return the bounds and deadlines that gRPC's core keeps by itself. From version 1.59 on it also refuses rapid resets."""

    def milliseconds(seconds: float) -> int:
        return round(seconds * 1000)

    options = [
        ("grpc.max_allowed_incoming_connections", most),
        # From the accepted socket to HTTP/2's first SETTINGS frame, with or without TLS.
        ("grpc.server_handshake_timeout_ms", milliseconds(settings.handshake_timeout)),
        ("grpc.max_connection_idle_ms", milliseconds(settings.idle_timeout)),
        ("grpc.max_concurrent_streams", settings.grpc_max_streams),
        ("grpc.max_metadata_size", settings.grpc_max_metadata_bytes),
        ("grpc.absolute_max_metadata_size", settings.grpc_max_metadata_bytes),
        ("grpc.http2.max_ping_strikes", settings.grpc_max_ping_strikes),
        ("grpc.http2.min_ping_interval_without_data_ms", milliseconds(settings.grpc_min_ping_interval)),
        ("grpc.keepalive_permit_without_calls", 1),
        # What of a stream may arrive before it is read: all that a call holds which is not allowed to go on.
        ("grpc.http2.lookahead_bytes", WINDOW),
        ("grpc.http2.bdp_probe", 0),
        # A client that has gone without a word, or that does not take its answers.
        ("grpc.keepalive_time_ms", milliseconds(settings.write_timeout)),
        ("grpc.keepalive_timeout_ms", milliseconds(settings.write_timeout)),
    ]
    if settings.grpc_max_age:
        options += [
            ("grpc.max_connection_age_ms", milliseconds(settings.grpc_max_age)),
            ("grpc.max_connection_age_grace_ms", milliseconds(settings.grpc_max_age_grace)),
        ]
    return options


def largest_message(config: App) -> int:
    """Return the bytes of the largest message that a call may have."""
    largest = max(proxy.producer.max_message_bytes for proxy in config.proxies.values())
    return max(MIN_RECEIVE, largest + _SLACK)


def make_gate(engine: Engine, edge: Edge, end: Callable[[Collection[str]], object] = len) -> Gate:
    """Make the gate of one listener.

    Args:
        engine: has the configuration, and recognizes callers.
        edge: paces.
        end: ends the connections of some peers.
    """
    config = engine.config
    return Gate(
        engine.guard,
        config.max_concurrent_requests,
        max(_LEAST_READS, config.max_buffered_bytes // largest_message(config)),
        config.body_timeout,
        edge.pace,
        end,
    )


def add_services(
    server: Any,
    engine: Engine,
    edge: Edge,
    gate: Gate,
    health: Health,
    listener: str,
    writes: Collection[str] = (),
) -> None:
    """Add the service, health checks and reflection to a server.

    Args:
        server: :class:`grpc.aio.Server`, or another one with its two methods that add handlers.
        engine: answers the calls.
        edge: counts bytes, and has the access log.
        gate: lets calls in.
        health: answers health checks.
        listener: its name, for the access log.
        writes: the methods whose answers are written before the call ends, to know whether that has succeeded.
    """
    methods = {
        name: gate.unary(
            _bind(
                request_class,
                _in_trace(handler, engine) if engine.diagnostics.traced else handler,
                name,
                edge,
                writes=name in writes,
            ),
            writes=name in writes,
        )
        for name, (request_class, handler) in Handlers(engine).methods().items()
    }
    log = edge.access_log
    if log is not None:
        methods = {name: recorded(log, listener, name, each) for name, each in methods.items()}
    if edge.meter is not None:
        meter = edge.meter
        methods = {name: metered(meter, listener, name, each) for name, each in methods.items()}
    assert pb.DESCRIPTOR.services_by_name[SERVICE]
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, methods), health.handlers(gate))
    )
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(
        reflection.aio.ReflectionServicer((SERVICE, HEALTH, reflection.SERVICE_NAME)), Gated(server, gate)
    )
    server.add_generic_rpc_handlers((UnknownMethods(gate, log, listener),))  # after all others


class GrpcServer(Listener):
    """Listens on one TCP address, with TLS if a certificate is configured.

    Args:
        engine: answers the calls.
        address: ``host:port``.
        edge: the bounds of connections.
    """

    def __init__(self, engine: Engine, address: str, edge: Edge) -> None:
        super().__init__()
        self._edge = edge
        self._engine = engine
        self._address = address
        self._server: Any = None
        self._health = Health(("", SERVICE))
        self._gate: Gate | None = None
        self._ended: asyncio.Task[Any] | None = None
        self._port = 0

    async def bind(self) -> str:
        """See :class:`pixy.api.listener.Listener`."""
        config = self._engine.config
        receive = largest_message(config)
        gate = self._gate = make_gate(
            self._engine, self._edge, lambda peers: end_connections(self._port, peers)
        )
        self._server = grpc.aio.server(
            options=[
                # Without workers a second daemon would bind the same port silently.
                ("grpc.so_reuseport", int(self._edge.worker is not None)),
                ("grpc.max_receive_message_length", receive),
                ("grpc.max_send_message_length", -1),
                # Bounds calls that have arrived but not begun, which take 15 KB each. From the first bound on the core cancels
                # some of them at random, without a reason; our own limit gives one.
                ("grpc.server.max_pending_requests", min(_PENDING, config.max_concurrent_requests)),
                (
                    "grpc.server.max_pending_requests_hard_limit",
                    2 * min(_PENDING, config.max_concurrent_requests),
                ),
                *_connection_options(config.connections, self._edge.most_grpc),
            ],
        )
        listener = self.path.rpartition("/")[2]
        add_services(self._server, self._engine, self._edge, gate, self._health, listener, _WRITTEN)
        port = self._port = await self._listen()
        await self._server.start()
        self._ended = asyncio.ensure_future(self._server.wait_for_termination())
        host, _ = split_address(self._address)
        return f"{host or '0.0.0.0'}:{port}"

    async def _listen(self) -> int:
        host, port = split_address(self._address)
        where = f"{host or '[::]'}:{port}" if ":" not in (host or "") else f"[{host}]:{port}"
        tls = self._engine.config.tls
        try:
            if tls.certificate_path:
                self.tls = await asyncio.to_thread(ServerTls, tls)
                return int(self._server.add_secure_port(where, self.tls.grpc_credentials()))
            return int(self._server.add_insecure_port(where))
        except (RuntimeError, OSError) as error:
            # gRPC does not say why; its text ends with a variable that makes it say more.
            theirs = (
                str(error).partition("; set GRPC_VERBOSITY")[0]
                + " (another process listens there, or it is no address of this host: stop the one, or choose another address)"
            )
            reason = await asyncio.to_thread(sockets.tcp_refusal, host, port) or theirs
            raise errors.StartError(
                f"failed to start gRPC server: failed to create listener: listen tcp {self._address}: {reason}"
            ) from error

    async def retire(self, within: float) -> None:
        """See :class:`pixy.api.listener.Listener`, and :mod:`pixy.api.grpc.retiring` for what ends connections."""
        if not await asyncio.to_thread(stop_listening, self._port):
            logger.warning("gRPC server on %s: its listening socket is not found", self._address)
        loop = asyncio.get_running_loop()
        until = loop.time() + within
        while await asyncio.to_thread(count_connections, self._port) > 0:
            if loop.time() >= until:
                break
            await asyncio.sleep(_RETIRE_LOOK)

    async def drain(self) -> None:
        """Report NOT_SERVING to health checks from now on."""
        self._health.drain()

    def dead(self) -> str:
        """See :class:`pixy.api.listener.Listener`."""
        if self._ended is not None and self._ended.done():
            return f"gRPC server on {self._address} has stopped"
        return ""

    async def close(self) -> None:
        """Give calls a moment to finish, then end them."""
        if self._ended is not None and (self._ended.cancelled() or self._ended.cancelling()):
            logger.error("gRPC server on %s: its tasks were cancelled, it cannot be stopped", self._address)
            _unstoppable.append(self._server)
            return
        # The waiter ends by itself then; cancelling it, or this, would cancel what stop() waits for.
        stopping = asyncio.ensure_future(self._server.stop(_GRACE))
        _, busy = await asyncio.wait((stopping,), timeout=_GRACE + _LINGER)
        if busy:
            logger.warning("gRPC server on %s: clients that take nothing are left behind", self._address)
            _unstoppable.append((self._server, stopping))
