"""Compare a Java producer and a Java consumer on real Kafka, directly and through the tap, in pairs.

``python -m tests.bench.wire.tap_kafka [ROUNDS] [RECORDS]``
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys

from tests.bench.report import ROOT, Report, console, pairs
from tests.bench.wire.tap import processor_seconds, run_tap
from tests.kafka.cluster import HERE, Cluster, libs

ROUNDS = 5
RECORDS = 400_000
"""Records of 1,000 bytes that each run writes, and reads."""
SIZE = 1_000
PRODUCER_TARGET = 0.95


def _java(main: str, *arguments: str) -> str:
    command = ["java", "-Xmx256m", f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}"]
    done = subprocess.run(
        [*command, "-cp", f"{libs(4)}/*", main, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return done.stdout


def produced(bootstrap: str, topic: str, records: int) -> float:
    """Return the MB per second of Kafka's own producer benchmark."""
    text = _java(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(SIZE), "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={bootstrap}", "batch.size=65536", "linger.ms=5"),
    )
    return float(re.findall(r"\(([\d.]+) MB/sec\)", text)[-1])


def consumed(bootstrap: str, topic: str, records: int) -> float:
    """Return the MB per second of Kafka's own consumer benchmark, without the time to join its group."""
    text = _java(
        "org.apache.kafka.tools.ConsumerPerformance",
        *(
            "--bootstrap-server",
            bootstrap,
            "--topic",
            topic,
            "--messages",
            str(records),
            "--timeout",
            "60000",
        ),
    )
    return float(text.strip().splitlines()[-1].split(",")[8])


def measure(report: Report, rounds: int = ROUNDS, records: int = RECORDS) -> None:
    """Measure, and add the rows."""
    kafka = Cluster(heap="512m")
    pids: list[int] = []
    try:
        kafka.create_topic("bench", 4)
        direct = kafka.bootstrap()[0]
        with run_tap(kafka.ports[1]["PLAINTEXT"], pids, "--rewrite") as port:
            tapped = f"127.0.0.1:{port}"
            ways = {"direct": direct, "tap": tapped}
            produced(direct, "bench", records)
            for what, run, target in (("producer", produced, PRODUCER_TARGET), ("consumer", consumed, 0.6)):
                rates: dict[str, list[float]] = {name: [] for name in ways}
                used = processor_seconds(pids[0])
                for number in range(rounds):
                    # Each pair the other way round: what runs second finds the caches warm.
                    for name in sorted(ways, reverse=bool(number % 2)):
                        rates[name].append(run(ways[name], "bench", records))
                used = (processor_seconds(pids[0]) - used) / (rounds * records * SIZE / 1e9)
                ratios = pairs(rates["tap"], rates["direct"])
                found = statistics.median(ratios)
                report.add(
                    f"tap: Java {what} on real Kafka",
                    f"{found:.2f} x direct",
                    f">= {target} x",
                    found >= target,
                    ", ".join(f"{name} {statistics.median(each):.0f}" for name, each in rates.items())
                    + f" MB/s; pairs {', '.join(f'{each:.2f}' for each in ratios)}; the tap uses {used:.2f} s of a core a GB",
                )
    finally:
        kafka.close()


def run(rounds: int = ROUNDS, records: int = RECORDS) -> bool:
    """Run these rows alone; return whether all met their targets."""
    console.print("tap, with Kafka's own benchmarks in Java")
    report = Report()
    measure(report, rounds, records)
    return report.finish(ROOT / "build" / "bench-tap-kafka.json")


if __name__ == "__main__":
    sys.exit(0 if run(*map(int, sys.argv[1:])) else 1)
