"""Read one partition with the low-level client: one connection to its leader, and our own offset.

Usage: python examples/wire_fetch_partition.py localhost:9092 TOPIC PARTITION [--from OFFSET] [--follow]

Prints a JSON line for each record, from the oldest to the newest at the time of the start; --follow goes on.
"""

import argparse
import json
import sys

from pixy.wire import client
from pixy.wire.errors import KafkaError, describe, lookup
from pixy.wire.exceptions import WireError


def text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("partition", type=int)
    parser.add_argument("--from", dest="start", type=int, help="an offset; by default the oldest")
    parser.add_argument("--follow", action="store_true")
    args = parser.parse_args()

    fetcher = client.PartitionFetcher(args.bootstrap, args.topic, args.partition, max_wait_ms=500)
    with fetcher:
        if args.start is None:
            fetcher.seek(client.OLDEST)
        else:
            fetcher.offset = args.start
        end = fetcher.list_offsets(client.NEWEST).offset
        print(
            f"{args.topic}/{args.partition} is led by {fetcher.leader()}: {fetcher.offset} to {end}",
            file=sys.stderr,
        )
        while args.follow or fetcher.offset < end:
            try:
                found = fetcher.fetch()
            except client.TransportError as error:
                print(f"retry: {error}", file=sys.stderr)  # the client itself retries nothing
                fetcher.forget()
                continue
            if found.error_code:
                if lookup(found.error_code).refresh:  # the leader has changed
                    fetcher.forget()
                    continue
                raise KafkaError(found.error_code)
            for record in found.records():
                print(
                    json.dumps(
                        {
                            "offset": record.offset,
                            "timestamp": record.timestamp,
                            "key": text(record.key),
                            "value": text(record.value),
                            "headers": [[key, text(value)] for key, value in record.headers],
                        }
                    )
                )
            if found.high_watermark > 0 and not found.record_set and not args.follow:
                break
            fetcher.offset = found.next_offset
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except (WireError, ValueError) as error:  # a ValueError: the bootstrap address is malformed
        code = getattr(error, "code", None)
        sys.exit(f"{error}" if code is None else f"Kafka says: {describe(code)}")
