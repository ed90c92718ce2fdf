"""``make kafka``: run a real broker until Ctrl-C, and write a configuration of the daemon for it."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

import yaml

from tests.kafka.cluster import Cluster, Unavailable

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    """Run the broker; return the exit code."""
    parser = argparse.ArgumentParser(prog="make kafka", description=__doc__)
    parser.add_argument("config", type=Path, help="file for the configuration; removed when the broker stops")
    config: Path = parser.parse_args().config
    for number in _ENDS:
        signal.signal(number, signal.default_int_handler)
    print("starting Kafka (the first start fetches its jars with Maven) ...", flush=True)
    try:
        kafka = Cluster(auto_create=True)
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 1
    try:
        kafka.create_topic("journal")
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(
            yaml.safe_dump(
                {
                    "proxies": {
                        "main": {
                            "kafka": {"seed_peers": kafka.bootstrap()},
                            "consumer": {"initial_offset": "oldest"},
                            "journal": {"topic": "journal"},
                        }
                    }
                }
            )
        )
        print(
            f"Kafka is on {kafka.bootstrap()[0]}. The daemon for it: kafka-pixy --config {config}. Ctrl-C stops Kafka.",
            flush=True,
        )
        signal.pause()
    except KeyboardInterrupt:
        return 0
    finally:
        for number in _ENDS:  # a closed terminal and make send several; the broker's folder goes first
            signal.signal(number, signal.SIG_IGN)
        config.unlink(missing_ok=True)
        kafka.close()


if __name__ == "__main__":
    sys.exit(main())
