"""Run the commands of a page as they are printed: ``python -m tests.pages PAGE``.

They run in a fresh directory that looks like a checkout after ``make install``, on the very ports that the page names: so run this in
a network namespace of its own (``unshare --net``), which the tests do. The directory's ``make`` knows the targets that a page needs
and installs nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from tests.pages import ROOT, Block, blocks, developing, differences

STARTING = ("README.md", "docs/install.md")
"""The pages that say how to set the PATH; the others assume that it is set."""
IN_ANOTHER = "With `make run` in another terminal"
TIMEOUT = 600
"""Seconds that one block may take, and a terminal to be ready."""
LINKED = ("config", "docs", "examples", "proto", "pixy", "actors", "deploy", "README.md")
MAKE = f"""#!/bin/bash
case "$1" in
  install|pipeline-install) ;;
  run) exec kafka-pixy --sandbox ;;
  demo) exec python -m pixy.cli.demo ;;
  kafka) mkdir -p build; cd {ROOT} && exec python -m tests.kafka "$OLDPWD/build/kafka.yaml" ;;
  *) echo "make: the test knows no target $1" >&2; exit 2 ;;
esac
"""


class Failed(Exception):
    """A block did not do what the page says."""


def checkout(folder: Path) -> None:
    """Fill a directory with what a checkout has after ``make install``, as far as pages use it."""
    for name in LINKED:
        if (ROOT / name).exists():
            (folder / name).symlink_to(ROOT / name)
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, text in {
        "kafka-pixy": f'#!/bin/bash\nexec "{sys.executable}" -m pixy.cli.main "$@"\n',
        "python": f'#!/bin/bash\nexec "{sys.executable}" "$@"\n',
    }.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (programs / "activate").write_text(f'export PATH="{programs}:$PATH"\n')
    tools = folder / ".tools"
    tools.mkdir()
    (tools / "make").write_text(MAKE)
    (tools / "make").chmod(0o755)


def environment(folder: Path) -> dict[str, str]:
    """Return the variables of a newcomer's shell."""
    kept = {
        name: os.environ[name]
        for name in ("HOME", "LANG", "TERM", "JAVA_HOME", "TMPDIR")
        if name in os.environ
    }
    return {
        **kept,
        "PATH": f"{folder}/.tools:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "VENV_BIN": f"{folder}/.venv/bin",
    }


class Shell:
    """One interactive shell, in which the blocks of a page run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder / ".tools" / "output"
        self._done_read, done = os.pipe()
        os.set_blocking(self._done_read, False)
        self._process = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=environment(folder),
            stdin=subprocess.PIPE,
            text=True,
            pass_fds=(done,),
            start_new_session=True,
        )
        self._done = done

    def run(self, text: str) -> tuple[int, str]:
        """Run commands; return the exit code of the last one, and what a terminal would show."""
        script = self._folder / ".tools" / "block"
        script.write_text(text)
        assert self._process.stdin is not None
        self._process.stdin.write(f"source {script} > {self._log} 2>&1 < /dev/null; echo $? >&{self._done}\n")
        self._process.stdin.flush()
        code = self._code()
        return code, self._log.read_text(errors="replace")

    def _code(self) -> int:
        deadline = time.monotonic() + TIMEOUT
        while True:
            with contextlib.suppress(BlockingIOError):
                if data := os.read(self._done_read, 16):
                    return int(data)
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise Failed(f"it ended the shell, or takes longer than {TIMEOUT} s\n{self._log.read_text()}")
            time.sleep(0.02)

    def close(self) -> None:
        """End the shell and what it has started in the background."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait()


class Terminal:
    """A block in a terminal of its own."""

    def __init__(self, folder: Path, block: Block, number: int) -> None:
        self._log = folder / ".tools" / f"terminal-{number}"
        self._output: IO[str] = self._log.open("w")
        activate = f'export PATH="{folder}/.venv/bin:$PATH"\n'
        self._process = subprocess.Popen(
            ["bash", "-c", activate + block.text],
            cwd=folder,
            env=environment(folder),
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )

    def wait_until_ready(self) -> None:
        """Wait until it says how to stop it, or its daemon answers."""
        deadline = time.monotonic() + TIMEOUT
        while "Ctrl-C" not in self._log.read_text() and not _answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise Failed(f"it did not begin to serve\n{self._log.read_text()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Press Ctrl-C; it must end by that, with no traceback."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGINT)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            raise Failed(f"Ctrl-C did not end it\n{self._log.read_text()}") from None
        self._output.close()
        if "Traceback" in self._log.read_text():
            raise Failed(self._log.read_text())


def _answers() -> bool:
    try:
        with urllib.request.urlopen("http://localhost:19092/_ping", timeout=1) as answer:
            return bool(answer.read() == b"pong")
    except OSError:
        return False


def run_page(page: str, folder: Path) -> Iterator[str]:
    """Run a page; yield a line for each block that was run, and raise Failed at the first that fails."""
    checkout(folder)
    shell = Shell(folder)
    terminals: list[Terminal] = []
    if page not in STARTING:
        shell.run(". .venv/bin/activate")
    try:
        for block in runnable(page):
            started = time.monotonic()
            try:
                if "terminal" in block.options:
                    terminals.append(Terminal(folder, block, len(terminals)))
                    terminals[-1].wait_until_ready()
                else:
                    _run(shell, block)
            except Failed as error:
                raise Failed(f"{block.where}\n{block.text}\n{error}") from None
            yield f"{block.where}: {time.monotonic() - started:.1f} s"
    finally:
        for terminal in reversed(terminals):
            terminal.stop()
        shell.close()


def runnable(page: str) -> Iterator[Block]:
    """Yield the blocks that are run: of the shell, and the clients in Python (other tests run the programs of actors).

    A page that only says that ``make run`` runs in another terminal begins with that.
    """
    found = blocks(page)
    if IN_ANOTHER in (ROOT / page).read_text() and not any("terminal" in block.options for block in found):
        yield Block(page, 0, "sh", ("terminal",), "make run\n")
    for block in found:
        if (block.language == "sh" and not block.reason and not developing(block)) or (
            block.language == "python" and "KafkaPixyStub" in block.text
        ):
            yield block


def _run(shell: Shell, block: Block) -> None:
    text = f"python - <<'PROGRAM'\n{block.text}PROGRAM\n" if block.language == "python" else block.text
    code, output = shell.run(text)
    if code or "Traceback" in output:
        raise Failed(f"exit code {code}\n{output}")
    if block.expected is not None and (problem := differences(block.expected, output)):
        raise Failed(problem)


def main() -> int:
    """Run one page; return 1 if it does not do what it says."""
    parser = argparse.ArgumentParser(prog="python -m tests.pages", description=__doc__)
    parser.add_argument("page")
    page = parser.parse_args().page
    with tempfile.TemporaryDirectory(prefix="pixy-page-") as name:
        try:
            for line in run_page(page, Path(name)):
                print(line, flush=True)
        except Failed as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
