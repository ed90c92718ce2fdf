"""Say what is wrong with the files and paths that the daemon's own listeners need.

Loading a configuration does not look at them: other programs load it, too, on machines and as users that lack the files. The daemon
looks when it starts, and ``config check`` and ``doctor`` look where they run. Each function may block.
"""

from __future__ import annotations

import errno
import os
import ssl
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

from pixy.config.model import App, Kafka, Tls

MAX_UNIX_PATH = 107
"""Bytes of a unix socket's path on Linux: ``sun_path`` has 108, and the last one is zero."""

_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
_TRUSTED = b"-----BEGIN TRUSTED CERTIFICATE-----"
_KEY = b"PRIVATE KEY-----"
_MAX_FILE = 1 << 20
_OPEN: Final = ("/dev/fd/", "/dev/stdin", "/dev/null", "/proc/")
"""Where files stand that are open already, and an empty one."""
_NOT_REGULAR: Final = "not a regular file"


MAX_SMALL_FILE: Final = 16 * 1024 * 1024
"""Bytes of a file that a person or a program has written for us: a configuration, profiles, certificates, a token."""


class PassPhraseNeeded(Exception):
    """A private key is encrypted."""


class NotRegular(OSError):
    """A file is a pipe, a socket or a device."""


def read_small(path: str | Path, opened: Callable[[str | Path], BinaryIO] | None = None) -> bytes:
    """Read a file of :data:`MAX_SMALL_FILE` bytes at most. Raises OSError, also for a longer one, such as /dev/zero.

    Args:
        path: of the file.
        opened: opens it; None: whatever it is, as for a program that a person has just started.
    """
    with opened(path) if opened is not None else open(path, "rb") as file:
        found = file.read(MAX_SMALL_FILE + 1)
    if len(found) > MAX_SMALL_FILE:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return found


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file for reading. Raises OSError, also for a pipe, which would wait for a writer, maybe for ever, and for devices."""
    return open(path, "rb", opener=_regular)


def open_given(path: str | Path) -> BinaryIO:
    """Do as :func:`open_regular`, but take what the daemon was given as an open file, as in ``--config /dev/stdin``, whatever it is."""
    if os.path.abspath(path).startswith(_OPEN):
        return open(path, "rb")
    return open_regular(path)


def _regular(path: str, flags: int) -> int:
    file = os.open(path, flags | os.O_NONBLOCK)
    mode = os.fstat(file).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # open() itself says what is wrong with a folder
        return file
    os.close(file)
    raise NotRegular(errno.EINVAL, _NOT_REGULAR, path)


def problem_of(app: App) -> str:
    """Describe the first problem of the listeners' files: certificates and the unix socket's path; empty if there is none."""
    problem = tls_problem(app.tls)
    if problem or not app.unix_addr or ":" in app.unix_addr:  # one with a colon is a TCP address
        return problem
    hint = unix_hint(app.unix_addr)
    return f"unix_addr {app.unix_addr}: {hint}" if hint else ""


def tls_problem(tls: Tls) -> str:
    """Describe the first problem of ``tls``: which key and file, what is wrong, what to do; empty if there is none."""
    if not tls.certificate_path:
        return ""
    paths = {
        "tls.certificate_path": tls.certificate_path,
        "tls.key_path": tls.key_path,
        "tls.client_ca_path": tls.client_ca_path,
    }
    return (
        _irregular_problem(paths)
        or pair_problem("tls.certificate_path", tls.certificate_path, "tls.key_path", tls.key_path)
        or (certificates_problem("tls.client_ca_path", tls.client_ca_path) if tls.client_ca_path else "")
        or _ciphers_problem(tls.ciphers)
    )


def _irregular_problem(paths: dict[str, str]) -> str:
    """Describe the first file, by its key, that is a pipe, for whose writer OpenSSL would wait, or a device; empty if none is."""
    for key, path in paths.items():
        try:
            mode = os.stat(path).st_mode if path else stat.S_IFREG
        except OSError:
            continue
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            return f"{key} {path}: {_NOT_REGULAR}: name a file in PEM format"
    return ""


def kafka_tls_hint(kafka: Kafka) -> str:
    """Describe the first problem of the files that ``kafka`` names for TLS; empty if there is none."""
    keys = "ca_certificate_file", "client_certificate_file", "client_key_file"
    if problem := _irregular_problem({key: getattr(kafka, key) for key in keys}):
        return problem
    if kafka.ca_certificate_file and (
        problem := certificates_problem("ca_certificate_file", kafka.ca_certificate_file)
    ):
        return problem
    chain, key = kafka.client_certificate_file, kafka.client_key_file
    if not chain and not key:
        return ""
    if not chain:
        return f"client_key_file {key} needs client_certificate_file: set both"
    return pair_problem("client_certificate_file", chain, "client_key_file", key or chain)


def unix_hint(path: str) -> str:
    """Say why a unix socket cannot be made at a path, and what to do; empty if it can, or nothing is known."""
    size = len(os.fsencode(path))
    if size > MAX_UNIX_PATH:
        return f"the path has {size} bytes, and at most {MAX_UNIX_PATH} are possible: choose a shorter one"
    folder = os.path.dirname(path) or "."
    try:
        if not stat.S_ISDIR(os.stat(folder).st_mode):
            return f"{folder} is a file: choose a path in a directory"
    except FileNotFoundError:
        return f"the directory {folder} does not exist: create it, or choose another path"
    except NotADirectoryError:
        return f"{folder} is no directory: choose another path"
    except PermissionError:
        return f"no right to enter {folder}: choose a path in a directory of the daemon's user"
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        return f"no right to write to {folder}: choose a path in a directory of the daemon's user"
    try:
        taken = not stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return ""
    return "something that is no socket is there: remove it, or choose another path" if taken else ""


def _read(key: str, path: str) -> tuple[bytes, str]:
    """Return the content of a file, or the problem."""
    try:
        with open(path, "rb") as file:
            if (size := os.fstat(file.fileno()).st_size) > MAX_SMALL_FILE:
                return (
                    b"",
                    f"{key} {path}: {size} bytes are too many, at most {MAX_SMALL_FILE} are read: name a file in PEM format",
                )
            return file.read(_MAX_FILE), ""
    except PermissionError:
        return b"", f"{key} {path}: permission denied: the daemon's user must be able to read it"
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        return b"", f"{key} {path}: {why}: name a file in PEM format"


def certificates_problem(key: str, path: str) -> str:
    """Describe what is wrong with a file of certificates; empty if nothing is. Blocks.

    Args:
        key: the configuration's key or the flag that names the file.
        path: the file.
    """
    text, problem = _read(key, path)
    if problem:
        return problem
    if _CERTIFICATE not in text and _TRUSTED not in text:
        if _KEY in text:
            return f"{key} {path}: holds a private key and no certificate: name the certificate's file"
        return f"{key} {path}: holds no certificate in PEM format (-----BEGIN CERTIFICATE-----): convert it, or name another"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_verify_locations(path)
    except (
        OSError,
        ValueError,
    ):  # ssl.SSLError is one; so is the lack of memory for a line of many megabytes
        return f"{key} {path}: its certificate is damaged: write the file again"
    return ""


def _key_problem(key: str, path: str) -> str:
    text, problem = _read(key, path)
    if problem or _KEY in text:
        return problem
    if _CERTIFICATE in text:
        return f"{key} {path}: holds a certificate and no private key: name the key's file"
    return f"{key} {path}: holds no private key in PEM format (-----BEGIN PRIVATE KEY-----): convert it, or name another"


def pair_problem(chain_key: str, chain: str, key_key: str, key: str) -> str:
    """Describe what is wrong with the files of a certificate and its key; empty if nothing is. Blocks.

    Args:
        chain_key: the configuration's key or the flag that names the certificate's file.
        chain: the certificate's file.
        key_key: likewise, for the key's file.
        key: the key's file, which may be the same.
    """
    return (
        certificates_problem(chain_key, chain)
        or _key_problem(key_key, key)
        or _mismatch(chain_key, chain, key_key, key)
    )


def _mismatch(chain_key: str, chain: str, key_key: str, key: str) -> str:
    """Say why a certificate and a key cannot be used together. Each is the configuration's key and the file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    where = f"{key_key} {key}"
    try:
        context.load_cert_chain(chain, key, password=refuse_pass_phrase)
    except PassPhraseNeeded:
        return f"{where}: has a pass phrase, which a daemon cannot ask for: write the key without one (openssl pkey)"
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", "")
        if reason == "KEY_VALUES_MISMATCH":
            return f"{where}: is not the key of the certificate {chain}: name the two that were made together"
        if reason in ("EE_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"):
            return f"{chain_key} {chain}: too weak for OpenSSL: use a longer key and SHA-256"
        return f"{where}: cannot be used with {chain}: write both files again"
    return ""


def refuse_pass_phrase() -> NoReturn:
    """Raise PassPhraseNeeded: given as the password of a key. Without it, OpenSSL asks on the terminal, and waits."""
    raise PassPhraseNeeded("the key has a pass phrase")


def _ciphers_problem(ciphers: str) -> str:
    try:
        if ciphers:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(ciphers)
    except ssl.SSLError:
        return f"tls.ciphers {ciphers!r}: OpenSSL knows none of them: `openssl ciphers` lists them"
    return ""


__all__ = [
    "MAX_SMALL_FILE",
    "MAX_UNIX_PATH",
    "NotRegular",
    "PassPhraseNeeded",
    "certificates_problem",
    "kafka_tls_hint",
    "open_given",
    "open_regular",
    "pair_problem",
    "problem_of",
    "read_small",
    "refuse_pass_phrase",
    "tls_problem",
    "unix_hint",
]
