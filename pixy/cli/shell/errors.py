"""Report errors of the shell in one line that says what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any, Final

import grpc

from pixy.errors import ShuttingDown

_NO_CONNECTION: Final = ("failed to connect to all addresses", "DNS resolution failed", "errors resolving")
"""Beginnings of gRPC's text if no connection came about. If one broke, they may only stand further back in it."""
_HTTP_STATUS: Final = re.compile(r"Received http2 header with status: ([0-9]{3})")

_NO_CLUSTER: Final = "proxy `"
"""The beginning of the daemon's text, which is the original's, if it has no such cluster."""

KAFKA_AWAY: Final = "client has run out of available brokers"
"""In the daemon's answer when no broker has answered it."""
_KAFKA_SILENT: Final = (KAFKA_AWAY, "Local: Message timed out")
_SEE_STATUS: Final = "kafka-pixy status shows whether the daemon reaches Kafka"

NO_TLS_THERE: Final = "without TLS: the TLS handshake failed"
NO_TLS: Final = "leave out --tls, --ca and --cert (and KAFKA_PIXY_TLS, KAFKA_PIXY_CA), or name another port"
"""The advice for a daemon that serves no TLS."""
_TRY_CERT: Final = "if it wants client certificates, give --cert and --cert-key; else "
_TRY_TLS: Final = "if it serves TLS, give --tls or --ca; else "

EXIT_ERROR: Final = 1
EXIT_USAGE: Final = 2
EXIT_NOTHING: Final = 4
"""``consume`` ended with fewer messages than requested."""
EXIT_INTERRUPTED: Final = 130


class ShellError(Exception):
    """A command failed; the text is one line."""

    def __init__(self, text: str, code: int = EXIT_ERROR) -> None:
        super().__init__(" ".join(text.split()))
        self.code = code


class CallError(ShellError):
    """The daemon refused a call.

    Attributes:
        status: gRPC's status code.
        details: the daemon's own words.
    """

    def __init__(self, status: grpc.StatusCode, details: str, hint: str = "") -> None:
        shown = f"{details.rstrip('.')}; {hint}" if hint else details
        super().__init__(f"{status.name}: {shown}")
        self.status = status
        self.details = details

    def with_hint(self, hint: str) -> CallError:
        """Return the same error with a hint at its end."""
        return CallError(self.status, self.details, hint)


class DaemonGone(CallError):
    """No daemon answers at the address, or it has ended meanwhile."""


class NotConnected(DaemonGone):
    """There was no connection on which the call could have been sent: nobody has got it."""


class WrongServer(NotConnected):
    """The server at the address is no daemon, or none that is trusted: asking again would not help."""


