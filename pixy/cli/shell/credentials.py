"""Read and check the parts of a connection before gRPC sees them: the daemon's address, files of TLS, and the token.

gRPC's own errors are many lines on standard error, blame the daemon for a local file, and end the process for a certificate without its key.
"""

from __future__ import annotations

import os
import re
import ssl
import stat
from typing import Final

from pixy.cli.shell.errors import EXIT_USAGE, ShellError
from pixy.config.files import PassPhraseNeeded, read_small, refuse_pass_phrase

_SERVER: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+(?:%[^\s\[\]]+)?\]|[^\s\x00-\x1f:/\[\]@,]+):([0-9]{1,5})\Z")
_TOKEN: Final = re.compile(rb"[\x21-\x7e]+\Z")
_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_KEY: Final = b"PRIVATE KEY-----"

Pem = tuple[bytes | None, bytes | None, bytes | None]
"""The CA's certificates, the client's key, and its certificate; None for one that is not given."""


def check_server(server: str, said_by: str = "--server") -> None:
    """Look whether a text is ``HOST:PORT``, with a port from 1 to 65535; an IPv6 address stands in brackets.

    Args:
        server: the text.
        said_by: where it comes from, for the error.

    Raises:
        ShellError: it is not; exit code 2.
    """
    found = _SERVER.match(server)
    if found is None or not 0 < int(found[1]) < 65536:
        raise _wrong(f"{said_by} {server!r}: is not HOST:PORT, such as localhost:19091")


def token(file: str) -> str:
    """Return the key or token to send, empty for none; no error shows it.

    Args:
        file: of --token-file; empty for the environment variable KAFKA_PIXY_TOKEN.

    Raises:
        ShellError: the file is not readable or empty, or no token can be like that; exit code 2.
    """
    where = f"--token-file {file}" if file else "KAFKA_PIXY_TOKEN"
    given = _read("--token-file", file) if file else os.environb.get(b"KAFKA_PIXY_TOKEN", b"")
    found = given.strip()
    if not found and (file or given):
        raise _wrong(f"{where}: is empty: a key or a token is expected")
    if found and not _TOKEN.match(found):
        raise _wrong(f"{where}: a key or a token is one line of ASCII without spaces")
    return found.decode()


def pem_files(ca: str, cert: str, cert_key: str) -> Pem:
    """Read and check the files of TLS.

    Args:
        ca: the file with the server's CA, or empty for the system's.
        cert: the file with the client's certificate, or empty.
        cert_key: the file with its key; with a certificate, and only then.

    Raises:
        ShellError: a file is not readable, holds something else, or the key is not the certificate's; exit code 2.
    """
    if bool(cert) != bool(cert_key):
        given, lacking = ("--cert", "--cert-key") if cert else ("--cert-key", "--cert")
        raise _wrong(f"{given} needs {lacking}: give both")
    return (
        _certificates("--ca", ca) if ca else None,
        _private_key(cert, cert_key) if cert else None,
        _certificates("--cert", cert) if cert else None,
    )


def _certificates(flag: str, file: str) -> bytes:
    text = _read(flag, file)
    found = _CERTIFICATE.findall(text)
    if not found:
        raise _wrong(f"{flag} {file}: holds no certificate in PEM format (-----BEGIN CERTIFICATE-----)")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(
            cadata=b"\n".join(found).decode("ascii")
        )
    except (ssl.SSLError, ValueError):
        raise _wrong(f"{flag} {file}: its certificate is damaged") from None
    return text


def _private_key(cert: str, file: str) -> bytes:
    text = _read("--cert-key", file)
    if _KEY not in text:
        raise _wrong(f"--cert-key {file}: holds no private key in PEM format (-----BEGIN PRIVATE KEY-----)")
    if not all(_can_be_read_again(each) for each in (cert, file)):
        return text
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(cert, file, password=refuse_pass_phrase)
    except PassPhraseNeeded:
        raise _wrong(
            f"--cert-key {file}: has a pass phrase: write the key without one (openssl pkey)"
        ) from None
    except (ssl.SSLError, OSError, ValueError) as error:
        if getattr(error, "reason", "") == "KEY_VALUES_MISMATCH":
            raise _wrong(f"--cert-key {file}: is not the key of the certificate {cert}") from None
        raise _wrong(f"--cert-key {file}: cannot be used with {cert}") from None
    return text


def _can_be_read_again(file: str) -> bool:
    """Return whether OpenSSL may open a file, too: a shell's <(...) is a pipe, which is read once."""
    try:
        return stat.S_ISREG(os.stat(file).st_mode)
    except OSError:
        return False


def _read(flag: str, file: str) -> bytes:
    try:
        return read_small(file)
    except (OSError, ValueError) as error:
        raise _wrong(f"{flag} {file}: {getattr(error, 'strerror', None) or error}") from None


def _wrong(text: str) -> ShellError:
    return ShellError(text, EXIT_USAGE)


__all__ = ["Pem", "check_server", "pem_files", "token"]
