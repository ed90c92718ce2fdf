"""The connection of one command to a daemon."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final, Self

import grpc

from pixy.cli.shell import credentials, interrupts
from pixy.cli.shell.errors import CallError, nearest, of_call
from pixy.cli.shell.output import Output
from pixy.proto import kafkapixy_pb2 as pb
from pixy.proto.kafkapixy_pb2_grpc import KafkaPixyStub

_OPTIONS: Final = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A daemon that comes back is found within a second, not after gRPC's two minutes.
    ("grpc.max_reconnect_backoff_ms", 1000),
]


@dataclass(frozen=True, slots=True)
class Settings:
    """The options that all commands share.

    Attributes:
        server: gRPC address.
        cluster: empty for the daemon's default cluster.
        tls: connect over TLS; `ca` and `cert` imply it.
        ca: the file with the server's CA, or empty.
        cert: the file with the client's certificate, or empty.
        cert_key: the file with its key, or empty.
        token_file: a file with an API key or a token; empty for the environment variable KAFKA_PIXY_TOKEN.
        timeout: seconds that a call may take.
        form: one of :data:`pixy.cli.shell.output.FORMS`.
    """

    server: str
    cluster: str = ""
    tls: bool = False
    ca: str = ""
    cert: str = ""
    cert_key: str = ""
    token_file: str = ""
    timeout: float = 90.0
    form: str = "table"


class _Authorized(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    """Sends an API key or a token with each call."""

    def __init__(self, token: str) -> None:
        self._sent = ("authorization", f"Bearer {token}")

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(details._replace(metadata=[*(details.metadata or ()), self._sent]), request)


class Session:
    """Calls a daemon, and knows how to print.

    Raises:
        ShellError: the address, a file of TLS or the token cannot be used; the exit code is 2.
    """

    def __init__(self, settings: Settings) -> None:
        self.server, self.cluster, self.timeout = settings.server, settings.cluster, settings.timeout
        self.out = Output(settings.form)
        credentials.check_server(settings.server)
        token = credentials.token(settings.token_file)
        pem = credentials.pem_files(settings.ca, settings.cert, settings.cert_key)
        self._tls, self._cert = settings.tls or any(pem), bool(settings.cert)
        if self._tls:
            trusted = grpc.ssl_channel_credentials(*pem)
            self._channel = grpc.secure_channel(settings.server, trusted, options=_OPTIONS)
        else:
            self._channel = grpc.insecure_channel(settings.server, options=_OPTIONS)
        channel = grpc.intercept_channel(self._channel, _Authorized(token)) if token else self._channel
        self.stub: Any = KafkaPixyStub(channel)  # type: ignore[no-untyped-call]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        with interrupts.deferred():
            self._channel.close()

    def call(self, method: str, request: Any, timeout: float | None = None) -> Any:
        """Make a call.

        Args:
            method: of the gRPC service.
            request: its message.
            timeout: seconds; None for --timeout.

        Raises:
            CallError: the daemon does not answer, or refused.
        """
        return self.answer(self.begin(method, request, timeout), method)

    def begin(self, method: str, request: Any, timeout: float | None = None) -> Any:
        """Begin a call; :meth:`answer` waits for it.

        Args:
            method: of the gRPC service.
            request: its message.
            timeout: seconds; None for --timeout.
        """
        interrupts.check()
        with interrupts.deferred():
            within = self.timeout if timeout is None else timeout
            return getattr(self.stub, method).future(request, timeout=within)

    def answer(self, future: Any, method: str, *, within: float | None = None, keep: bool = False) -> Any:
        """Wait for the answer of a call.

        Args:
            future: of :meth:`begin`.
            method: for errors.
            within: seconds, 0 for an answer that is there; None for as long as the call may take.
            keep: the call goes on if the wait is interrupted.

        Raises:
            CallError: the daemon does not answer, or refused.
        """
        until = None if within is None else time.monotonic() + within
        try:
            return self._wait(future, method, until)
        except KeyboardInterrupt:
            if not keep:
                with interrupts.deferred():
                    future.cancel()
            raise

    def _wait(self, future: Any, method: str, until: float | None) -> Any:
        while True:
            interrupts.check()
            left = interrupts.LOOK if until is None else min(interrupts.LOOK, until - time.monotonic())
            try:
                with interrupts.deferred():
                    return future.result(max(0.0, left))
            except grpc.RpcError as error:
                raise of_call(error, self.server, method, tls=self._tls, cert=self._cert) from None
            except grpc.FutureTimeoutError:
                if until is not None and time.monotonic() >= until:
                    raise CallError(
                        grpc.StatusCode.DEADLINE_EXCEEDED, f"{self.server} did not answer {method}"
                    ) from None

    def topic(self, name: str, *, make: bool = False) -> Any:
        """Return a topic's metadata with partitions; asking does not create it.

        Args:
            name: of the topic.
            make: whether a person who names a topic that does not exist may want one.

        Raises:
            CallError: there is no such topic; the text names the nearest one.
        """
        request = pb.GetTopicMetadataRq(cluster=self.cluster, topic=name, with_partitions=True)
        try:
            return self.call("GetTopicMetadata", request)
        except CallError as error:
            if error.status is not grpc.StatusCode.NOT_FOUND:
                raise
            raise self.unknown_topic(name, make=make) from None

    def unknown_topic(self, name: str, *, make: bool = False) -> CallError:
        """Make the error of a topic that does not exist; arguments as in :meth:`topic`."""
        other = f"make it: kafka-pixy topic create {name}" if make else "kafka-pixy topic list shows all"
        hint = nearest(name, self.topics()) or other
        return CallError(grpc.StatusCode.NOT_FOUND, f"topic {name!r} does not exist", hint)

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return sorted(self.call("ListTopics", pb.ListTopicRq(cluster=self.cluster)).topics)


__all__ = ["Session", "Settings"]
