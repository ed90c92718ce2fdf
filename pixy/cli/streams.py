"""Standard streams that are closed, full, no longer read, or not UTF-8 cost one line, and never a traceback."""

from __future__ import annotations

import contextlib
import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Every command imports this before Ctrl-C is handled: it must be quick.
    from collections.abc import Callable
    from typing import Any

EXIT_ERROR = 1
EXIT_BROKEN_PIPE = 141
"""128 and the number of SIGPIPE, as other programs end whose reader has gone."""


_replaced: list[object] = []
"""Streams whose descriptors are still in use: they must not be closed."""


class _Output(io.FileIO):
    """Standard output that remembers why a write failed: no other OSError is taken for one of output."""

    error: OSError | None = None

    def write(self, data: Any) -> Any:
        """Write all to the descriptor: a signal ends a write in the middle, and without a buffer nobody writes the rest. Raises OSError."""
        view = memoryview(data).cast("B")
        done = 0
        try:
            while done < len(view):
                written: int | None = super().write(view[done:])
                if written is None:  # it does not wait
                    return done or None
                done += written
        except OSError as error:
            self.error = error
            raise
        return done


def prepare(*, results: bool = False) -> None:
    """Make the process's standard streams usable, whatever the caller has made of them.

    Python has None for a stream that is closed; the null device takes its place, and its descriptor, before anything else
    does. Output takes every character: one that its encoding lacks is written as an escape sequence.

    Args:
        results: standard output is for results, and standard input has messages, so using a closed one is an error; a daemon does
            without its log.
    """
    # The null device, opened the other way round, refuses what is read or written as a closed descriptor does (EBADF).
    wrong = {"stdin": os.O_WRONLY, "stdout": os.O_RDONLY} if results else {}
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, wrong.get(name, os.O_RDWR))
            setattr(sys, name, open(opened, mode, encoding="utf-8"))  # noqa: SIM115
    out: Any = sys.stdout
    out.flush()
    _replaced.append(out)
    raw: Any = _Output(out.fileno(), "w", closefd=False)
    sys.stdout = io.TextIOWrapper(
        # Without a buffer where Python was told so (PYTHONUNBUFFERED).
        raw if out.write_through else io.BufferedWriter(raw),
        out.encoding,
        "backslashreplace",
        line_buffering=out.line_buffering,
        write_through=out.write_through,
    )


def guarded(command: Callable[[], int], args: list[str]) -> int:
    """Run a command; return its exit code, or another one if standard output did not take all that it wrote.

    Args:
        command: returns its exit code; may raise SystemExit.
        args: its command line, for the error.
    """
    try:
        code = command()
    except OSError:
        if error := stuck():
            return failed(error, args)
        raise
    except SystemExit:
        if error := stuck():
            return failed(error, args)
        raise
    except KeyboardInterrupt:
        abandon(unless_read=True)
        raise
    error = stuck()
    return code if error is None else code or failed(error, args)


def stuck() -> OSError | None:
    """Write out what standard output and error still hold; return why output has failed, once.

    A stream that fails goes to the null device from then on: else the interpreter would try again at its end, and change the
    exit code to 120.
    """
    _flush(sys.stderr)
    error = _flush(sys.stdout)
    raw = _output()
    if raw is not None and raw.error is not None:
        error, raw.error = raw.error, None
    return error


def remark(text: str) -> None:
    """Print a line on standard error, unless that takes nothing at the moment: an event loop must not wait for its reader."""
    if _takes_more(sys.stderr):
        with contextlib.suppress(OSError):
            print(text, file=sys.stderr, flush=True)


def abandon(*, unless_read: bool = False) -> None:
    """Give up standard output, whose reader does not read: what it still holds goes to the null device, so nothing waits for him.

    Args:
        unless_read: only if it takes nothing at the moment; standard error as well.
    """
    raw = _output()
    if raw is not None and not (unless_read and _takes_more(raw)):
        _drop(sys.stdout)
    if unless_read and not _takes_more(sys.stderr):
        _drop(sys.stderr)


def _takes_more(stream: Any) -> bool:
    import select

    poll = select.poll()
    try:
        poll.register(stream, select.POLLOUT)
    except (OSError, ValueError, TypeError):  # a test's stream has no descriptor
        return True
    return bool(poll.poll(0))


def _output() -> _Output | None:
    """Return what :func:`prepare` has made; None if standard output is something else, as in a test."""
    buffer = getattr(sys.stdout, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    return raw if isinstance(raw, _Output) else None


def failed(error: OSError, args: list[str]) -> int:
    """Say why standard output failed, unless its reader has gone, who knows; return the exit code.

    Args:
        error: what writing to it raised.
        args: the command line; its first word names the command in the message.
    """
    if isinstance(error, BrokenPipeError):
        return EXIT_BROKEN_PIPE
    name = " ".join(["kafka-pixy", *(each for each in args[:1] if each.isalpha())])
    with contextlib.suppress(OSError):
        print(f"{name}: standard output: {error.strerror or error}", file=sys.stderr, flush=True)
    return EXIT_ERROR


def _flush(stream: Any) -> OSError | None:
    try:
        stream.flush()
    except OSError as error:
        _drop(stream)
        return error
    except ValueError:
        pass  # it is closed
    return None


def _drop(stream: Any) -> None:
    with contextlib.suppress(OSError, ValueError):  # a test's stream has no descriptor
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, stream.fileno())
        finally:
            os.close(null)


__all__ = ["EXIT_BROKEN_PIPE", "EXIT_ERROR", "abandon", "failed", "guarded", "prepare", "remark", "stuck"]
