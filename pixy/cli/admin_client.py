"""Ask the admin listener of a daemon: for ``top``, ``trace`` and ``doctor``."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from pixy.config.addresses import split_address
from pixy.config.model import App

ADMIN: Final = "KAFKA_PIXY_ADMIN"
"""The environment variable with the address, such as ``127.0.0.1:19093`` or ``https://pixy.example:19093``."""
CREDENTIAL: Final = "KAFKA_PIXY_TOKEN"
DEFAULT: Final = "127.0.0.1:19093"
TIMEOUT: Final = 5.0
"""Seconds that an answer may take."""
EXIT_ERROR: Final = 1
EXIT_USAGE: Final = 2
_LONGEST: Final = 16 * 1024 * 1024
"""Bytes of an answer."""
_CLOSED: Final = (ConnectionError, http.client.HTTPException, ssl.SSLEOFError)
_TRUE: Final = ("1", "true", "t", "yes", "y", "on")
_START: Final = (
    f"start the daemon with --adminAddr {DEFAULT}, or name its admin listener with --admin or {ADMIN}"
)
_LEAVE_OUT: Final = "leave out --tls, --ca and --cert (and KAFKA_PIXY_TLS, KAFKA_PIXY_CA)"


class AdminError(Exception):
    """The admin listener cannot be asked. The text says why and what to do.

    Attributes:
        code: the exit code: 2 if the command line or a file that it names is wrong.
    """

    def __init__(self, text: str, code: int = EXIT_ERROR) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Connection:
    """What the command line says about TLS and the caller: names of files, each empty if there is none.

    Attributes:
        tls: connect over TLS; the CA and the certificate imply it.
        ca: the CA of the daemon's certificate; empty for the system's.
        cert: the caller's certificate.
        cert_key: its key.
        token_file: holds an API key or a token; empty for the environment variable KAFKA_PIXY_TOKEN.
    """

    tls: bool = False
    ca: str = ""
    cert: str = ""
    cert_key: str = ""
    token_file: str = ""

    @property
    def secure(self) -> bool:
        """Whether TLS is asked for."""
        return bool(self.tls or self.ca or self.cert or self.cert_key)


class AdminClient:
    """Asks one admin listener. Blocks.

    Args:
        address: ``host:port``, or a URL.
        given: how to connect.

    Raises:
        AdminError: the address or a file cannot be used; exit code 2.
    """

    def __init__(self, address: str, given: Connection | None = None) -> None:
        given = given or Connection()
        self.url = _url(address, given.secure)
        self._headers = {"Accept": "application/json"}
        if token := _token(given.token_file):
            key = token.startswith("kp_")
            self._headers |= {"X-API-Key": token} if key else {"Authorization": f"Bearer {token}"}
        self._context = _context(given) if self.url.startswith("https:") else None

    def get(self, path: str, timeout: float = TIMEOUT, *, has: str = "") -> Any:
        """Return what the daemon answers to a path, as JSON.

        Args:
            path: with its query.
            timeout: seconds that the answer may take.
            has: a key that the answer has.

        Raises:
            AdminError: it does not answer, or refuses, or is no admin listener.
        """
        request = urllib.request.Request(self.url + path, headers=self._headers)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=timeout, context=self._context) as answer:  # noqa: S310
                found = json.loads(answer.read(_LONGEST))
        except urllib.error.HTTPError as error:
            reason = _reason(error)
            if error.code == 404 and not reason:
                why = f"it has no {path.partition('?')[0]}"
                raise AdminError(
                    f"{self.url} does not answer as an admin listener: {why}; {_START}"
                ) from error
            todo = "; --token-file or KAFKA_PIXY_TOKEN has the key or token to send" * (error.code == 401)
            raise AdminError(f"{self.url} refuses: {error.code} {reason or error.reason}{todo}") from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            why, todo = self._why(error.reason if isinstance(error, urllib.error.URLError) else error)
            raise AdminError(f"{self.url} does not answer as an admin listener: {why}; {todo}") from error
        if isinstance(found, dict) and "data" in found:
            found = found["data"]
        if has and not (isinstance(found, dict) and has in found):
            raise AdminError(
                f"{self.url} does not answer as an admin listener: the answer has no {has!r}; {_START}"
            )
        return found

    def _why(self, error: Any) -> tuple[str, str]:
        """Return what went wrong, and what to do about it."""
        reason = getattr(error, "reason", "") if isinstance(error, ssl.SSLError) else ""
        if isinstance(error, ssl.SSLCertVerificationError):
            return (
                f"its certificate is not trusted: {error.verify_message}",
                "name its CA with --ca, and the host as the certificate does",
            )
        if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
            return "it serves no TLS", f"write http://, or {_LEAVE_OUT}"
        if reason in ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_HANDSHAKE_FAILURE"):
            return "it wants a client certificate", "give --cert and --cert-key"
        if isinstance(error, TimeoutError):
            return "it took too long", _START
        if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
            return "the answer is not JSON", _START
        shown = str(getattr(error, "strerror", None) or error).lower()
        if isinstance(error, http.client.HTTPException) and not isinstance(error, ConnectionError):
            shown = "the answer is not HTTP"
        if isinstance(error, ConnectionRefusedError) or not isinstance(error, _CLOSED):
            return shown, _START
        hint = "if it serves TLS, give --tls or --ca"
        if self._context is not None:
            hint = "if it wants a client certificate, give --cert and --cert-key"
        return shown, f"{hint}; else {_START}"


