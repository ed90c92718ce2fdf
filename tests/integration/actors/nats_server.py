"""A real nats-server for the tests: from PATH (Debian's package ``nats-server``), or built once by ``make dev`` from Go's proxy."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

VERSION = "v2.11.4"
ROOT = Path(__file__).resolve().parents[3]
BUILT = ROOT / "build" / "nats" / "nats-server"
BUILD_TIMEOUT = 600


def find() -> str:
    """Return the path of nats-server. Skip the test, or in CI fail it, if there is none."""
    found = shutil.which(
        "nats-server", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin:{BUILT.parent}"
    )
    if found:
        return found
    text = (
        "NOT TESTED: no nats-server: `make dev` builds it with Go, `apt-get install nats-server` has it too"
    )
    if os.environ.get("CI"):
        pytest.fail(text)
    pytest.skip(text)


def main() -> int:
    """Build the server if there is none; ``make dev`` calls this, because it takes longer than a test may."""
    with contextlib.suppress(pytest.skip.Exception, pytest.fail.Exception):
        print(find())
        return 0
    BUILT.parent.mkdir(parents=True, exist_ok=True)
    why = _build()
    if why:
        print(f"no nats-server, so the tests of actors.nats cannot run: {why}", file=sys.stderr)
    return 1 if why else 0


def _build() -> str:
    if shutil.which("go") is None:
        return "Go is not installed"
    package = f"github.com/nats-io/nats-server/v2@{VERSION}"
    try:
        done = subprocess.run(
            ["go", "install", package],
            env={**os.environ, "GOBIN": str(BUILT.parent), "GOFLAGS": ""},
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"go install took more than {BUILD_TIMEOUT} s"
    return "" if done.returncode == 0 else (done.stderr.splitlines() or ["go install failed"])[-1]


class NatsServer:
    """A server on a free port of this machine, which can be killed and started again on the same port."""

    def __init__(self) -> None:
        self._path = find()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"nats://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        self._process = subprocess.Popen(
            [self._path, "-a", "127.0.0.1", "-p", str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                assert self._process.poll() is None, f"nats-server ended with {self._process.returncode}"
                assert time.monotonic() < deadline, "nats-server does not listen"
                time.sleep(0.05)

    def kill(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None


if __name__ == "__main__":
    sys.exit(main())
