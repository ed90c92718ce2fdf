"""Make and remove the listening sockets of the HTTP APIs, and say why one cannot be made. Each function may block."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat

from pixy.config.files import unix_hint
from pixy.errors import reason_of

_TCP_HINTS = {
    errno.EADDRINUSE: "another process listens there: stop it, or choose another address",
    errno.EADDRNOTAVAIL: "it is no address of this host: choose another address",
    errno.EACCES: "a port below 1024 needs CAP_NET_BIND_SERVICE: choose another port, or give the daemon that right",
}
_NO_SOCKETS = "no socket can be made in that directory: choose a path in another one"
_UNIX_HINTS = {
    errno.EADDRINUSE: _TCP_HINTS[errno.EADDRINUSE],
    **dict.fromkeys((errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EOPNOTSUPP), _NO_SOCKETS),
}
"""For paths of which :func:`pixy.config.files.unix_hint` knows nothing: of /proc and the like."""
_BACKLOG = 8192
"""Connections that wait to be accepted; the system lowers it to its own bound. Beyond it a client tries again after a second."""


def listen_tcp(host: str | None, port: int, *, shared: bool = False) -> socket.socket:
    """Listen on an address. Raises OSError.

    Args:
        host: a name or an address, of which the first result counts; None: all of IPv4.
        port: 0: any free one.
        shared: other processes of the user may listen there, too (``SO_REUSEPORT``): each gets a part of the connections.
    """
    infos = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = infos[0]
    listener = socket.create_server(
        address[:2] if family == socket.AF_INET else address,
        family=family,
        backlog=_BACKLOG,
        reuse_port=shared,
    )
    listener.setblocking(False)
    return listener


def reserve_tcp(host: str | None, port: int) -> socket.socket:
    """Keep an address for listeners that share it, without listening. Raises OSError.

    Args:
        host: as for :func:`listen_tcp`.
        port: 0: any free one.
    """
    infos = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = infos[0]
    kept = socket.socket(family, kind, protocol)
    try:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        kept.bind(address)
    except BaseException:
        kept.close()
        raise
    return kept


def listen_unix(path: str, mode: int) -> socket.socket:
    """Listen on a unix socket, whose file nobody but those whom ``mode`` allows can use at any time. Raises OSError.

    Args:
        path: a socket file on which nobody listens is replaced.
        mode: permissions, such as ``0o660``.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        # On Linux the file gets the mode of the socket, less the umask.
        os.fchmod(listener.fileno(), mode)
        listener.bind(path)
        _set_mode(path, mode)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def tcp_refusal(host: str | None, port: int) -> str:
    """Say why nobody can listen on an address, and what to do; empty if one can. For who has failed, and does not know why."""
    try:
        listen_tcp(host, port).close()
    except OSError as error:
        return refusal(error, tcp_hint(error))
    return ""


def refusal(error: OSError, hint: str) -> str:
    """Return an error of :func:`listen_tcp` or :func:`listen_unix` in words, with what to do in brackets, if that is known."""
    return f"bind: {reason_of(error)}{hint and f' ({hint})'}"


def tcp_hint(error: OSError) -> str:
    """Say what to do about an address on which nobody can listen; empty if nothing is known."""
    if isinstance(error, socket.gaierror):
        return "it is no name of this host: choose another address"
    return _TCP_HINTS.get(error.errno or 0, "")


def socket_hint(path: str, error: OSError) -> str:
    """Say what to do about a path at which no unix socket can be made; empty if nothing is known."""
    return unix_hint(path) or _UNIX_HINTS.get(error.errno or 0, "")


def _set_mode(path: str, mode: int) -> None:
    """Set the mode of a socket's file, but not of what a symbolic link in its place leads to."""
    if not hasattr(os, "O_PATH"):  # not Linux
        os.chmod(path, mode)
        return
    handle = os.open(path, os.O_PATH | os.O_NOFOLLOW)
    try:
        if stat.S_ISSOCK(os.fstat(handle).st_mode):
            os.chmod(f"/proc/self/fd/{handle}", mode)
    finally:
        os.close(handle)


def _remove_stale(path: str) -> None:
    """Remove a socket file that a crash has left: nobody listens on it."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return  # bind fails and says why
    except FileNotFoundError:
        return
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        probe.settimeout(1.0)
        probe.connect(path)
    except ConnectionRefusedError:
        os.unlink(path)
    finally:
        probe.close()


def inode(path: str) -> tuple[int, int]:
    """Return what tells a file from another one that has taken its place."""
    found = os.lstat(path)
    return found.st_dev, found.st_ino


def unlink(path: str, expected: tuple[int, int]) -> None:
    """Remove a socket's file, if it is still the same.

    Args:
        path: of the file.
        expected: what :func:`inode` returned for the socket.
    """
    with contextlib.suppress(OSError):
        if inode(path) == expected:
            os.unlink(path)


__all__ = [
    "inode",
    "listen_tcp",
    "listen_unix",
    "refusal",
    "reserve_tcp",
    "socket_hint",
    "tcp_hint",
    "tcp_refusal",
    "unlink",
]