def _reason(error: urllib.error.HTTPError) -> str:
    """Return the error that the answer has; empty if it has none, as that of another program."""
    try:
        return str(json.loads(error.read(65536))["error"])
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
        return ""


def _url(address: str, secure: bool) -> str:
    """Return an address as a URL; without a scheme it is one of TLS if TLS is asked for.

    Raises:
        AdminError: it is no address, or names another scheme than is asked for.
    """
    url = (address if "://" in address else f"{'https' if secure else 'http'}://{address}").rstrip("/")
    try:
        parts = urlsplit(url)
        right = bool(parts.hostname and parts.port != 0) and not any(
            each.isspace() or not each.isprintable() for each in address
        )
        right &= parts.scheme in ("http", "https") and not (parts.query or parts.fragment or parts.username)
        right &= "://" in address or (parts.port is not None and not parts.path)
    except ValueError:  # of a port or brackets
        right = False
    if not right:
        raise AdminError(
            f"--admin {address!r}: is neither HOST:PORT nor a URL, such as {DEFAULT} or https://kp.example.com:19093",
            EXIT_USAGE,
        )
    if secure and parts.scheme == "http":
        raise AdminError(f"--admin {address}: has no TLS: write https://, or {_LEAVE_OUT}", EXIT_USAGE)
    return url


def _token(file: str) -> str:
    """Return the key or token to send; empty for none."""
    if not (file or os.environ.get(CREDENTIAL)):
        return ""
    from pixy.cli.shell.credentials import token  # here: it imports gRPC
    from pixy.cli.shell.errors import ShellError

    try:
        return token(file)
    except ShellError as error:
        raise AdminError(str(error), error.code) from None


def _context(given: Connection) -> ssl.SSLContext:
    """Return how to connect over TLS."""
    from pixy.cli.shell.credentials import pem_files  # here: it imports gRPC
    from pixy.cli.shell.errors import ShellError
    from pixy.config.files import PassPhraseNeeded, refuse_pass_phrase

    try:
        ca, _, cert = pem_files(given.ca, given.cert, given.cert_key)
        context = ssl.create_default_context(cadata=ca.decode("ascii", "replace") if ca else None)
        if cert:
            context.load_cert_chain(given.cert, given.cert_key, password=refuse_pass_phrase)
    except ShellError as error:
        raise AdminError(str(error), error.code) from None
    except (OSError, ValueError, PassPhraseNeeded):  # ssl.SSLError is an OSError
        raise AdminError(
            f"--cert-key {given.cert_key}: cannot be used with {given.cert}", EXIT_USAGE
        ) from None
    return context


def address_of(app: App) -> str:
    """Return the URL of the admin listener that a configuration has on this machine; empty if it has none."""
    if not app.admin_addr:
        return ""
    host, port = split_address(app.admin_addr)
    if not host or host in ("0.0.0.0", "::"):
        host = "localhost"
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if app.tls.certificate_path else 'http'}://{shown}:{port}"


def tls_of_environment() -> bool:
    """Return whether KAFKA_PIXY_TLS asks for TLS, as the commands over gRPC read it."""
    return os.environ.get("KAFKA_PIXY_TLS", "").strip().lower() in _TRUE


__all__ = ["ADMIN", "DEFAULT", "AdminClient", "AdminError", "Connection", "address_of", "tls_of_environment"]
