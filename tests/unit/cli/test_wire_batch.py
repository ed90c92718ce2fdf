"""``kafka-pixy wire batch``: input, output, exit codes."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from typing import Any

import pytest

from pixy.cli.main import main
from pixy.wire import batch, compression, control
from pixy.wire.batch import Builder
from pixy.wire.record import Record
from tests.in_process import Finished, run_in_process
from tests.support import ROOT
from tests.unit.wire.samples import message, typical

PRODUCER = (
    "0000000000000000000000450000000002b8777b1c00000000000100000170eab6a7e000000170eab6a7e0"
    "ffffffffffffffffffff0000000000000002120000000006666f6f0012000002000662617200"
)
FOO = {"offset": 0, "timestamp": 1584485804000, "key": "", "value": "Zm9v", "headers": []}
BAR = {"offset": 1, "timestamp": 1584485804000, "key": "", "value": "YmFy", "headers": []}


def run(*arguments: str, stdin: str | bytes = "") -> Finished:
    data = stdin.encode() if isinstance(stdin, str) else stdin
    return run_in_process(lambda: main(["wire", "batch", *arguments]), stdin=data)


def run_process(*arguments: str, stdin: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "pixy.cli.main", "wire", "batch", *arguments],
        cwd=ROOT,
        capture_output=True,
        input=stdin,
        check=False,
        timeout=60,
    )


def lines(*arguments: str, stdin: str | bytes = "") -> list[dict[str, Any]]:
    done = run(*arguments, stdin=stdin)
    assert done.returncode == 0 and done.stderr == b"", done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_records_become_json_lines() -> None:
    assert lines(stdin=PRODUCER) == [FOO, BAR]
    assert lines(stdin=f" {PRODUCER[:7]}\n\t{PRODUCER[7:50]} \r\n{PRODUCER[50:].upper()}\n") == [FOO, BAR]
    assert lines("--raw", stdin=bytes.fromhex(PRODUCER)) == [FOO, BAR]
    assert list(lines(stdin=PRODUCER)[0]) == ["offset", "timestamp", "key", "value", "headers"]
    assert lines(stdin="") == []


def test_null_empty_and_headers() -> None:
    made = (
        Builder(base_offset=7, now=lambda: 5)
        .add(None, b"", [("h", None), ("h", b""), ("é", b"\xff")])
        .add(b"k", None)
    )
    first, second = lines(stdin=made.build().marshal().hex())
    assert first == {
        "offset": 7,
        "timestamp": 5,
        "key": None,
        "value": "",
        "headers": [
            {"key": "h", "value": None},
            {"key": "h", "value": ""},
            {"key": "é", "value": "/w=="},
        ],
    }
    assert second == {"offset": 8, "timestamp": 5, "key": "aw==", "value": None, "headers": []}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_round_trip(codec: str) -> None:
    whole = typical(7).build()
    text = run(stdin=whole.marshal().hex()).stdout
    packed = run("--encode", "--compression", codec, stdin=text)
    assert packed.returncode == 0, packed.stderr
    assert packed.stdout.endswith(b"\n") and packed.stdout.count(b"\n") == 1
    found = batch.unmarshal(bytes.fromhex(packed.stdout.decode()))
    assert found.codec == compression.Codec[codec.upper()] and found.decompress() == whole
    assert run(stdin=packed.stdout).stdout == text


def test_libkafkas_batch_round_trips() -> None:
    done = run(
        "--encode",
        "--base-sequence",
        "0",
        "--leader-epoch",
        "0",
        stdin=f"{json.dumps(FOO)}\n{json.dumps(BAR)}",
    )
    assert done.stdout.decode() == PRODUCER + "\n"


def test_missing_fields_get_defaults() -> None:
    done = run(
        "--encode", "--raw", stdin='{}\n\n{"value": "YQ==", "offset": 5}\n{"key": null, "headers": null}\n'
    )
    found = batch.unmarshal(done.stdout)
    records = found.records()
    assert [(each.offset, each.key, each.value, each.headers) for each in records] == [
        (0, None, None, ()),
        (5, None, b"a", ()),
        (6, None, None, ()),
    ]
    assert all(1.7e12 < each.timestamp < 1e14 for each in records)
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (-1, -1, -1)
    assert run("--encode", stdin="").stdout == b""


def test_batches_of_an_idempotent_producer() -> None:
    done = run(
        "--encode",
        "--raw",
        "--records-per-batch",
        "2",
        "--producer-id",
        "9",
        "--producer-epoch",
        "1",
        "--base-sequence",
        str(2**31 - 2),
        "--transactional",
        stdin="{}\n" * 5,
    )
    found = list(batch.iter_batches(done.stdout))
    assert [(each.base_offset, each.records_count, each.base_sequence) for each in found] == [
        (0, 2, 2**31 - 2),
        (2, 2, 0),
        (4, 1, 2),
    ]
    assert all(
        (each.producer_id, each.producer_epoch, each.is_transactional) == (9, 1, True) for each in found
    )


def test_headers_of_batches() -> None:
    whole = typical().build()
    whole.attributes |= 8
    data = whole.compress(compression.get("zstd")).marshal()
    first, second = lines("--batches", "--raw", stdin=data + message(1, 9, None, None))
    assert first == {
        "position": 0,
        "size": len(data),
        "magic": 2,
        "base_offset": 5,
        "last_offset": 7,
        "records": 3,
        "compression": "zstd",
        "timestamp_type": "LogAppendTime",
        "base_timestamp": 1_700_000_000_000,
        "max_timestamp": 1_700_000_000_002,
        "transactional": False,
        "control": False,
        "delete_horizon": False,
        "leader_epoch": -1,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "crc": f"{int.from_bytes(data[17:21], 'big'):08x}",
    }
    assert second == {"position": len(data), "size": 34, "magic": 1, "base_offset": 9}


def test_control_records_are_marked() -> None:
    marker = control.transaction_marker(control.ControlType.COMMIT, 4, 0, 8, base_offset=3, now=lambda: 6)
    data = bytes.fromhex(PRODUCER) + marker.marshal()
    *_, last = lines("--raw", stdin=data)
    assert last == {
        "offset": 3,
        "timestamp": 6,
        "key": base64.b64encode(bytes((0, 0, 0, 1))).decode(),
        "value": base64.b64encode(bytes((0, 0, 0, 0, 0, 8))).decode(),
        "headers": [],
        "control": {"type": "COMMIT", "coordinator_epoch": 8},
    }
    assert lines("--raw", "--no-control", stdin=data) == [FOO, BAR]
    done = run("--encode", stdin=json.dumps(last))
    assert done.returncode == 1 and b"line 1: a control record; only brokers write those" in done.stderr


def test_old_messages() -> None:
    assert lines("--raw", stdin=message(0, 4, b"k", None)) == [
        {"offset": 4, "timestamp": -1, "key": "aw==", "value": None, "headers": []}
    ]


def test_a_truncated_last_batch_is_reported() -> None:
    done = run(stdin=PRODUCER + PRODUCER[:-2])
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 2
    assert (
        done.stderr == b"kafka-pixy wire batch: 80 bytes are a batch that is cut off, left out (at byte 81)\n"
    )


BAD_CRC = PRODUCER.replace("0666", "0667")


@pytest.mark.parametrize(
    ("arguments", "stdin", "text"),
    [
        ((), PRODUCER[:-2], "80 bytes are a batch that is cut off (at byte 0)"),
        ((), PRODUCER[:9] + "g" + PRODUCER[9:], "'g' is not a hex digit (at byte 9)"),
        ((), PRODUCER[:-1], "an odd number of hex digits, 161 (at byte 161)"),
        ((), PRODUCER[:32] + "07" + PRODUCER[34:], "unsupported magic 7 (at byte 16)"),
        ((), PRODUCER + BAD_CRC, "its header says 0xb8777b1c (at byte 81)"),
        (("--batches",), BAD_CRC, "checksum of a batch is"),
        (
            ("--ignore-crc",),
            BAD_CRC.replace("0667", "0767"),
            "length of the value is -4, with 4 bytes left (at byte 66)",
        ),
        (("--max-size", "5"), "GZIP", "larger than 5 bytes (at byte 61)"),
        (("--encode",), '{}\n{"value": "a?"}\n', "line 2: value is not base64 (at byte 3)"),
        (("--encode",), '{"value": 1}', "line 1: value is neither base64 nor null"),
        (("--encode",), "{", "line 1: not JSON"),
        (("--encode",), "[]", "line 1: not a JSON object"),
        (
            ("--encode",),
            '{"val": null}',
            "line 1: unknown field 'val'; there are offset, timestamp, key, value, headers",
        ),
        (("--encode",), '{"offset": 1.0}', "line 1: offset is not a 64 bit integer"),
        (("--encode",), '{"offset": true}', "line 1: offset is not a 64 bit integer"),
        (("--encode",), '{"offset": -2}', "line 1: offset is negative"),
        (("--encode",), '{"timestamp": 9223372036854775808}', "line 1: timestamp is not a 64 bit integer"),
        (("--encode",), '{"offset": 3}\n{"offset": 3}', "line 2: offset 3 is not after those before"),
        (("--encode",), '{"offset": 0}\n{"offset": 4294967296}', "4294967296 does not fit a varint"),
        (("--encode",), '{"headers": {}}', "line 1: headers is not a list"),
        (("--encode",), '{"headers": [{"value": null}]}', 'line 1: header 0 is not an object with a "key"'),
        (("--encode",), '{"headers": [{"key": "a", "val": null}]}', "line 1: header 0 has more than"),
        (("--encode",), '{"headers": [{"key": "a", "value": "?"}]}', "line 1: header 0: value is not base64"),
        (("--encode",), '{"headers": [{"key": "\\ud800"}]}', "line 1: key of header 0 is not text"),
        (("--encode",), "[" * 100_000, "line 1: not JSON"),
        (
            ("--encode", "--producer-epoch", "40000"),
            "{}",
            "producer_epoch of a batch is 40000, which is not an int16",
        ),
        (("--encode", "--compression", "gzip", "--level", "10"), "{}", "gzip has levels 0 to 9, not 10"),
    ],
)
def test_an_error_is_one_line(arguments: tuple[str, ...], stdin: str, text: str) -> None:
    if stdin == "GZIP":
        stdin = typical().build().compress(compression.get("gzip")).marshal().hex()
    done = run(*arguments, stdin=stdin)
    assert done.returncode == 1, done.stdout
    assert text in done.stderr.decode()
    assert done.stderr.startswith(b"kafka-pixy wire batch: ") and done.stderr.count(b"\n") == 1


def test_output_before_an_error_is_printed() -> None:
    done = run(stdin=PRODUCER + BAD_CRC)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [FOO, BAR]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--compression", "gzip"),
        ("--encode", "--compression", "brotli"),
        ("--transactional",),
        ("--max-size", "0"),
        ("--encode", "--batches"),
        ("--producer-id", "1"),
        ("--records-per-batch", "0", "--encode"),
        ("--nonsense",),
    ],
)
def test_a_wrong_command_line(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == 2 and done.stdout == b"" and done.stderr.startswith(b"kafka-pixy wire")


def test_help() -> None:
    done = run("--help")
    assert done.returncode == 0 and b"--encode" in done.stdout


def test_a_process_reads_and_writes_bytes() -> None:
    done = run_process("--raw", stdin=bytes.fromhex(PRODUCER))
    assert done.returncode == 0 and done.stderr == b"", done
    again = run_process("--encode", "--raw", "--base-sequence", "0", "--leader-epoch", "0", stdin=done.stdout)
    assert again.stdout == bytes.fromhex(PRODUCER), again


def test_a_process_exits_with_a_code() -> None:
    done = run_process(stdin=(PRODUCER + BAD_CRC).encode())
    assert done.returncode == 1 and done.stdout.count(b"\n") == 2, done
    assert done.stderr.startswith(b"kafka-pixy wire batch: ") and done.stderr.count(b"\n") == 1
    done = run_process("--nonsense", stdin=b"")
    assert done.returncode == 2 and done.stdout == b"" and done.stderr.startswith(b"kafka-pixy wire")


def test_a_closed_pipe() -> None:
    """As any other command: it was 1, as for invalid input."""
    many = Builder().extend(Record(n, 0, None, b"x" * 50) for n in range(20_000)).build().marshal()
    process = subprocess.Popen(
        [sys.executable, "-m", "pixy.cli.main", "wire", "batch", "--raw"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    with process.stdin, process.stdout, process.stderr:
        process.stdin.write(many)
        process.stdin.close()
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 141 and process.stderr.read() == b""
