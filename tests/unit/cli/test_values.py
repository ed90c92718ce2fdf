"""Values that a person types, and that no message can hold: one line that names them, never a traceback."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pixy.cli.flags import make_parser
from pixy.cli.main import main
from pixy.cli.shell.errors import ShellError
from pixy.cli.shell.produce_input import Shape, to_record
from pixy.cli.shell.times import milliseconds
from tests.in_process import Finished, run_in_process

NOBODY = "127.0.0.1:1"
LATIN = os.fsdecode(b"caf\xe9")
"""An argument that is not UTF-8, as Python hands it over."""
HUGE = "99999999999999999999"
WRONG = [
    (["produce", "t", "-m", "x", "-p", "3000000000"], "'-p' / '--partition': 3000000000 is not in the range"),
    (["consume", "t", "-p", "3000000000"], "'-p' / '--partition': 3000000000 is not in the range"),
    (["group", "reset", "g", "t", "--to", "end", "-p", "3000000000"], "3000000000 is not in the range"),
    (["ack", "t", "-g", "g", "-p", "3000000000", "-o", "1"], "'-p' / '--partition': 3000000000 is not in"),
    (["ack", "t", "-g", "g", "-p", "0", "-o", HUGE], f"'-o' / '--offset': {HUGE} is not in the range"),
    (["offsets", "t", "-g", "g", "--set", "3000000000=1"], "'3000000000=1' is not PARTITION=OFFSET"),
    (["offsets", "t", "-g", "g", "--set", f"0={HUGE}"], f"'0={HUGE}' is not PARTITION=OFFSET"),
    (["consume", "t", "--since", HUGE], f"--since {HUGE}: a time such as"),
    (["consume", "t", "--since", "9" * 5000], "a time such as"),
    (["consume", "t", "--since", f"{HUGE}m"], f"--since {HUGE}m: a time such as"),
    (["consume", "t", "--since", ""], "--since : a time such as 2026-11-22T10:00"),
    (["consume", "t", "--group", ""], "--group is empty: name a group, or leave it out to read without one"),
    (["consume", "t", "-g", "g", "--since", ""], "--since is for reading without a group"),
    (["consume", "t", "--ack", "none"], "--ack is for reading as a group: name it with --group"),
    (["consume", "t", "--from-beginning", "--since", "1h"], "--from-beginning and --since cannot be given"),
    (["consume", "t", "-g", "g", "--follow", "--until-end"], "--follow and --until-end cannot be given"),
    (
        ["produce", "t", "--json-lines", "-K", ":"],
        "--json-lines and --key-delimiter cannot be given together",
    ),
    (["consume", "t", "--format", ""], "--format is empty: name what to print of a message, such as '%s\\n'"),
    (["produce", "t", "-m", "a", "-m", "b"], "-m / --message is given twice: it takes one value"),
    (["produce", "t", "-m", "a", "-k", "b", "--key", "c"], "-k / --key is given twice: it takes one value"),
    (["produce", "t", "-m", "a", "-p", "0", "-p", "1"], "-p / --partition is given twice: it takes one"),
    (["offsets", "t", "-g", "g", "--set", "0=1", "--set", "0=end"], "--set: partition 0 is given twice"),
    (["topic", "create", "t", "-c", "a=1", "-c", "a=2"], "a is given twice: a setting has one value"),
    (["topic", "config", "t", "--set", "a=1", "--set", "a=1"], "a is given twice: a setting has one value"),
    (
        ["topic", "config", "t", "-c", "a=1", "-c", "a=1"],
        "a is given twice: a setting has one value",
    ),  # as of create
    (["topic", "config", "t", "--set", "a=1", "--unset", "a"], "a is both set and unset"),
    (["doctor", "--config", "a", "--config", "b"], "--config is given twice: it takes one value"),
    (
        ["produce", "t", "-f", "/none", "-K", ":"],
        "--key-delimiter is for lines, and --file is one message: its key is that of -k",
    ),
    (["produce", "t", "-m", "a:b", "-K", ":"], "--key-delimiter is for lines, and --message is one message"),
    (["produce", "t", "-k", "k", "--tombstone", "-K", ":"], "--key-delimiter is for lines, and --tombstone"),
    (["status", "--timeout", "nan"], "'--timeout': "),
    (["status", "--timeout", "inf"], "'--timeout': inf is not in the range"),
    (["produce", "t", "-m", LATIN], "'-m' / '--message': it is not UTF-8; messages of any bytes come from"),
    (["produce", "t", "-m", "x", "-k", LATIN], "'-k' / '--key': it is not UTF-8"),
    (["produce", "t", "-m", "x", "-H", f"a={LATIN}"], "'-H' / '--header': it is not UTF-8"),
    (["produce", LATIN, "-m", "x"], "'TOPIC': it is not UTF-8"),
    (["topic", "create", "t", "-c", f"a={LATIN}"], "it is not UTF-8"),
    (["consumers", "t", "--cluster", LATIN], "'--cluster' (env var: 'KAFKA_PIXY_CLUSTER'): it is not UTF-8"),
]


def run(*args: str, stdin: bytes = b"") -> Finished:
    return run_in_process(lambda: main(list(args)), stdin=stdin)


@pytest.mark.parametrize(("args", "text"), WRONG, ids=lambda each: each[0] if isinstance(each, list) else "")
def test_it_is_one_line(args: list[str], text: str) -> None:
    done = run(*args, "--server", NOBODY)
    shown = done.stderr.decode()
    assert (done.returncode, done.stdout, shown.count("\n")) == (2, b"", 1), shown
    assert shown.startswith(f"kafka-pixy {args[0]}") and text in shown, shown


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (
            ["--tcpAddr", "a", "-tcpAddr=b"],
            ": bad command line: --tcpAddr is given twice: it takes one value",
        ),
        (["--tls", "--tls=false"], ": bad command line: --tls is given twice: it takes one value"),
        (["config", "show", "--config", "a", "--config", "b"], ": bad command line: --config is given twice"),
        (["tap", "--broker", "a", "--broker=b"], " tap: --broker is given twice: it takes one value"),
        (["keys", "list", "--file", "a", "--file", "b"], " keys list: --file is given twice: it takes one"),
        (["wire", "batch", "--level", "1", "--level", "2"], " wire batch: --level is given twice: it takes"),
        (
            ["pipeline", "archive", "--topics", "a", "--topics", "b"],
            " pipeline archive: --topics is given twice: it takes one value",
        ),
        (
            ["pipeline", "audit", "--config", "a", "--config", "b"],
            " pipeline audit: --config is given twice: it takes one value",
        ),
    ],
    ids=lambda each: each[0] if isinstance(each, list) else "",
)
def test_no_program_takes_the_last_of_two_values(args: list[str], text: str) -> None:
    """The shell's commands refused them; the daemon and the other programs dropped the first one in silence."""
    done = run(*args)
    shown = done.stderr.decode()
    assert (done.returncode, done.stdout, shown.count("\n")) == (2, b"", 1), shown
    assert shown.startswith("kafka-pixy") and text in shown, shown


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--tcpAdr", "a"], "unrecognized arguments: --tcpAdr a, did you mean '--tcpAddr'?"),
        (["--nothing-like-it"], "unrecognized arguments: --nothing-like-it (see"),
        (
            ["--server", "a:1", "status"],
            "--server belongs after the command: kafka-pixy status --server ... (see",
        ),
        (
            ["--profile=x", "topic", "list"],
            "--profile belongs after the command: kafka-pixy topic --profile ...",
        ),
        (["--tls", "-p", "0", "consume"], "-p belongs after the command: kafka-pixy consume -p ..."),
        (["--tls", "status"], "'status' is a command, which stands first: kafka-pixy status ... (see"),
        (["--config", "status", "--tcpAdr"], "unrecognized arguments: --tcpAdr, did you mean '--tcpAddr'?"),
        (["tap", "--brokr=a:1"], "unrecognized arguments: --brokr=a:1, did you mean '--broker'?"),
        (["tap", "--output", "jsno"], "'json', 'none'), did you mean 'json'?"),
        (["keys", "lst"], "'list'), did you mean 'list'?"),
        (["wire", "decde"], ", did you mean 'decode'?"),
        (["pipeline", "archiv"], ", did you mean 'archive'?"),
        (["consume", "t", "-n", "a"], "'a' is not a whole number (see"),
        (["status", "--timeout", "a"], "'a' is not a number (see"),
        (["group", "reset", "g", "t", "--shift", "a"], "'a' is not a whole number (see"),
    ],
    ids=lambda each: each[0] if isinstance(each, list) else "",
)
def test_what_was_meant_is_said(args: list[str], text: str) -> None:
    """The shell's commands suggested the right one, the programs did not; and click's number was no `integer range`."""
    done = run(*args)
    shown = done.stderr.decode()
    assert (done.returncode, done.stdout, shown.count("\n")) == (2, b"", 1) and text in shown, shown


