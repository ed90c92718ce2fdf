"""``make demo``: start the sandbox and show one round over both APIs on screen."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the demo; return 0 if every step succeeded."""
    try:
        import asyncio

        from pixy.cli.demo_round import run  # here, so that Ctrl-C while it is imported is no traceback

        asyncio.run(run())
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        print(f"The demo failed: {error!r}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