def of_call(error: Any, server: str, method: str, *, tls: bool = False, cert: bool = False) -> CallError:
    """Translate gRPC's error.

    Args:
        error: a ``grpc.RpcError`` of a call.
        server: the daemon's address, as the person gave it.
        method: of the call.
        tls: whether the connection is one of TLS.
        cert: whether the shell has a certificate of its own to show.
    """
    status, details = error.code(), " ".join((error.details() or "").split())
    kind = CallError
    if status is grpc.StatusCode.UNAVAILABLE:
        kind = NotConnected if details.startswith(_NO_CONNECTION) else DaemonGone
    if kind is NotConnected and (wrong := _certificate_problem(details)):
        return WrongServer(status, f"the certificate of {server} {wrong[0]}", wrong[1])
    if other := _other_server(details):
        return (WrongServer if kind is NotConnected else kind)(
            status,
            f"at {server} is no gRPC server of Kafka-Pixy: {other}",
            "name its gRPC port (19091 if nothing else is configured) with --server or KAFKA_PIXY_SERVER",
        )
    if status is grpc.StatusCode.UNAVAILABLE and "WRONG_VERSION_NUMBER" in details:
        return WrongServer(status, f"{server} answers {NO_TLS_THERE}", NO_TLS)
    if status is grpc.StatusCode.UNAVAILABLE and _is_transport(details):
        closed = kind is NotConnected and "Socket closed" in details
        hint = "" if not closed or cert else _TRY_CERT if tls else _TRY_TLS
        return kind(
            status,
            f"no daemon answers at {server}: {_cause(details)}",
            f"{hint}start one (kafka-pixy --sandbox), or name another with --server or KAFKA_PIXY_SERVER",
        )
    if status is grpc.StatusCode.INVALID_ARGUMENT and details.startswith(_NO_CLUSTER):
        return CallError(status, details, "kafka-pixy status shows the clusters that --cluster can name")
    if status is grpc.StatusCode.UNAUTHENTICATED:
        return CallError(status, details, "--token-file or KAFKA_PIXY_TOKEN has the key or token to send")
    if status is grpc.StatusCode.UNAVAILABLE and details == str(ShuttingDown()):
        return DaemonGone(status, f"the daemon at {server} is stopping")
    if status is grpc.StatusCode.DEADLINE_EXCEEDED:
        see = "" if method == "GetStatus" else f"; {_SEE_STATUS}"
        return CallError(
            status, f"{server} did not answer {method} in time", f"--timeout sets the seconds to wait{see}"
        )
    if status is grpc.StatusCode.UNIMPLEMENTED:
        return CallError(
            status, f"the daemon at {server} does not know {method}", "it is older than this shell: update it"
        )
    return CallError(status, details, kafka_hint(details))


def kafka_hint(details: str) -> str:
    """Say where to look if the daemon's words are that Kafka does not answer it; empty if they are not."""
    return _SEE_STATUS if any(each in details for each in _KAFKA_SILENT) else ""


def _other_server(details: str) -> str:
    """Describe what a server does that does not speak gRPC; empty if gRPC says nothing of the kind."""
    if "Expected SETTINGS frame" in details:
        # The fourth byte of "HTTP/1.1 400", or of "<!DOCTYPE".
        http = re.search(r"got frame type (79|80)\b", details)
        return "an HTTP server answers there" if http else "what answers does not speak HTTP/2"
    if "missing selected ALPN property" in details:
        return "what answers speaks TLS, but not HTTP/2"
    found = _HTTP_STATUS.search(details)
    return f"an HTTP server answers with status {found[1]}" if found else ""


def _certificate_problem(details: str) -> tuple[str, str] | None:
    """Describe what is wrong with a server's certificate, and what to do; None if gRPC says nothing of the kind."""
    if "Hostname Verification Check failed" in details:
        return "is for another name", "name the server with --server as its certificate does"
    if "CERTIFICATE_VERIFY_FAILED" in details:
        return "is not trusted", "name its CA with --ca"
    return None


def _is_transport(details: str) -> bool:
    """Return whether the error comes from gRPC itself, and not from the daemon."""
    known = (
        "failed to connect",
        "Socket closed",
        "connection",
        "Connection",
        "DNS",
        "errors resolving",
        "unavailable",
        "handshake",
    )
    return not details or any(each in details for each in known) or "recvmsg" in details


def _cause(details: str) -> str:
    for known, shown in (
        ("refused", "connection refused"),
        ("DNS", "no such host"),
        ("resolution", "no such host"),
        ("errors resolving", "no such host"),
        ("handshake", "the TLS handshake failed"),
        ("Socket closed", "it closed the connection"),
        ("reset", "it closed the connection"),
    ):
        if known in details:
            return shown
    return details or "no answer"


def nearest(wrong: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'x'?`` for the name that resembles a wrong one most; empty if none does."""
    close = difflib.get_close_matches(wrong, list(known), 1)
    return f"did you mean {close[0]!r}?" if close else ""


__all__ = [
    "EXIT_ERROR",
    "EXIT_INTERRUPTED",
    "EXIT_NOTHING",
    "EXIT_USAGE",
    "KAFKA_AWAY",
    "CallError",
    "DaemonGone",
    "NotConnected",
    "ShellError",
    "WrongServer",
    "kafka_hint",
    "nearest",
    "of_call",
]
