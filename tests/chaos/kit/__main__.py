"""``make chaos``: run the kit and check what came of it, or check the records of an earlier run."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

# Brokers are forked while gRPC's threads run; its handlers of forks would only warn about it.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from tests.chaos.kit import plan as plans
from tests.chaos.kit.checker import check
from tests.chaos.kit.kinds import KINDS
from tests.chaos.kit.record import Recorder
from tests.kafka.cluster import Unavailable


def _arguments(args: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long to disturb (30)")
    parser.add_argument("--seed", type=int, help="decides about the faults; drawn and printed if left out")
    parser.add_argument("--membership", choices=plans.MEMBERSHIPS, default="kafka")
    parser.add_argument("--faults", default="", help=f"kinds, with commas between; all of {', '.join(KINDS)}")
    parser.add_argument("--rate", type=float, default=700.0, help="messages a second (700)")
    parser.add_argument(
        "--plant",
        default="-",
        help="defects of tests/chaos/kit/plants.py, to be found: one for all daemons, or one each",
    )
    parser.add_argument(
        "--front", choices=("portable", "envoy"), default="portable", help="server.front of the daemons"
    )
    parser.add_argument("--workers", type=int, default=1, help="server.workers of the daemons (1)")
    parser.add_argument("--drain", type=float, default=120.0, help="seconds for the groups to catch up (120)")
    parser.add_argument(
        "--silence",
        type=float,
        default=15.0,
        help="seconds that a partition with messages may be silent outside of faults (15)",
    )
    parser.add_argument(
        "--messages", type=int, default=0, help="end after so many deliveries, if that is earlier"
    )
    parser.add_argument("--records", type=Path, help="folder for the records (build/chaos/MEMBERSHIP-SEED)")
    parser.add_argument("--keep", action="store_true", help="keep the records of a run without findings")
    parser.add_argument("--check", type=Path, help="only check the records in this folder")
    return parser.parse_args(args)


async def _run(plan: plans.Plan, records: Recorder) -> None:
    from tests.chaos.kit.scenario import Scenario

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def interrupted() -> None:
        print("stopping: healing what is broken; once more ends at once", flush=True)
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)

    loop.add_signal_handler(signal.SIGINT, interrupted)
    loop.add_signal_handler(signal.SIGTERM, interrupted)
    await Scenario(plan, records, lambda line: print(line, flush=True)).run(stop)


def main(args: list[str] | None = None) -> int:
    """Run; return 0 without findings, 1 with some, 2 if Kafka cannot be started or the kit failed."""
    options = _arguments(args)
    if options.check is not None:
        return report(options.check)
    seed = random.SystemRandom().randrange(10_000) if options.seed is None else options.seed
    kinds = tuple(kind for kind in options.faults.split(",") if kind)
    plan = plans.Plan(
        seed,
        options.minutes,
        options.membership,
        kinds,
        plans.topics(options.rate),
        options.rate,
        options.plant,
        drain=options.drain,
        silence=options.silence,
        messages=options.messages,
        front=options.front,
        workers=options.workers,
    )
    folder = options.records or plans.RECORDS / f"{options.membership}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        import uvloop

        uvloop.run(_run(plan, Recorder(folder)))
    except (Unavailable, ValueError, TimeoutError) as error:
        print(f"{error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 2
    code = report(folder)
    if code == 0 and not options.keep and options.records is None:
        shutil.rmtree(folder, ignore_errors=True)
    return code


def report(folder: Path) -> int:
    """Check the records in a folder, print the outcome, return the exit code."""
    began = time.monotonic()
    outcome = check(folder)
    print("\n".join(outcome.lines()), flush=True)
    print(f"checked in {time.monotonic() - began:.0f} s")
    if outcome.findings:
        print(f"the records are in {folder}; check them again: python -m tests.chaos.kit --check {folder}")
    return 1 if outcome.findings else 0


if __name__ == "__main__":
    sys.exit(main())
