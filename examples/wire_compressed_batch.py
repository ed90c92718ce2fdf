"""Build a compressed record batch, inspect its header and read it back, without a broker.

Usage: python examples/wire_compressed_batch.py [--compression zstd] [--output batch.bin]

The bytes written to --output are those of a produce request; `kafka-pixy wire batch --raw` reads them.
"""

import argparse
import json
import sys
from pathlib import Path

from pixy.wire import batch, compression
from pixy.wire.exceptions import WireError


def main() -> int:
    parser = argparse.ArgumentParser()
    names = [codec.name.lower() for codec in compression.Codec]
    parser.add_argument("--compression", choices=names, default="gzip")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()

    builder = batch.Builder()
    for number in range(1000):
        event = {"user": f"user-{number % 50}", "page": f"/products/{number % 7}", "seconds": number / 10}
        builder.add(event["user"].encode(), json.dumps(event).encode(), headers=[("type", b"visit")])
    plain = builder.build()

    chosen = plain
    for name in names:
        try:
            packed = plain.compress(compression.get(name))
        except WireError as error:  # the codec's library is not installed
            print(f"{name:>6}: {error}")
            continue
        mark = "  <- " + name if name == args.compression else ""
        print(f"{name:>6}: {len(packed.marshal()):>7,} bytes{mark}")
        if mark:
            chosen = packed

    data = chosen.marshal()
    if args.output:
        try:
            args.output.write_bytes(data)
        except OSError as error:
            sys.exit(f"{args.output}: {error.strerror}")

    (header,) = batch.scan(data)  # reads the header and checks the checksum; decompresses nothing
    print(f"offsets {header.base_offset} to {header.last_offset}, checksum {header.crc:08x}")
    records = batch.unmarshal(data).records()
    assert records == plain.records()
    print(f"{len(records)} records read back")
    return 0


if __name__ == "__main__":
    sys.exit(main())
