"""``make pipeline-demo``: send messages through the proxy, into a lake and back to Kafka, and prove it.

Everything is real: a Kafka broker and the daemon as child processes, Spark for the archive. The archive is
killed in the middle (kill -9) and run again. Exit code 0 only if every count and checksum agrees.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "pipeline-demo"
EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130
MIN_MESSAGES = 1000


def _messages(text: str) -> int:
    number = text.replace("_", "").replace(",", "")
    if not number.isdecimal() or int(number) < MIN_MESSAGES:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least {MIN_MESSAGES:,}")
    return int(number)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make pipeline-demo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--messages",
        type=_messages,
        default=1_000_000,
        metavar="N",
        help="number of messages (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=FOLDER,
        metavar="DIR",
        help="folder for lake and report (default: build/pipeline-demo)",
    )
    parser.add_argument(
        "--master", default="local[*]", metavar="URL", help="Spark's master (default: %(default)s)"
    )
    return parser


def _interrupt(_number: int, frame: FrameType | None) -> None:
    """Do what Ctrl-C does at this moment: asyncio cancels its task, where an exception out of gRPC's own code would crash."""
    as_for_ctrl_c = signal.getsignal(signal.SIGINT)
    if callable(as_for_ctrl_c):
        as_for_ctrl_c(signal.SIGINT, frame)
    else:  # ignored, as in the background of a script
        raise KeyboardInterrupt


def main() -> int:
    """Run the demo; return its exit code."""
    args = _parser().parse_args()
    from .demo import Demo, DemoError, console

    began = time.monotonic()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        demo = Demo(args.messages, args.out.resolve(), args.master)
    except DemoError as error:
        console.print(f"make pipeline-demo: {error}", markup=False, soft_wrap=True)
        return EXIT_USAGE
    code = EXIT_FAILED
    try:
        code = EXIT_OK if demo.run() else EXIT_FAILED
    except (KeyboardInterrupt, asyncio.CancelledError):
        # The latter if Ctrl-C comes right when asyncio.run() begins: CPython 3.11 to 3.13 then resets the count of
        # interrupts after it has cancelled the task.
        code = EXIT_INTERRUPTED
        console.print("interrupted: stopping all processes ...")
    except Exception as error:
        if not isinstance(error, DemoError):
            console.print_exception()
        console.print(f"the demo failed: {error}", style="bold red", markup=False, soft_wrap=True)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):  # a second signal must not interrupt the clean-up
            signal.signal(number, signal.SIG_IGN)
        demo.close(keep=code != EXIT_INTERRUPTED)
    console.print(f"{time.monotonic() - began:,.0f} s in all; no process is left")
    return code


if __name__ == "__main__":
    sys.exit(main())
