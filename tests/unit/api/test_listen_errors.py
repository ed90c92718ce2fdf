"""An address on which nobody can listen: the reason without the system's numbers, and what to do."""

from __future__ import annotations

import errno
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pixy.api.grpc.server import GrpcServer
from pixy.api.rest.server import RestServer
from pixy.config import App
from pixy.errors import StartError, in_words, reason_of
from pixy.tap.http_view import Bind, HttpView

ELSEWHERE = "192.0.2.1"
"""An address for documentation (RFC 5737): no host has it."""


async def refusal(address: str) -> str:
    listener: Any = RestServer.__new__(RestServer)
    listener._address, listener._engine = address, SimpleNamespace(config=App())
    listener._edge = SimpleNamespace(worker=None)
    with pytest.raises(StartError) as caught:
        await RestServer.bind(listener)
    return str(caught.value)


def of_tcp(address: str, reason: str) -> str:
    before = "failed to start TCP based HTTP API server: failed to create listener: "
    return f"{before}listen tcp {address}: bind: {reason}"


async def test_an_address_of_another_host() -> None:
    """The text had the address twice, the second time as Python shows it."""
    assert await refusal(f"{ELSEWHERE}:1") == of_tcp(
        f"{ELSEWHERE}:1",
        "cannot assign requested address (it is no address of this host: choose another address)",
    )


async def test_a_name_that_nobody_has(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_such_host(*_: object, **_named: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr("pixy.api.edge.sockets.listen_tcp", no_such_host)
    assert await refusal("nohost:80") == of_tcp(
        "nohost:80", "name or service not known (it is no name of this host: choose another address)"
    )


async def test_a_port_for_which_the_right_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **_named: object) -> None:
        raise PermissionError(
            errno.EACCES, "Permission denied (while attempting to bind on address ('', 80))"
        )

    monkeypatch.setattr("pixy.api.edge.sockets.listen_tcp", refused)
    assert await refusal("127.0.0.1:80") == of_tcp(
        "127.0.0.1:80",
        "permission denied (a port below 1024 needs CAP_NET_BIND_SERVICE: choose another port, or give the daemon "
        "that right)",
    )


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")
async def test_a_folder_that_takes_no_sockets() -> None:
    """To root /proc looks like any folder; other users are told that they may not write there."""
    shown = await refusal("/proc/x.sock")
    assert shown.startswith(
        "failed to start Unix socket based HTTP API server: failed to create listener: listen unix /proc/x.sock: bind: "
    )
    assert shown.endswith(": choose a path in another one)") or "no right to write to /proc: " in shown


async def test_a_path_in_a_file_system_that_is_read_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("pixy.api.edge.sockets.listen_unix", refused)
    assert (await refusal(f"{tmp_path}/s")).endswith(
        "bind: read-only file system (no socket can be made in that directory: choose a path in another one)"
    )


async def refusal_of_grpc(address: str, error: str) -> str:
    """Return the text for an address that gRPC refuses with its own text, which names no reason."""

    def fails(_where: str) -> int:
        raise RuntimeError(f"{error}; set GRPC_VERBOSITY=debug for more")

    listener: Any = GrpcServer.__new__(GrpcServer)
    listener._address, listener._engine = address, SimpleNamespace(config=App())
    listener._server = SimpleNamespace(add_insecure_port=fails)
    with pytest.raises(StartError) as caught:
        await GrpcServer._listen(listener)
    before = f"failed to start gRPC server: failed to create listener: listen tcp {address}: "
    assert str(caught.value).startswith(before)
    return str(caught.value).removeprefix(before)


async def test_grpc_tells_a_port_that_is_taken_from_a_foreign_address() -> None:
    """One text stood for both."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert await refusal_of_grpc(f"127.0.0.1:{taken.getsockname()[1]}", "Failed to bind") == (
            "bind: address already in use (another process listens there: stop it, or choose another address)"
        )
    assert await refusal_of_grpc(f"{ELSEWHERE}:1", "Failed to bind") == (
        "bind: cannot assign requested address (it is no address of this host: choose another address)"
    )


async def test_what_grpc_alone_refuses_has_its_text() -> None:
    shown = await refusal_of_grpc("127.0.0.1:0", "Failed to bind to address 127.0.0.1:0")
    assert shown.startswith(
        "Failed to bind to address 127.0.0.1:0 (another process listens there, or it is no "
    )


async def test_the_tap_s_views() -> None:
    view = HttpView((ELSEWHERE, 1), None)  # type: ignore[arg-type]
    with pytest.raises(StartError) as caught:
        await HttpView._bind(view, Bind())
    assert str(caught.value) == f"cannot listen on {ELSEWHERE}:1: cannot assign requested address"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(errno.EADDRINUSE, "[errno 98] while binding"), "address already in use"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "/x"), "/x: no such file or directory"),
        (OSError("no\nnumber"), "no number"),
        (ValueError("two\n lines"), "two lines"),
    ],
)
def test_errors_in_words(error: Exception, text: str) -> None:
    assert in_words(error) == text
    assert not isinstance(error, OSError) or "errno" not in reason_of(error)
