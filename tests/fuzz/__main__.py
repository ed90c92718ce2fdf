"""``python -m tests.fuzz TARGET [libFuzzer options]``: run a target under atheris (extra ``fuzz``), with seeds.

Limit the run with ``-max_total_time=60`` or ``-runs=100000``. It exits with 0 if it finds nothing, and otherwise writes
the failing input to a file.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["pixy.wire", "pixy.tap"]):
    from pixy.wire import compression, frames
    from tests.fuzz.targets import TARGETS

from tests.unit.wire.samples import message, typical


def seeds() -> dict[str, list[bytes]]:
    """Return the seed inputs by target."""
    plain = typical(6).build()
    whole = [plain.compress(compression.get(codec)) for codec in compression.Codec]
    old = [message(magic, 1, b"key", b"value", 9) for magic in (0, 1)]
    wrapped = [
        message(1, 1, None, compression.get(codec).compress(old[1]), 9, codec) for codec in (1, 2, 3, 4)
    ]
    return {
        "batches": [each.marshal() for each in whole],
        "record_sets": [whole[0].marshal() + whole[4].marshal() + old[1], *wrapped],
        "records": [b"\x06" + plain.payload],
        "packed": [bytes((each.codec,)) + each.payload for each in whole],
        "messages": [*old, *wrapped],
        "tap": [
            b"\x05"
            + b"".join(
                bytes((way | len(frame),)) + frame
                for way, frame in (
                    (
                        0x80,
                        frames.encode_request(
                            "Heartbeat", 3, 1, "c", {"GroupId": "g", "GenerationId": 1, "MemberId": "m"}
                        ),
                    ),
                    (0, frames.encode_response("Heartbeat", 3, 1, {})),
                )
            )
        ],
        "internals": [bytes.fromhex("00010001670001740000000a"), bytes.fromhex("0003" + "00" * 22)],
    }


def main() -> None:
    """Run until libFuzzer stops."""
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        sys.exit(f"usage: python -m tests.fuzz {{{','.join(TARGETS)}}} [-max_total_time=SECONDS] ...")
    name = sys.argv.pop(1)
    with tempfile.TemporaryDirectory(prefix=f"fuzz-{name}-") as folder:
        for number, seed in enumerate(seeds().get(name, [])):
            Path(folder, f"seed-{number}").write_bytes(seed)
        atheris.Setup([*sys.argv, folder], TARGETS[name])
        atheris.Fuzz()


main()
