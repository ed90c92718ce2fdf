"""``kafka-pixy wire decode``, ``encode`` and ``list``: input, output, exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from pixy.cli.main import main
from pixy.cli.wire import run as run_here
from pixy.wire import messages
from tests.in_process import run_in_process
from tests.support import ROOT
from tests.unit.wire import bodies

JOIN = "02 67 00002710 000493e0 01 00 09 636f6e73756d6572 02 06 72616e6765 03 0102 00 00"
BODY = {
    "GroupId": "g",
    "SessionTimeoutMs": 10000,
    "RebalanceTimeoutMs": 300000,
    "MemberId": "",
    "GroupInstanceId": None,
    "ProtocolType": "consumer",
    "Protocols": [{"Name": "range", "Metadata": "AQI="}],
}
HEADER = {"RequestApiKey": 11, "RequestApiVersion": 7, "CorrelationId": 5, "ClientId": "c"}
HEADED = f"000b 0007 00000005 0001 63 00 {JOIN}"


def run(*arguments: str, stdin: str | bytes = "") -> subprocess.CompletedProcess[str]:
    data = stdin.encode() if isinstance(stdin, str) else stdin
    done = run_in_process(lambda: main(["wire", *arguments]), stdin=data)
    return subprocess.CompletedProcess(arguments, done.returncode, done.stdout.decode(), done.stderr.decode())


def good(*arguments: str, stdin: str = "") -> str:
    done = run(*arguments, stdin=stdin)
    assert done.returncode == 0 and done.stderr == "", done
    return done.stdout


def plain(text: str) -> str:
    return text.replace(" ", "")


@pytest.mark.parametrize(
    "name", ["JoinGroupRequest", "joingrouprequest", "JOINGROUPREQUEST", "JoinGroup", "11"]
)
def test_a_body_round_trips(name: str) -> None:
    out = good("decode", name, "7", stdin=JOIN)
    assert json.loads(out) == BODY and list(json.loads(out)) == list(BODY) and out.count("\n") == 1
    assert good("encode", name, "7", stdin=out) == plain(JOIN) + "\n"


def test_white_space_and_case_of_hex_digits() -> None:
    assert json.loads(good("decode", "JoinGroup", "7", stdin=f"\n\t {JOIN.upper()} \r\n")) == BODY
    assert json.loads(good("decode", "JoinGroup", "7", "--pretty", stdin="\n".join(plain(JOIN)))) == BODY


def test_responses() -> None:
    data = "00000000 0000 00 00 00000001 00001388 ff 00"
    for arguments in (
        ["ConsumerGroupHeartbeatResponse", "0"],
        ["consumergroupheartbeat", "0", "--response"],
        ["68", "0", "--response"],
    ):
        found = json.loads(good("decode", *arguments, stdin=data))
        assert found["HeartbeatIntervalMs"] == 5000 and found["Assignment"] is None


def test_headers_and_frames() -> None:
    whole = {"Header": HEADER, "Body": BODY}
    assert json.loads(good("decode", "JoinGroup", "7", "--header", stdin=HEADED)) == whole
    frame = f"{len(bytes.fromhex(HEADED)):08x}" + plain(HEADED)
    assert json.loads(good("decode", "JoinGroup", "7", "--frame", stdin=frame)) == whole
    text = json.dumps({"Header": {"CorrelationId": 5, "ClientId": "c"}, "Body": BODY})
    assert good("encode", "JoinGroup", "7", "--header", stdin=text) == plain(HEADED) + "\n"
    assert good("encode", "JoinGroup", "7", "--frame", stdin=text) == frame + "\n"
    answer = good("encode", "ApiVersionsResponse", "3", "--frame", stdin='{"Header": {"CorrelationId": 9}}')
    assert json.loads(good("decode", "ApiVersionsResponse", "3", "--frame", stdin=answer))["Header"] == {
        "CorrelationId": 9
    }
    old = "00000009 0023 00000000"  # error 35 in version 0 (KIP-511)
    assert (
        json.loads(good("decode", "ApiVersionsResponse", "3", "--header", stdin=old))["Body"]["ErrorCode"]
        == 35
    )


def test_uuids_bytes_and_tags() -> None:
    body = {
        "Topics": [
            {
                "TopicId": "AAAAAAAAAAAAAAAAAAAAAQ",
                "Partitions": [{"Partition": 0, "_tags": {"1000": "Pz8="}}],
            }
        ]
    }
    data = good("encode", "Fetch", "17", stdin=json.dumps(body))
    found = json.loads(good("decode", "Fetch", "17", stdin=data))
    assert found["Topics"][0]["TopicId"] == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert found["Topics"][0]["Partitions"][0]["_tags"] == {"1000": "Pz8="}
    body["Topics"][0]["TopicId"] = "00000000-0000-0000-0000-000000000001"
    assert good("encode", "Fetch", "17", stdin=json.dumps(body)) == data


@pytest.mark.slow
def test_every_message_in_every_version(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stdin:
        def __init__(self, text: str) -> None:
            self.buffer, self.text = self, text

        def read(self, _size: int) -> bytes:
            return self.text.encode()

    for name, version in bodies.ALL:
        data = messages.encode(name, version, bodies.typical(name, version)).hex()
        monkeypatch.setattr(sys, "stdin", Stdin(data))
        assert run_here(["decode", name, str(version)]) == 0
        monkeypatch.setattr(sys, "stdin", Stdin(capsys.readouterr().out))
        assert run_here(["encode", name, str(version)]) == 0
        assert capsys.readouterr().out.strip() == data, (name, version)


ERRORS: list[tuple[list[str], str | bytes, str]] = [
    (
        ["decode", "JoinGroup", "7"],
        JOIN[:8],
        "JoinGroupRequest v7: SessionTimeoutMs: the message ends, 1 bytes are left (at byte 2)",
    ),
    (["decode", "JoinGroup", "7"], JOIN + "00", "JoinGroupRequest v7: 1 bytes are left over (at byte 33)"),
    (["decode", "JoinGroup", "7"], "0 2 6", "not hex: half a byte at the end (at byte 1)"),
    (["decode", "JoinGroup", "7"], "02 6g", "not hex: 'g' (at byte 1)"),
    (["decode", "JoinGroup", "7"], b"02 \xff\xfe", "not hex: '\u00ff' (at byte 1)"),
    (
        ["decode", "JoinGroup", "7", "--frame"],
        "00000063 00",
        "a frame of 99 bytes, but 1 come after the length (at byte 0)",
    ),
    (
        ["decode", "JoinGroup", "7", "--header"],
        "000b",
        "RequestHeader v2: RequestApiVersion: the message ends, 0 bytes are left (at byte 2)",
    ),
    (
        ["encode", "JoinGroup", "7"],
        "{",
        "not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    ),
    (["encode", "JoinGroup", "7"], b"\xff", "not JSON: not UTF-8 (at byte 0)"),
    (["encode", "JoinGroup", "7"], "[" * 100_000, "not JSON that any message has: nested too deeply"),
    (
        ["encode", "JoinGroup", "7"],
        '{"SessionTimeoutMs": ' + "9" * 5000 + "}",
        "not JSON: Exceeds the limit (4300 digits)",
    ),
    (["encode", "JoinGroup", "7"], "[]", "JoinGroupRequest v7: list where a mapping of fields is needed"),
    (
        ["encode", "JoinGroup", "7"],
        '{"GroupID": "g"}',
        "JoinGroupRequest v7: GroupID: no such field (did you mean GroupId?)",
    ),
    (["encode", "JoinGroup", "7"], '{"GroupId": "a", "GroupId": "b"}', "GroupId is given twice"),
    (
        ["encode", "JoinGroup", "7"],
        '{"Protocols": [{}, {"Metadata": "?"}]}',
        "JoinGroupRequest v7: Protocols[1].Metadata: not base64: ",
    ),
    (
        ["encode", "JoinGroup", "7"],
        '{"Protocols": [{"Metadata": 7}]}',
        "JoinGroupRequest v7: Protocols[0].Metadata: int where a string with base64",
    ),
    (
        ["encode", "Fetch", "13"],
        '{"Topics": [{"TopicId": "x"}]}',
        "FetchRequest v13: Topics[0].TopicId: not a UUID: 'x'",
    ),
    (
        ["encode", "JoinGroup", "7"],
        '{"_tags": {"x": ""}}',
        "JoinGroupRequest v7: _tags: not the number of a tag: 'x'",
    ),
    (
        ["encode", "JoinGroup", "7", "--frame"],
        '{"GroupId": "g"}',
        '{"Header": {...}, "Body": {...}} is needed',
    ),
]


@pytest.mark.parametrize(("arguments", "stdin", "words"), ERRORS, ids=range(len(ERRORS)))
def test_an_error_is_one_line(arguments: list[str], stdin: str | bytes, words: str) -> None:
    done = run(*arguments, stdin=stdin)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith(f"kafka-pixy wire {arguments[0]}: {words}"), done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["decode", "JoinGruop", "7"], "unknown message 'JoinGruop' (did you mean JoinGroup?)"),
        (["decode", "FetchRespone", "7"], "did you mean FetchResponse?"),
        (["decode", "zzz", "7"], "`kafka-pixy wire list` shows all"),
        (["decode", "9999", "7"], "unknown API key 9999"),
        (["decode", "JoinGroup", "10"], "JoinGroupRequest has no version 10 (known: 0 to 9)"),
        (["decode", "JoinGroup", "-1"], "JoinGroupRequest has no version -1"),
        (["decode", "JoinGroup", "x"], "JoinGroupRequest has no version x"),
        (["decode", "ConsumerProtocolSubscription", "3", "--header"], "neither a request nor a response"),
        (["decode", "JoinGroup", "7", "--header", "--frame"], "not allowed with"),
        (["decode", "JoinGroup"], "VERSION"),
        (["decode"], "NAME"),
        (["no"], "invalid choice"),
        ([], "COMMAND"),
    ],
)
def test_a_wrong_command_line(arguments: list[str], words: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2 and done.stdout == "" and words in done.stderr, done.stderr


def test_latest() -> None:
    data = good("encode", "Heartbeat", "latest", stdin="{}")
    assert json.loads(good("decode", "Heartbeat", "4", stdin=data))["GroupInstanceId"] is None


def test_list() -> None:
    out = good("list")
    head, *lines = out.splitlines()
    assert head.split() == ["KEY", "VERSIONS", "FLEXIBLE", "NAME"] and len(lines) == len(messages.names())
    assert (
        " 11  0-9       6+        JoinGroupRequest" in lines
        and "  -  0-3       never     ConsumerProtocolAssignment" in lines
    )
    fields = good("list", "heartbeat")
    assert (
        "HeartbeatRequest key 12 versions 0-4 flexible 4+\n GroupId string 0+\n" in fields
        and "HeartbeatResponse" in fields
    )
    assert "Request" not in good("list", "HeartbeatResponse")


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "stdout", "stderr"),
    [
        (["encode", "Heartbeat", "0"], b"{}", 0, rb"[0-9a-f]+\n", b""),
        (["decode", "JoinGroup", "7"], b"02 \xff\xfe", 1, b"", b"kafka-pixy wire decode: not hex: .*\n"),
        (["decode"], b"", 2, b"", rb"kafka-pixy wire decode: .*NAME.*\n"),
    ],
)
def test_a_process(arguments: list[str], stdin: bytes, code: int, stdout: bytes, stderr: bytes) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pixy.cli.main", "wire", *arguments],
        cwd=ROOT,
        capture_output=True,
        input=stdin,
        check=False,
        timeout=60,
    )
    assert done.returncode == code, done
    assert re.fullmatch(stdout, done.stdout) and re.fullmatch(stderr, done.stderr), done


@pytest.mark.parametrize("command", ["decode", "encode", "list"])
def test_help(command: str) -> None:
    assert "kafka-pixy wire list" in good(command, "--help")
