"""``make demo-console``: a sandbox, load, a consumer that is stuck, and the address of the console that shows why."""

from __future__ import annotations

import sys

EXIT_INTERRUPTED = 130


def main(args: list[str] | None = None) -> int:
    """Run the demo until Ctrl-C; return the exit code."""
    try:
        return _run(args)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _run(args: list[str] | None) -> int:
    # Here, so that Ctrl-C while they are imported is no traceback.
    import argparse
    import asyncio

    from pixy.cli.demo_console_round import ADDRESS, run
    from pixy.config.addresses import split_address
    from pixy.errors import StartError
    from pixy.escaping import escaped

    parser = argparse.ArgumentParser(prog="python -m pixy.cli.demo_console", description=__doc__)
    parser.add_argument("--address", default=ADDRESS, help=f"of the console (default {ADDRESS}; port 0: any)")
    options = parser.parse_args(args)
    try:
        split_address(options.address)
        return asyncio.run(run(options.address))
    except (StartError, ValueError) as error:
        print(f"The demo failed: {escaped(str(error))} (--address names another address)", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
