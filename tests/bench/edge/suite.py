"""The rows about the edge: ``python -m tests.bench edge``; writes build/bench-edge.json.

``python -m tests.bench.edge.suite --rounds 3 --part cost`` is a short form of a part.
"""

from __future__ import annotations

import argparse
import asyncio

from tests.bench.edge import cost, credentials, idle_connections, overload
from tests.bench.report import ROOT, Report, on_kafka
from tests.kafka.cluster import Cluster

RESULT = ROOT / "build" / "bench-edge.json"
FOLDER = ROOT / "build" / "bench-edge"
TOPICS = ("rest-async", "rest-sync", "grpc", "overload", "idle")
ROUNDS = {"cost": 80, "overload": 7, "idle": 7}
"""Each part's; a round of the costs takes two seconds for each kind of request."""


def rows(cluster: Cluster, report: Report, rounds: dict[str, int]) -> None:
    """Add the rows of some parts."""
    bootstrap = cluster.bootstrap()[0]
    for topic in TOPICS:
        cluster.create_topic(topic, 4)
    known = credentials.make(FOLDER)
    if "cost" in rounds:
        config = credentials.configuration(FOLDER, "cost", bootstrap)
        asyncio.run(cost.run(report, config, known, rounds["cost"]))
    if "overload" in rounds:
        overload.run(report, FOLDER, bootstrap, known, rounds["overload"])
    if "idle" in rounds:
        idle_connections.run(report, FOLDER, bootstrap, known, rounds["idle"])


def run(rounds: dict[str, int] = ROUNDS) -> bool:
    """Run the rows; return whether all met their targets."""
    return on_kafka(lambda cluster, report: rows(cluster, report, rounds), RESULT, "in turn in one process")


if __name__ == "__main__":
    PARSER = argparse.ArgumentParser(description=__doc__)
    PARSER.add_argument("--rounds", type=int, default=0, help="of each part; 0: as many as in full")
    PARSER.add_argument("--part", choices=ROUNDS, action="append", default=[])
    OPTIONS = PARSER.parse_args()
    WANTED = {part: OPTIONS.rounds or ROUNDS[part] for part in OPTIONS.part or ROUNDS}
    raise SystemExit(not run(WANTED))
