"""Child processes of the demo: the daemon and the pipeline's commands. They end with the demo, whatever happens."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.kafka.cluster import tied

ROOT = Path(__file__).resolve().parents[2]
_START = 60.0
_STOP = 60.0


class DemoError(Exception):
    """A step failed; the text names the step and the reason."""


def start(arguments: list[str], **streams: Any) -> subprocess.Popen[Any]:
    """Start ``kafka-pixy ...`` in a session of its own, so that the terminal's Ctrl-C reaches only the demo."""
    return subprocess.Popen(
        tied(
            [sys.executable, "-m", "pixy.cli.main", *arguments]
        ),  # even if the demo is killed, no process may be left
        cwd=ROOT,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": "200"},
        **streams,
    )


class Daemon:
    """The proxy, with its log in a file."""

    def __init__(self, config: Path, log: Path, grpc: int, rest: int) -> None:
        self.grpc, self.rest, self._log = grpc, rest, log
        with log.open("wb") as output:
            self._process = start(["--config", str(config)], stdout=output, stderr=output)
        deadline = time.monotonic() + _START
        while not _listens(rest):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise DemoError(f"the daemon did not start, see {log}:\n{log.read_text()[-2000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Drain and stop; raise DemoError unless the daemon reports that everything was written."""
        self._process.terminate()
        if self._process.wait(_STOP) != 0:
            raise DemoError(
                f"the daemon did not drain (exit code {self._process.returncode}), see {self._log}"
            )

    def close(self) -> None:
        """Kill it if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


class Command:
    """A running ``kafka-pixy pipeline ... --json``.

    Args:
        arguments: the command and its options.
        on_line: called with each line of stderr.
    """

    def __init__(self, arguments: list[str], on_line: Callable[[str], None]) -> None:
        self.name = arguments[0]
        self._on_line = on_line
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._process = start(
            ["pipeline", *arguments, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stderr:  # type: ignore[union-attr]
            with self._changed:
                self._lines.append(line.rstrip())
                self._changed.notify_all()
            self._on_line(line.rstrip())
        with self._changed:
            self._lines.append("")
            self._changed.notify_all()

    def wait_for(self, text: str) -> None:
        """Wait for a line that begins with ``text``; raise DemoError if the command ends first."""
        with self._changed:
            self._changed.wait_for(lambda: any(line.startswith(text) or not line for line in self._lines))
            if not any(line.startswith(text) for line in self._lines):
                raise DemoError(f"{self.name} ended before the line {text!r}: {self._last_lines()}")

    def kill(self) -> None:
        """Kill -9 the command and its children, Spark's JVM too."""
        self.close()
        if self._process.returncode != -signal.SIGKILL:
            raise DemoError(f"{self.name} had ended before it was killed: {self._last_lines()}")

    def result(self) -> dict[str, Any]:
        """Return its summary; raise DemoError unless the exit code is 0."""
        output = self._process.stdout.read()  # type: ignore[union-attr]
        code = self._process.wait()
        self._reader.join()
        if code != 0:
            raise DemoError(f"{self.name} ended with exit code {code}: {self._last_lines()}")
        found: dict[str, Any] = json.loads(output)
        return found

    def _last_lines(self) -> str:
        return "\n".join(line for line in self._lines[-10:] if line) or "no output"

    def close(self) -> None:
        """Kill it if it still runs."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
