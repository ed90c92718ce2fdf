"""A real nats-server for the tests: from PATH, or fetched once by ``make dev``: out of Debian's package, or built with Go."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

VERSION = "v2.11.4"
ROOT = Path(__file__).resolve().parents[3]
BUILT = ROOT / "build" / "nats" / "nats-server"
BUILD_TIMEOUT = 600


def find() -> str:
    """Return the path of nats-server. Skip the test, or in CI fail it, if there is none."""
    found = _installed()
    if found is None:
        import pytest  # main() runs without it

        text = "NOT TESTED: no nats-server: `make dev` builds it with Go, `apt-get install nats-server` has it too"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(text)
    return found


def _installed() -> str | None:
    return shutil.which(
        "nats-server", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin:{BUILT.parent}"
    )


def main() -> int:
    """Fetch or build the server if there is none; ``make dev`` calls this, because it takes longer than a test may."""
    if found := _installed():
        print(found)
        return 0
    BUILT.parent.mkdir(parents=True, exist_ok=True)
    why = "" if _unpack() else _build()
    if why:
        print(f"no nats-server, so the tests of actors.nats cannot run: {why}", file=sys.stderr)
    return 1 if why else 0


def _unpack() -> bool:
    """Take the server out of Debian's package, without installing it; return False where that is not possible. To build it takes a minute of processor."""
    with tempfile.TemporaryDirectory(prefix="nats-") as folder:
        for command in (["apt-get", "-qq", "download", "nats-server"], ["dpkg-deb", "-x", "*.deb", "."]):
            words = [
                str(each)
                for word in command
                for each in ([*Path(folder).glob(word)] if "*" in word else [word])
            ]
            try:
                subprocess.run(words, cwd=folder, capture_output=True, timeout=BUILD_TIMEOUT, check=True)
            except (OSError, subprocess.SubprocessError):
                return False
        found = [path for path in Path(folder).glob("usr/*bin/nats-server") if _runs(path)]
        if found:
            shutil.copy(found[0], BUILT)
        return bool(found)


def _runs(path: Path) -> bool:
    done = subprocess.run([path, "--version"], capture_output=True, timeout=60, check=False)
    return done.returncode == 0


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
