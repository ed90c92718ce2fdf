"""``make demo``: start the sandbox and show one round over both APIs on screen."""

from __future__ import annotations

import sys

EXIT_INTERRUPTED = 130


def main() -> int:
    """Run the demo; return 0 if every step succeeded."""
    try:
        import asyncio

        from pixy.cli.demo_round import run  # here, so that Ctrl-C while it is imported is no traceback

        whole = asyncio.run(run())
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:
        print(f"The demo failed: {error!r}", file=sys.stderr)
        return 1
    return 0 if whole else EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