def test_a_switch_may_be_repeated() -> None:
    """As ``alias kp='kafka-pixy --sandbox'`` makes people do."""
    parser = make_parser()
    for _ in range(2):  # each time from the beginning
        assert parser.parse_args(["--sandbox", "--sandbox", "-tls=true", "--tls"]).sandbox is True


LINES = {
    b'{"partition": 3000000000}': "partition 3000000000 is not a number from 0 to 2147483647",
    b'{"timestamp": 99999999999999999999}': "timestamp 99999999999999999999 is not a number from 0 to ",
    b'{"value": "\\ud83d"}': "half of a surrogate pair (\\ud800 to \\udfff) is no text",
    b'{"value": {"a": ["\\ud83d"]}}': "half of a surrogate pair",
    b'{"headers": {"\\ud83d": "x"}}': "half of a surrogate pair",
    b'{"value": {"base64": "\xc3\xa9"}}': "value: not base64: ",
    b'{"value": ' + b"[" * 100_000 + b"]" * 100_000 + b"}": "it is nested too deeply",
    b'{"partition": ' + b"9" * 5000 + b"}": f"partition {'9' * 40}... is not a number from 0 to 2147483647",
    b'{"value": NaN}': "not JSON: NaN is no number of JSON",
    b'{"value": "\xff"}': "not JSON: ",
}


