"""Launches a worker process from a thread, which also waits for its end, so that the event loop does neither.

The thread lives as long as the process: Linux ends a process whose parent-death signal is set when the *thread*
that started it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial

LOOK_AT_LOOP = 1.0
"""Seconds between two looks whether the parent's loop is closed."""

_COMMAND = "import sys; sys.path.insert(0, {root!r}); from actors.process.main import main; main({fd})"


def launch(
    loop: asyncio.AbstractEventLoop,
    path: str,
    on_launched: Callable[[subprocess.Popen[bytes]], None],
    on_ended: Callable[[int | None, Exception | None], None],
) -> socket.socket:
    """Begin the thread that launches the process; return the parent's end of the connection.

    Args:
        loop: runs the callbacks. The process is killed if it is closed first.
        path: the actor's path, which the thread's name has.
        on_launched: called with the process.
        on_ended: called with the exit code when the process has ended; with None and why if it could not be launched.

    Raises:
        RuntimeError: the system has no more threads.
        OSError: it has no more file descriptors.
    """
    ours, theirs = socket.socketpair()
    try:
        ours.setblocking(False)
        threading.Thread(
            target=_run,
            args=(theirs, loop, on_launched, on_ended),
            name=f"wait for the worker of {path}",
            daemon=True,
        ).start()
    except BaseException:
        ours.close()
        theirs.close()
        raise
    return ours


def _run(
    theirs: socket.socket,
    loop: asyncio.AbstractEventLoop,
    on_launched: Callable[[subprocess.Popen[bytes]], None],
    on_ended: Callable[[int | None, Exception | None], None],
) -> None:
    """Launch the process and wait for its end; in the thread."""
    tell = partial(_tell, loop)
    try:
        process = _start(theirs)
    except Exception as error:  # whatever it is, the start must not wait for a process
        tell(partial(on_ended, None, error))
        return
    tell(partial(on_launched, process))
    _kill_without_loop(process, loop)
    tell(partial(on_ended, process.wait(), None))


def _start(theirs: socket.socket) -> subprocess.Popen[bytes]:
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with theirs:
        return subprocess.Popen(
            [
                sys.executable,
                *subprocess._args_from_interpreter_flags(),  # type: ignore[attr-defined]
                "-c",
                _COMMAND.format(root=root, fd=theirs.fileno()),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
        )


def _kill_without_loop(process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop) -> None:
    """Wait for the end of the process; kill it if the loop is closed first. Linux only, as pidfds are."""
    try:
        ended = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        return
    try:
        watched = select.poll()
        watched.register(ended, select.POLLIN)
        while not watched.poll(LOOK_AT_LOOP * 1000):
            if loop.is_closed():
                process.kill()
    finally:
        os.close(ended)


def _tell(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
        loop.call_soon_threadsafe(call)
