"""Connections to brokers without IO: requests, version negotiation, authentication.

Everything here is a generator of steps (:mod:`pixy.wire.steps`).
"""

from __future__ import annotations

import functools
import os
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict

from pixy.wire import frames, messages
from pixy.wire.errors import describe
from pixy.wire.exceptions import DecodeError, UnsupportedVersionError, WireError
from pixy.wire.sasl import AuthenticationError, Exchange, Sasl
from pixy.wire.steps import Compute, LookUpSrv, Open, Receive, Resolve, Send, Step, Steps, Transport

CAPS: Final = {"Produce": 12, "Fetch": 12, "OffsetCommit": 9, "OffsetFetch": 7, "FindCoordinator": 3}
"""The newest versions in use: later ones name topics by id, or take several groups at once."""

_MOCK_CAPS: Final = {"Metadata": 8}
"""librdkafka's mock cluster (2.16) answers Metadata with a byte too many from version 9 on. It knows ApiVersions up to
version 2; a broker that knows no newer one has no Metadata above 8 either."""
_API_VERSIONS: Final = 18
RENEW_AFTER: Final = 1.0
"""Seconds between two authentications, at least: a broker refuses an earlier one (ILLEGAL_SASL_STATE)."""
RENEW_AT: Final = 0.85
"""The part of a SASL session's lifetime after which the next call authenticates again; Java's client takes 0.85 to 0.95."""


class TransportError(WireError, OSError):
    """The connection could not be opened, or broke; the text names the address."""


class RequestTimedOutError(TransportError, TimeoutError):
    """The broker did not answer in time."""