def test_a_number_of_thousands_of_digits_is_not_shown_whole() -> None:
    shown = run("consume", "t", "-n", "9" * 5000, "--server", NOBODY).stderr.decode()
    assert "'-n' / '--count': '999" in shown and "9 ... 9" in shown and len(shown) < 1200, len(shown)


@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
def test_a_line_of_json_is_named_by_its_number(line: bytes) -> None:
    with pytest.raises(ShellError) as raised:
        to_record(line, 7, Shape(json_lines=True))
    assert str(raised.value).startswith("line 7: ") and LINES[line] in str(raised.value)
    assert len(str(raised.value)) < 300


def test_the_largest_values_are_taken() -> None:
    line = json.dumps({"partition": 2**31 - 1, "timestamp": 2**63 - 1, "value": "\U0001f600"}).encode()
    record = to_record(line, 1, Shape(json_lines=True))
    assert (record.partition, record.timestamp, record.value) == (2**31 - 1, 2**63 - 1, b"\xf0\x9f\x98\x80")
    assert milliseconds(str(2**63 - 1), "--since") == 2**63 - 1 and milliseconds("999d", "--since") > 0


@pytest.mark.parametrize(
    "content", [b"kp_secret\nkp_other\n", b"\xff\xfesecret", b"kp_ secret", "kp_é".encode()]
)
def test_a_token_that_cannot_be_sent_is_refused_and_not_shown(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(content)
    done = run("status", "--server", NOBODY, "--token-file", str(tmp_path / "token"))
    shown = done.stderr.decode()
    assert shown == (
        f"kafka-pixy status: --token-file {tmp_path}/token: a key or a token is one line of ASCII without spaces\n"
    )
    assert done.returncode == 2 and "secret" not in shown


def test_the_variable_s_token_is_looked_at_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PIXY_TOKEN", LATIN)
    done = run("status", "--server", NOBODY)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert done.stderr.startswith(b"kafka-pixy status: KAFKA_PIXY_TOKEN: ")


def test_a_file_of_keys_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "keys").write_bytes(b"\xff\xfe\x00")
    done = run("keys", "remove", "shop", "--file", str(tmp_path / "keys"))
    assert done.returncode == 1 and done.stderr.decode() == (
        f"kafka-pixy keys: auth.keys_file: {tmp_path}/keys: not UTF-8\n"
    )
    assert run("keys", "remove", "shop", "--file", str(tmp_path / "none")).stderr.count(b"\n") == 1


def test_an_empty_hash_removes_no_key(tmp_path: Path) -> None:
    """A variable of a script that is not set: it removed all of the name."""
    path = tmp_path / "keys"
    path.write_text(f"shop sha256:{'0' * 64}\n")
    done = run("keys", "remove", "shop", "--file", str(path), "--hash", "")
    assert done.returncode == 2 and done.stderr.decode() == (
        "kafka-pixy keys remove: argument --hash: it is empty: give the beginning of a hash, as `list` shows it "
        "(see kafka-pixy keys remove --help)\n"
    )
    assert path.read_text().startswith("shop ")
    assert run("keys", "remove", "shop", "--file", str(path), "--hash", "00").stdout == b"removed 1\n"


PIPELINE = [
    (["optimize", "--lake", "l", "--before", "2025-99-99"], "'2025-99-99' is not a day such as 2025-12-31"),
    (["optimize", "--lake", "l", "--before", "20251231"], "'20251231' is not a day such as 2025-12-31"),
    (["archive", "--metrics-port", "99999"], "'99999' is not a port from 1 to 65535"),
    (["archive", "--max-rate", HUGE], f"'{HUGE}' is not a number above 0"),
    (["archive", "--from", HUGE], f"'{HUGE}' is neither ISO 8601 nor milliseconds"),
    (["replay", "--partitions=-1"], "'-1' is not a list of partitions such as 0,3"),
    (["replay", "--partitions", "3000000000"], "'3000000000' is not a list of partitions such as 0,3"),
    (["replay", "--offsets=-1:0-5"], "'-1:0-5': no partition has the number -1"),
    (["replay", "--max-rate=-1"], "'-1' is not a number of records a second (0: unlimited)"),
    (["replay", "--key", LATIN], "it is not UTF-8: --key-hex takes any bytes"),
]


@pytest.mark.parametrize(("args", "text"), PIPELINE, ids=[" ".join(args[:2]) for args, _ in PIPELINE])
def test_the_pipeline_refuses_them_before_it_starts_anything(args: list[str], text: str) -> None:
    done = run("pipeline", *args)
    shown = done.stderr.decode()
    assert done.returncode == 2 and "Traceback" not in shown
    line = shown.splitlines()[-1].removesuffix(f" (see kafka-pixy pipeline {args[0]} --help)")
    assert line.endswith(text), shown
