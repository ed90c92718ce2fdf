"""Make and remove the listening sockets of the HTTP APIs. Each function may block."""

from __future__ import annotations

import contextlib
import os
import socket
import stat

_BACKLOG = 8192
"""Connections that wait to be accepted; the system lowers it to its own bound. Beyond it a client tries again after a second."""


def listen_tcp(host: str | None, port: int) -> socket.socket:
    """Listen on an address; None means all of IPv4. Raises OSError."""
    infos = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = infos[0]
    listener = socket.create_server(
        address[:2] if family == socket.AF_INET else address, family=family, backlog=_BACKLOG
    )
    listener.setblocking(False)
    return listener


def listen_unix(path: str, mode: int) -> socket.socket:
    """Listen on a unix socket, whose file nobody but those whom ``mode`` allows can use at any time. Raises OSError."""
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
    """Remove a socket's file, if it is still the same."""
    with contextlib.suppress(OSError):
        if inode(path) == expected:
            os.unlink(path)


__all__ = ["inode", "listen_tcp", "listen_unix", "unlink"]
