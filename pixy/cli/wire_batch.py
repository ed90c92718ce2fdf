"""``kafka-pixy wire batch``: convert record sets to JSON lines and back."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from pixy.cli import wire_records
from pixy.cli.wire import EXITS
from pixy.wire import batch, batch_header, compression, control, message_set
from pixy.wire.batch import Batch, Builder
from pixy.wire.exceptions import DecodeError, EncodeError, TruncatedError

_DESCRIPTION = """\
Decode a record set from a fetch response, a produce request or a log segment:
one JSON line for each record, {"offset", "timestamp" (ms), "key", "value",
"headers": [{"key", "value"}]}, with keys and values in base64 or null. Control
records also have "control". A batch that is cut off at the end is left out,
with a line on stderr. With --encode, read JSON lines and write one batch (see
--records-per-batch)."""

_EXAMPLES = {
    "kafka-pixy wire batch < fetched.hex": "",
    "kafka-pixy wire batch --raw --batches < 00000000000000000000.log": "the headers of batches in a segment of a log",
    """echo '{"value": "Z29vZCBuZXdz"}' | kafka-pixy wire batch --encode""": "",
}


def add_parser(subparsers: Any) -> None:
    """Add the command to ``kafka-pixy wire``."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "batch",
        help="convert a record set to JSON lines, and back",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
        exits=EXITS | {1: "invalid input; stderr names the byte"},
    )
    parser.add_argument("--raw", action="store_true", help="read or write bytes instead of hex")
    reading = parser.add_argument_group("decoding")
    reading.add_argument(
        "--batches", action="store_true", help="print one JSON line for each batch, from its header"
    )
    reading.add_argument("--no-control", action="store_true", help="leave control records out")
    reading.add_argument("--ignore-crc", action="store_true", help="do not check checksums")
    reading.add_argument(
        "--max-size",
        type=_positive,
        default=compression.MAX_SIZE,
        metavar="BYTES",
        help="largest size of a decompressed batch (%(default)s)",
    )
    writing = parser.add_argument_group("encoding (with --encode)")
    writing.add_argument("--encode", action="store_true", help="convert JSON lines to a record set")
    writing.add_argument(
        "--compression",
        choices=[codec.name.lower() for codec in compression.Codec],
        help="codec of the batch (none)",
    )
    writing.add_argument("--level", type=int, metavar="N", help="compression level (the codec's default)")
    writing.add_argument(
        "--records-per-batch", type=_positive, metavar="N", help="start a new batch after N records"
    )
    for name, text in _NUMBERS.items():
        writing.add_argument(f"--{name}", type=int, metavar="N", help=text)
    writing.add_argument("--transactional", action="store_true", help="mark as part of a transaction")
    parser.set_defaults(handler=lambda args: _run(parser, args))


_NUMBERS = {
    "producer-id": "id of an idempotent producer (-1: none)",
    "producer-epoch": "its epoch (-1)",
    "base-sequence": "its sequence number of the first record (-1)",
    "leader-epoch": "partition leader epoch (-1: the broker fills it in)",
}


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def _run(parser: argparse.ArgumentParser, args: argparse.Namespace) -> int:
    if args.encode:
        if args.batches or args.no_control or args.ignore_crc:
            parser.error("--batches, --no-control and --ignore-crc are for decoding")
        return _encode(args)
    only = ("compression", "level", "records_per_batch", *(name.replace("-", "_") for name in _NUMBERS))
    given = [name for name in only if getattr(args, name) is not None]
    if given or args.transactional:
        name = given[0].replace("_", "-") if given else "transactional"
        parser.error(f"--{name} needs --encode")
    return _decode(args)


# -- decoding ---------------------------------------------------------------------------------------


def _decode(args: argparse.Namespace) -> int:
    data = sys.stdin.buffer.read()
    if not args.raw:
        data = from_hex(data)
    show = _headers if args.batches else _records
    end = 0
    for start, end, magic in batch_header.slices(data):
        for document in show(data, start, end, magic, args):
            print_line(sys.stdout, document)
    if end < len(data):
        text = f"{len(data) - end} bytes are a batch that is cut off"
        if end == 0:
            raise TruncatedError(text, 0)
        sys.stdout.flush()
        print(f"kafka-pixy wire batch: {text}, left out (at byte {end})", file=sys.stderr)
    return 0