Bootstrap = str | Sequence[str] | Callable[[], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of every client. Times are in seconds; 0 means no limit.

    Args:
        bootstrap: one or more addresses ``host:port``, or names of SRV records (no port), or a function that returns
            them. The result is kept until a bootstrap broker fails.
        client_id: sent with each request, for the broker's logs and quotas.
        tls: context for TLS; None for plain TCP.
        sasl: credentials; None to connect without.
        dial_timeout: limit for connecting, TLS included; also for the lookup of an SRV record, 5 s if it is 0.
        request_timeout: limit for one call, from sending to the complete answer.
        connection_ttl: age at which the next call opens another connection.
        conn_max_idle: idle time after which the next call opens another connection.
        max_frame: largest answer accepted, in bytes.
        software: name and version sent to the broker (KIP-511).
        clock: monotonic clock, in seconds.
    """

    bootstrap: Bootstrap
    client_id: str | None = "kafka-pixy"
    tls: ssl.SSLContext | None = None
    sasl: Sasl | None = None
    dial_timeout: float = 5.0
    request_timeout: float = 60.0
    connection_ttl: float = 0.0
    conn_max_idle: float = 0.0
    max_frame: int = frames.MAX_FRAME
    software: tuple[str, str] = ("kafka-pixy-wire", "1")
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)


class Options(TypedDict, total=False):
    """Keywords of every client: the fields of :class:`Settings` except the address."""

    client_id: str | None
    tls: ssl.SSLContext | None
    sasl: Sasl | None
    dial_timeout: float
    request_timeout: float
    connection_ttl: float
    conn_max_idle: float
    max_frame: int
    software: tuple[str, str]
    clock: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker's address; ``node_id`` is -1 if only the address is known."""

    host: str
    port: int
    node_id: int = -1
    rack: str | None = None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Broker:
    """Parse ``host:port`` or ``[host]:port``. Raises ValueError."""
    host, colon, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not (host and colon and port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise ValueError(f"not an address: {text!r} (host:port is needed)")
    return Broker(host, int(port))


class Connection:
    """An open connection: one request at a time, closed for good at the first transport or parse error."""

    def __init__(self, settings: Settings, broker: Broker, transport: Transport) -> None:
        self.settings = settings
        self.broker = broker
        self.closed = False
        self.versions: dict[int, tuple[int, int]] = {}
        """Versions that the broker supports: API key to (first, last)."""
        self.opened_at = self.used_at = settings.clock()
        self._transport = transport
        self._splitter = frames.FrameSplitter(settings.max_frame)
        self._correlation_id = 0
        self.renew_at: float | None = None
        """Time of the clock from which the next call authenticates again first (KIP-368); None if the session has no end."""

    def expired(self) -> bool:
        """Tell whether the next call must open another connection."""
        settings, now = self.settings, self.settings.clock()
        return (
            self.closed
            or 0 < settings.connection_ttl <= now - self.opened_at
            or 0 < settings.conn_max_idle <= now - self.used_at
        )

    def close(self) -> None:
        """Close the connection. Closing it again does nothing."""
        self.closed = True
        self._transport.close()

    def version(self, api: str) -> int:
        """Return the newest version of an API that both sides know. Raises UnsupportedVersionError."""
        known = messages.versions(f"{api}Request")
        last = min(CAPS.get(api, known[-1]), known[-1])
        key = frames.to_key(api)
        if key not in self.versions:
            raise UnsupportedVersionError(f"{self.broker} does not know {api}")
        if self.versions.get(_API_VERSIONS, (0, 3))[1] < 3:
            last = min(last, _MOCK_CAPS.get(api, last))
        low, high = self.versions[key]
        chosen = min(last, high)
        if chosen < max(low, known[0]):
            raise UnsupportedVersionError(
                f"{self.broker} knows versions {low} to {high} of {api}, this client {known[0]} to {last}"
            )
        return chosen

    def call(
        self,
        api: str,
        body: Mapping[str, Any],
        *,
        version: int | None = None,
        answered: bool = True,
        timeout: float | None = None,
    ) -> Steps[messages.Body]:
        """Send a request and wait for the answer's body.

        Args:
            api: name of the API, as ``"Fetch"``.
            body: fields of the request, named as in Kafka's schema.
            version: None for the newest that both sides know.
            answered: False to return an empty body at once, because the broker does not answer.
            timeout: seconds for the answer, instead of ``request_timeout``, unless that is 0.

        Raises:
            TransportError: the connection failed; it is closed.
            AuthenticationError: the session had to be renewed (KIP-368) and the broker refused; the connection is closed.
            DecodeError: the answer is malformed or belongs to another request; the connection is closed.
            EncodeError: ``body`` does not fit the schema.
            UnsupportedVersionError: the broker and this client have no version of the API in common.
        """
        if self.renew_at is not None and self.settings.clock() >= self.renew_at:
            yield from renew(self)
        if version is None:
            version = self.version(api)
        self._correlation_id = self._correlation_id % 0x7FFFFFFF + 1
        request = frames.encode_request(api, version, self._correlation_id, self.settings.client_id, body)
        frame = yield from self.exchange(request, answered, timeout)
        if frame is None:
            return {}
        try:
            response = frames.decode_response(frame, api, version)
            if response.correlation_id != self._correlation_id:
                raise DecodeError(
                    f"{self.broker}: answer to request {response.correlation_id}, {self._correlation_id} is due",
                    0,
                )
        except WireError:
            self.close()
            raise
        return response.body

    def exchange(
        self, data: bytes, answered: bool = True, timeout: float | None = None
    ) -> Steps[bytes | None]:
        """Send bytes and wait for a frame.

        Args:
            data: a whole request with its size.
            answered: False: the broker sends no answer; None is returned at once.
            timeout: see :meth:`call`.

        Raises:
            TransportError: the connection failed; it is closed.
            DecodeError: the answer is no frame; the connection is closed.
        """
        settings = self.settings
        limit = settings.request_timeout and (timeout or settings.request_timeout)
        deadline = settings.clock() + limit if limit > 0 else None
        try:
            yield Send(self._transport, data, self._left(deadline))
            frame = None
            while answered and frame is None:
                chunk = yield Receive(self._transport, self._left(deadline))
                if not chunk:
                    raise TransportError(f"{self.broker} closed the connection{self._loss()}")
                frame = next(self._splitter.feed(chunk), None)
            self.used_at = settings.clock()
        except TransportError:
            self.close()
            raise
        except TimeoutError:
            self.close()
            raise RequestTimedOutError(f"{self.broker}: no answer in {limit:g} s") from None
        except OSError as error:
            self.close()
            raise TransportError(f"{self.broker}: {_reason(error)}") from error
        except BaseException:
            # A parse error, or the caller was cancelled: the answer may still come, and nobody waits for it.
            self.close()
            raise
        return frame

    def _left(self, deadline: float | None) -> float | None:
        if deadline is None:
            return None
        left = deadline - self.settings.clock()
        if left <= 0:
            raise TimeoutError
        return left

    def _loss(self) -> str:
        pending = self._splitter.pending
        return f" after {pending} bytes of an answer" if pending else ""


def _reason(error: OSError) -> str:
    """Return why the system has refused something, in lower case and without its number. A library's own errors have numbers of their own."""
    if error.errno and type(error).__module__ == "builtins":
        return os.strerror(error.errno).lower()
    return error.strerror or str(error)


def connect(settings: Settings, broker: Broker) -> Steps[Connection]:
    """Open a connection, negotiate API versions and authenticate.

    Raises:
        TransportError: the connection failed.
        AuthenticationError: the broker refused the credentials.
        WireError: version negotiation failed.
    """
    try:
        transport = yield Open(broker.host, broker.port, settings.tls, settings.dial_timeout or None)
    except TimeoutError:
        raise RequestTimedOutError(f"{broker}: no connection in {settings.dial_timeout:g} s") from None
    except OSError as error:
        raise TransportError(f"{broker}: {_reason(error)}") from error
    connection = Connection(settings, broker, transport)
    try:
        yield from _negotiate(connection)
        if settings.sasl is not None:
            yield from _authenticate(connection, settings.sasl)
    except BaseException:
        connection.close()
        raise
    return connection


def _negotiate(connection: Connection) -> Steps[None]:
    name, version = connection.settings.software
    body = {"ClientSoftwareName": name, "ClientSoftwareVersion": version}
    response = yield from connection.call("ApiVersions", body, version=3)
    if response["ErrorCode"] == frames.UNSUPPORTED_VERSION:
        response = yield from connection.call("ApiVersions", {}, version=0)
    if response["ErrorCode"]:
        raise WireError(f"{connection.broker}: ApiVersions: {describe(response['ErrorCode'])}")
    connection.versions = {
        each["ApiKey"]: (each["MinVersion"], each["MaxVersion"]) for each in response["ApiKeys"]
    }


def renew(connection: Connection) -> Steps[None]:
    """Authenticate again on an open connection, before the broker ends the session (KIP-368)."""
    assert connection.settings.sasl is not None
    connection.renew_at = None  # the calls below must not begin another renewal
    try:
        yield from _authenticate(connection, connection.settings.sasl)
    except BaseException:
        connection.close()
        raise


def _authenticate(connection: Connection, sasl: Sasl) -> Steps[None]:
    where = f"{connection.broker}: SASL {sasl.mechanism}"
    handshake = connection.version("SaslHandshake")
    response = yield from connection.call("SaslHandshake", {"Mechanism": sasl.mechanism}, version=handshake)
    if response["ErrorCode"]:
        offered = ", ".join(response["Mechanisms"]) or "none"
        raise AuthenticationError(f"{where}: {describe(response['ErrorCode'])} (the broker has {offered})")
    exchange, answer = sasl.exchange(), None
    while True:
        try:
            # In a thread of its own on an event loop: SCRAM derives a key, and a token may be fetched from elsewhere.
            token = yield Compute(functools.partial(_advance, exchange, answer))
        except AuthenticationError as error:
            raise AuthenticationError(f"{where}: {error}") from None
        if token is None:
            return
        answer = yield from _token(connection, token, bool(handshake), where)


def _advance(exchange: Exchange, answer: bytes | None) -> bytes | None:
    """Return the next token, None after the last: a StopIteration does not pass through a thread."""
    try:
        return next(exchange) if answer is None else exchange.send(answer)
    except StopIteration:
        return None


def _token(connection: Connection, token: bytes, wrapped: bool, where: str) -> Steps[bytes]:
    """Exchange one token: in SaslAuthenticate, or without a header after SaslHandshake v0."""
    if wrapped:
        response = yield from connection.call("SaslAuthenticate", {"AuthBytes": token})
        if response["ErrorCode"]:
            text = response["ErrorMessage"] or describe(response["ErrorCode"])
            raise AuthenticationError(f"{where}: {text}")
        lifetime = response.get("SessionLifetimeMs", 0) / 1000
        if lifetime > 0:
            connection.renew_at = connection.settings.clock() + max(lifetime * RENEW_AT, RENEW_AFTER)
        answer: bytes = response["AuthBytes"]
        return answer
    try:
        frame = yield from connection.exchange(frames.frame(token))
    except TransportError as error:
        # A broker answers wrong credentials in this version by closing the connection.
        raise AuthenticationError(f"{where}: refused ({error})") from error
    return frame or b""


__all__ = [
    "AuthenticationError",
    "Bootstrap",
    "Broker",
    "Compute",
    "Connection",
    "LookUpSrv",
    "Open",
    "Options",
    "Receive",
    "RequestTimedOutError",
    "Resolve",
    "Sasl",
    "Send",
    "Settings",
    "Step",
    "Steps",
    "Transport",
    "TransportError",
    "connect",
    "parse_address",
]
