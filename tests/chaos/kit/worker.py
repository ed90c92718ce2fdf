"""A worker with the kit's control socket. The supervisor starts it."""

from __future__ import annotations

import json
import os
import sys

from pixy.cli.processes.channel import VARIABLE
from pixy.cli.workers import worker
from tests.chaos.kit.daemon import ControlledEngine, install


def main() -> int:
    """Be a worker; return the exit code."""
    number = json.loads(os.environ[VARIABLE])["worker"]["number"]
    install(f"{os.environ['CHAOS_CONTROL']}-{number}", os.environ["CHAOS_PLANT"])
    worker.Engine = ControlledEngine  # type: ignore[misc]
    return worker.main()


if __name__ == "__main__":
    sys.exit(main())