def from_hex(text: bytes) -> bytes:
    """Parse hex, ignoring white space. Raises DecodeError with the offset in the text."""
    digits = b"".join(text.split())
    try:
        return bytes.fromhex(digits.decode("ascii"))
    except ValueError:
        pass
    for position, byte in enumerate(text):
        if not (chr(byte).isspace() or byte in b"0123456789abcdefABCDEF"):
            raise DecodeError(f"{chr(byte)!r} is not a hex digit", position)
    raise DecodeError(f"an odd number of hex digits, {len(digits)}", len(text))


def print_line(out: TextIO, document: dict[str, Any]) -> None:
    """Write a JSON document as one line."""
    out.write(json.dumps(document) + "\n")


def _records(
    data: bytes, start: int, end: int, magic: int, args: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    check = not args.ignore_crc
    if magic in (0, 1):
        found = message_set.decode_entry(data, start, end, check_crc=check, max_size=args.max_size)
        yield from map(wire_records.to_json, found)
        return
    made = batch.unmarshal(data, start, check_crc=check)
    if made.is_control and args.no_control:
        return
    for record in made.records(max_size=args.max_size):
        document = wire_records.to_json(record)
        if made.is_control:
            try:
                marker = control.parse(record)
            except DecodeError as error:
                raise DecodeError(error.reason, start) from None
            document["control"] = {
                "type": getattr(marker.type, "name", marker.type),
                "coordinator_epoch": marker.coordinator_epoch,
            }
        yield document


def _headers(
    data: bytes, start: int, end: int, magic: int, args: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    document: dict[str, Any] = {"position": start, "size": end - start, "magic": magic}
    if magic in (0, 1):
        offset = int.from_bytes(data[start : start + 8], "big", signed=True)
        yield document | {"base_offset": offset}
        return
    header = batch_header.read(data, start, check_crc=not args.ignore_crc)
    yield document | {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.records_count,
        "compression": codec_name(header.codec),
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "delete_horizon": header.has_delete_horizon,
        "leader_epoch": header.partition_leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "crc": f"{header.crc:08x}",
    }


def codec_name(codec: int) -> str:
    """Return a codec's name, as ``zstd``, or the number of an unknown codec."""
    return codec.name.lower() if isinstance(codec, compression.Codec) else str(codec)


# -- encoding ---------------------------------------------------------------------------------------


def _encode(args: argparse.Namespace) -> int:
    codec = compression.get(args.compression or "none", args.level)
    out: Callable[[bytes], Any] = sys.stdout.buffer.write
    if not args.raw:
        out = lambda data: sys.stdout.write(data.hex())  # noqa: E731
    written = False
    for made in _batches(args):
        out(made.compress(codec).marshal())
        written = True
    if written and not args.raw:
        sys.stdout.write("\n")
    sys.stdout.buffer.flush()
    return 0


def _batches(args: argparse.Namespace) -> Iterator[Batch]:
    builder: Builder | None = None
    sequence = -1 if args.base_sequence is None else args.base_sequence
    offset = 0
    for line, document in wire_records.read_lines(sys.stdin.buffer):
        if builder is None:
            offset = document.get("offset", offset)
            builder = Builder(
                base_offset=offset,
                partition_leader_epoch=_given(args.leader_epoch),
                producer_id=_given(args.producer_id),
                producer_epoch=_given(args.producer_epoch),
                base_sequence=sequence,
                transactional=args.transactional,
            )
        try:
            builder.add(**document)
        except EncodeError as error:
            raise EncodeError(f"line {line}: {error}") from None
        offset = document.get("offset", offset) + 1
        if len(builder) == args.records_per_batch:
            yield builder.build()
            if sequence >= 0:
                sequence = (sequence + len(builder)) % 2**31  # wraps to 0 (KIP-98)
            builder = None
    if builder is not None:
        yield builder.build()


def _given(number: int | None) -> int:
    return -1 if number is None else number
