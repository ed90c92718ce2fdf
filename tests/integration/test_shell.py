"""The shell's commands against a daemon on the sandbox: the whole of stdout and stderr, and exit codes."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import fcntl
import json
import logging
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from pixy.api.batch_handlers import BatchHandlers
from pixy.cli.main import main
from pixy.kafka.sandbox import Sandbox
from tests.in_process import run_in_process
from tests.kafka.cluster import Cluster, free_port
from tests.support import ROOT, Daemon, eventually, make_config, serving

SANDBOX = Sandbox()
STARTED: list[asyncio.subprocess.Process] = []


@pytest.fixture(autouse=True)
async def no_process_stays() -> AsyncIterator[None]:
    """End what a test that failed has left running."""
    yield
    while STARTED:
        process = STARTED.pop()
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.fixture(autouse=True)
def no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard error is the shell's alone: the daemon in this process would log to it, too."""
    monkeypatch.setattr("logging.lastResort", logging.NullHandler())


@dataclass
class Done:
    code: int
    out: str
    err: str


class Shell:
    """Runs commands in this process, in a thread, against one daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.server = daemon.engine.addresses["grpc"]

    async def run(self, *args: str, stdin: bytes | str = b"") -> Done:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        line = [*args, "--server", self.server]
        done = await asyncio.to_thread(run_in_process, lambda: main(line), stdin=data)
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    async def good(self, *args: str, stdin: bytes | str = b"", err: str = "") -> str:
        done = await self.run(*args, stdin=stdin)
        assert (done.code, done.err) == (0, err), done
        return done.out

    async def start(self, *args: str, **options: Any) -> asyncio.subprocess.Process:
        options = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE} | options
        # A shell that runs the tests in the background lets them ignore Ctrl-C. Not by preexec_fn: Python code between
        # fork and exec hangs now and then among gRPC's threads.
        command = ["env", "--default-signal=INT", sys.executable, "-m", "pixy.cli.main", *args]
        process = await asyncio.create_subprocess_exec(*command, "--server", self.server, cwd=ROOT, **options)
        STARTED.append(process)
        return process


@contextlib.asynccontextmanager
async def shell(begins: str = "newest", **config: Any) -> AsyncIterator[Shell]:
    app = make_config(SANDBOX.seed_peers, initial_offset=begins, long_polling_timeout=0.3, **config)
    async with serving(app) as daemon:
        yield Shell(daemon)


async def test_the_quick_start_works_in_any_order(name: str) -> None:
    async with shell() as sh:
        # A newcomer asks for messages first: one line says what is missing.
        done = await sh.run("consume", name, "--group", "bar")
        assert (done.code, done.out) == (1, "")
        assert re.fullmatch(
            rf"kafka-pixy consume: NOT_FOUND: topic '{name}' does not exist; .*\n", done.err
        ), done.err
        await sh.good("produce", name, stdin="Good news everyone!\n", err=f"1 message written to {name}\n")
        done = await sh.run("consume", name, "--group", "new")
        assert (done.code, done.out) == (4, "")
        assert done.err == (
            "0 of 1 messages; nothing more came; a new group begins at the end of a topic, and this one goes on from there: "
            "another new one with --from-beginning, or this one after kafka-pixy group reset, reads what is there\n"
        )
        assert await sh.good("consume", name, "--group", "bar", "--from-beginning") == "Good news everyone!\n"
        # A group with committed offsets goes on where it is.
        await eventually(lambda: committed(sh, name, "bar"), lambda total: total == 1)
        done = await sh.run("consume", name, "--group", "bar", "--from-beginning")
        assert (done.code, done.err) == (4, "0 of 1 messages; nothing more came\n")


async def test_a_group_that_consumes_another_topic_does_not_begin_at_the_end_instead_of_the_beginning(
    kafka: Cluster, name: str
) -> None:
    """It skipped what was there, for good, and said only that the group has members."""
    other = f"{name}-2"
    app = make_config(kafka.bootstrap(), long_polling_timeout=0.3, subscription_timeout=4.0)
    async with serving(app) as daemon:
        sh = Shell(daemon)
        for topic in (name, other):
            await asyncio.to_thread(kafka.create_topic, topic)
            await sh.good("produce", topic, stdin=f"{topic}\n", err=f"1 message written to {topic}\n")

        async def joined() -> set[int]:
            with contextlib.suppress(grpc.RpcError):
                await sh.daemon.consume(name, "bar", auto_ack=True)
            return sh.daemon.owned(name, "bar")

        await eventually(joined)
        done = await sh.run("consume", other, "-g", "bar", "--from-beginning")
        assert (done.code, done.out) == (1, "") and "has members that consume other topics" in done.err, done
        assert {each.offset for each in (await sh.daemon.offsets(other, "bar")).values()} == {-1}

        async def begun() -> Any:
            return await sh.run("consume", other, "-g", "bar", "--from-beginning")

        done = await eventually(begun, lambda done: done.code == 0)
        assert done.out == f"{other}\n"


@pytest.mark.parametrize("begins", ["oldest", "newest"])
async def test_until_end_of_a_new_group_reads_what_the_group_gets(name: str, begins: str) -> None:
    """It took a group without offsets for one at the end, printed nothing and ended with 0, wherever the daemon lets it begin."""
    async with shell(begins) as sh:
        await sh.good("produce", name, stdin="a\nb\nc\n", err=f"3 messages written to {name}\n")
        done = await sh.run("consume", name, "-g", name, "--until-end")
        if begins == "oldest":
            assert (done.code, sorted(done.out.split()), done.err) == (0, ["a", "b", "c"], "")
        else:
            assert (done.code, done.out) == (0, "")
            assert done.err.startswith("no messages; a new group begins at the end of a topic, "), done
            assert "--from-beginning" in done.err


async def committed(sh: Shell, topic: str, group: str) -> int:
    return sum(max(0, each.offset) for each in (await sh.daemon.offsets(topic, group)).values())


WRONG = [
    (
        ["consume", "TOPIC", "--count", "-5"],
        2,
        "kafka-pixy consume: Invalid value for '-n' / '--count': -5 is not in",
    ),
    (
        ["produce", "TOPIC", "-H", "abc", "-m", "x"],
        2,
        "kafka-pixy produce: -H abc: NAME=VALUE is expected, such as",
    ),
    (
        ["produce", "TOPIC", "-m", "x", "-p", "9"],
        1,
        "kafka-pixy produce: not written: message 1: ",
    ),
    (
        ["produce", "TOPIC", "--file", "/none"],
        1,
        "kafka-pixy produce: --file /none: No such file or directory",
    ),
    (["produce", "TOPIC", "--tombstone"], 2, "kafka-pixy produce: --tombstone needs -k: "),
    (
        ["produce", "TOPIC", "--kye", "x"],
        2,
        "kafka-pixy produce: No such option '--kye'. Did you mean '--key'",
    ),
    (["ack", "TOPIC", "-g", "g", "-p", "77", "-o", "0"], 1, "it is 0 to 3|topic TOPIC has partitions 0 to 3"),
    (
        ["consume", "TOPIC", "--partition", "9"],
        1,
        "topic 'TOPIC' has no partition 9; it has partitions 0 to 3",
    ),
    (
        ["consume", "TOPIC", "--since", "monday"],
        2,
        "kafka-pixy consume: --since monday: a time such as 2026-11-22T10:00",
    ),
    (
        ["consume", "TOPIC", "-g", "g", "--since", "1h"],
        2,
        "--since is for reading without a group; kafka-pixy group",
    ),
    (["consume", "TOPIC", "--format", "%q"], 2, "--format: unknown '%q'; known are %t"),
    (["topic", "delete", "TOPIC"], 2, "Nobody to ask: give --yes"),
    (["topic", "create", "TOPIC"], 1, "topic TOPIC exists already; --if-not-exists lets that pass"),
    (
        ["topic", "descibe", "TOPIC"],
        2,
        "kafka-pixy topic: No such command 'descibe'. Did you mean 'describe'?",
    ),
    (["topic", "create", "a/b"], 1, "kafka-pixy topic: INVALID_ARGUMENT: bad topic: 'a/b' must be 1 to 249"),
    (["group", "describe", "nosuch"], 1, "group 'nosuch' does not exist; kafka-pixy group list shows all"),
    (["group", "reset", "g", "TOPIC"], 2, "one of --to and --shift is needed, such as --to begin"),
    (["offsets", "TOPIC", "-g", "g", "--set", "0:5"], 2, "'0:5' is not PARTITION=OFFSET, such as 0=100"),
    (
        ["topics", "TOPIC", "--cluster", "west"],
        1,
        "kafka-pixy topics: INVALID_ARGUMENT: proxy `west` does not exist",
    ),
    (["topics", "--profile", "staging"], 2, "kafka-pixy topics: --profile staging: there is no "),
    (["topics", "--ca", "/none"], 2, "kafka-pixy topics: --ca /none: No such file or directory"),
]


async def test_what_a_person_can_cause_is_one_line(name: str) -> None:
    async with shell() as sh:
        await sh.good("topic", "create", name, err=f"topic {name} created\n")
        for args, code, text in WRONG:
            line = [name if each == "TOPIC" else each for each in args]
            done = await sh.run(*line)
            assert (done.code, done.out, done.err.count("\n")) == (code, "", 1), (line, done)
            assert any(each.replace("TOPIC", name) in done.err for each in text.split("|")), (line, done.err)
    done = await sh.run("topics")  # the daemon has gone
    assert done.code == 1 and done.err == (
        f"kafka-pixy topics: UNAVAILABLE: no daemon answers at {sh.server}: connection refused; start one "
        "(kafka-pixy --sandbox), or name another with --server or KAFKA_PIXY_SERVER\n"
    )


async def test_many_lines_are_few_calls_and_keep_their_order(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60,000 lines took 60,000 calls, one after the other."""
    calls = 0
    original = BatchHandlers.produce_many

    async def counted(self: BatchHandlers, rq: Any, call: Any) -> Any:
        nonlocal calls
        calls += 1
        return await original(self, rq, call)

    monkeypatch.setattr(BatchHandlers, "produce_many", counted)
    lines = [b"line %d" % at for at in range(20_000)]
    async with shell() as sh:
        await sh.good("topic", "create", name, err=f"topic {name} created\n")
        await sh.good(
            "produce", name, "-k", "same", stdin=b"\n".join(lines), err=f"20000 messages written to {name}\n"
        )
        out = await sh.good("consume", name, "--until-end")
        assert out.encode().splitlines() == lines
    assert calls <= 400, "a call takes what has been read, a thousand lines at most"


async def test_what_consume_prints_can_be_produced_again(name: str) -> None:
    lines = [
        {
            "key": "k",
            "value": "text",
            "headers": {"source": "shell"},
            "partition": 2,
            "timestamp": 1_700_000_000_000,
        },
        {"key": {"base64": base64.b64encode(b"\xff").decode()}, "value": {"n": 1}, "partition": 2},
        {"key": "k", "value": None, "partition": 2},
    ]
    text = "".join(json.dumps(each) + "\n" for each in lines)
    async with shell() as sh:
        await sh.good("topic", "create", name, err=f"topic {name} created\n")
        await sh.good("topic", "create", f"{name}-2", err=f"topic {name}-2 created\n")
        await sh.good("produce", name, "--json-lines", stdin=text, err=f"3 messages written to {name}\n")
        out = await sh.good("consume", name, "--until-end", "--json")
        found = [json.loads(line) for line in out.splitlines()]
        assert [each["value"] for each in found] == [{"text": "text"}, {"text": '{"n":1}'}, None]
        assert found[0]["headers"] == [{"key": "source", "value": {"text": "shell"}}]
        assert (found[0]["timestamp"], found[1]["key"]) == (1_700_000_000_000, {"base64": "/w=="})
        await sh.good(
            "produce", f"{name}-2", "--json-lines", stdin=out, err=f"3 messages written to {name}-2\n"
        )
        assert await sh.good("consume", f"{name}-2", "--until-end", "--json") == out
        done = await sh.run("produce", name, "--json-lines", stdin='{"valeu": 1}\n')
        assert done.code == 1 and "line 1: unknown field 'valeu'; did you mean 'value'?" in done.err, done


async def test_keys_tombstones_formats_and_partitions(name: str) -> None:
    async with shell() as sh:
        await sh.good("topic", "create", name, err=f"topic {name} created\n")
        await sh.good(
            "produce", name, "-K", ":", "-Z", "-p", "1", "-H", "a=b", stdin="k1:v1\nk2:\nplain\n",
            err=f"3 messages written to {name}\n",
        )  # fmt: skip
        await sh.good(
            "produce", name, "-k", "gone", "--tombstone", "-p", "3", err=f"1 message written to {name}\n"
        )
        form = r"%t/%p@%o %k(%K)=%s(%S) %h\t%%\x21\n"
        out = await sh.good("consume", name, "-p", "1", "-n", "3", "--format", form)
        assert out == (
            f"{name}/1@0 k1(2)=v1(2) a=b\t%!\n{name}/1@1 k2(2)=(-1) a=b\t%!\n{name}/1@2 (-1)=plain(5) a=b\t%!\n"
        )
        assert await sh.good("consume", name, "-p", "3", "--format", "%k %S") == "gone -1"
        done = await sh.run("consume", name, "-p", "0", "-n", "2")
        assert (done.code, done.out, done.err) == (4, "", "0 of 2 messages; nothing more came\n")


async def test_tables_are_whole_when_they_are_piped_and_documents_parse(name: str) -> None:
    import yaml

    long = f"{name}-{'x' * 150}"
    async with shell() as sh:
        await sh.good("topic", "create", long, err=f"topic {long} created\n")
        await sh.good("produce", long, "-m", "x", "-p", "0", err=f"1 message written to {long}\n")
        await sh.good("consume", long, "-g", f"g-{long}", "--from-beginning")
        out = await sh.good("topic", "list")
        assert (
            f"{long}           4" in out
            and "…" not in out
            and all(line == line.rstrip() for line in out.splitlines())
        )
        assert f"g-{long}" in await sh.good("group", "list")
        assert long in json.loads(await sh.good("topic", "list", "--json"))
        assert yaml.safe_load(await sh.good("offsets", long, "-g", "g", "--output", "yaml"))[0]["end"] == 1
        described = json.loads(await sh.good("group", "describe", f"g-{long}", "--json"))
        assert described["state"] == "Stable" and described["offsets"][0]["topic"] == long
        none = (
            "offset -: nothing is committed, so the group begins there as a new one would: consumer.initial_offset of the "
            "daemon says where\n"
        )
        lines = (await sh.good("offsets", long, "-g", "g", err=none)).splitlines()
        assert lines[0].split()[:6] == ["partition", "begin", "end", "count", "offset", "lag"]
        assert lines[1].startswith("        0      0    1      1       -    -"), "numbers are right-aligned"
        status = json.loads(await sh.good("status", "--json"))
        assert status["clusters"] == {"default": {"brokers": [1]}}
        shown = dict(line.split(None, 1) for line in (await sh.good("status")).splitlines())
        assert shown["uptime"].rstrip().endswith(" s") and shown["clock"].strip() == "as ours", shown


async def test_offsets_are_reset_to_a_place_by_a_shift_and_only_shown(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name, 2)
    async with serving(make_config(kafka.bootstrap(), subscription_timeout=1)) as daemon:
        sh = Shell(daemon)
        await sh.good("produce", name, "-p", "0", stdin="a\nb\nc\nd\n", err=f"4 messages written to {name}\n")

        async def reset(*args: str, err: str = "") -> list[tuple[int, int | None, int]]:
            rows = json.loads(await sh.good("group", "reset", name, name, *args, "--json", err=err))
            return [(each["partition"], each["from"], each["to"]) for each in rows]

        assert await reset("--to", "begin", "--dry-run") == [(0, None, 0), (1, None, 0)]
        assert [each.offset for each in (await daemon.offsets(name, name)).values()] == [-1, -1]
        assert await reset("--to", "end") == [(0, None, 4), (1, None, 0)]
        assert await reset("--shift", "-3", "-p", "0") == [(0, 4, 1)]
        assert await reset("--to", "2", "-p", "0") == [(0, 1, 2)]
        assert await reset("--to", "1h", "-p", "0") == [(0, 2, 0)], "an hour ago nothing was there"
        assert await reset("--to", "now", "-p", "0") == [(0, 0, 4)]
        assert await reset("--shift", "-3", "-p", "0") == [(0, 4, 1)]
        await sh.good("offsets", name, "-g", name, "--set", "0=end", "--set", "1=begin")
        # Kafka stores no "end": -1 would be read as "nothing is committed", and partition 0 would come again from its oldest.
        assert [each.offset for each in (await daemon.offsets(name, name)).values()] == [4, 0]
        unknown = await sh.run("offsets", name, "-g", name, "--set", "7=end")
        assert unknown.code == 2 and unknown.err == f"kafka-pixy offsets: topic {name} has no partition 7\n"
        kept = "partition 0: -95 is before the beginning of the log: set to 0\n"
        assert await reset("--shift", "-99", "-p", "0", err=kept) == [(0, 4, 0)], "kept within the log"
        assert await sh.good("consume", name, "--since", "now", "--until-end") == ""
        assert await sh.good("consume", name, "--since", "1h", "--until-end") == "a\nb\nc\nd\n"
        assert await sh.good("consume", name, "-g", name, "-n", "2") == "a\nb\n"
        busy = await sh.run("group", "reset", name, name, "--to", "end")
        assert busy.code == 1 and "FAILED_PRECONDITION" in busy.err and f"group describe {name}" in busy.err

        async def deleted() -> int:
            return (await sh.run("group", "delete", name, "--yes")).code

        await eventually(deleted, lambda code: code == 0)
        done = await sh.run("group", "describe", f"{name[:-1]}")
        assert done.code == 1 and "does not exist" in done.err
        await sh.good("topic", "config", name, "--set", "retention.ms=60000", err=f"topic {name} changed\n")

        async def settings() -> Any:
            return json.loads(await sh.good("topic", "config", name, "--json"))

        await eventually(settings, lambda found: found == {"retention.ms": "60000"})
        await sh.good("topic", "delete", name, "--yes", err=f"topic {name} deleted\n")


async def test_an_interrupted_run_says_where_to_go_on(name: str) -> None:
    """Ctrl-C while standard input is open: the count is exact, and a second run with --skip completes it."""
    async with shell() as sh:
        await sh.good("topic", "create", name, err=f"topic {name} created\n")
        process = await sh.start("produce", name, "-p", "0", stdin=asyncio.subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(b"".join(b"%d\n" % at for at in range(100)))
        await process.stdin.drain()

        async def end() -> int:
            return (await sh.daemon.offsets(name, "g"))[0].end

        await eventually(end, lambda found: found == 100)
        process.send_signal(signal.SIGINT)
        out, err = await asyncio.wait_for(process.communicate(), 15)
        assert (process.returncode, out) == (130, b"")
        assert err.decode() == f"interrupted: 100 messages written to {name}; go on with --skip 100\n"
        lines = "".join(f"{at}\n" for at in range(150))
        await sh.good(
            "produce", name, "-p", "0", "--skip", "100", stdin=lines, err=f"50 messages written to {name}\n"
        )
        assert await sh.good("consume", name, "--until-end") == lines


async def test_messages_that_have_no_room_together_are_written_in_two_calls(
    name: str, tmp_path: Path
) -> None:
    """Short lines, and one as long as the daemon takes it; a longer one is named with its size."""
    lines = tmp_path / "lines"
    lines.write_text("x" * 250_000 + "\n" + "y" * 900_000 + "\n")
    async with shell() as sh:
        await sh.good("produce", name, "--lines", str(lines), err=f"2 messages written to {name}\n")
        (tmp_path / "big").write_text("z" * 3_000_000)
        done = await sh.run("produce", name, "--file", str(tmp_path / "big"))
        assert done.code == 1 and "message 1 has 3000" in done.err, done.err


async def test_a_daemon_that_stops_leaves_a_count(name: str) -> None:
    async with shell() as sh:
        await sh.good("topic", "create", name, err=f"topic {name} created\n")
        process = await sh.start("produce", name, "-p", "0", stdin=asyncio.subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        await eventually(lambda: sh.daemon.offsets(name, "g"), lambda found: found[0].end == 1)
    process.stdin.write(b"two\n")
    out, err = await asyncio.wait_for(process.communicate(), 15)
    assert (process.returncode, out) == (1, b"")
    assert re.fullmatch(
        r"kafka-pixy produce: UNAVAILABLE: (no daemon answers at .*|the daemon at .* is stopping); "
        rf"stopped: 1 message written to {name}"
        r"(, 1 more may have been)?; go on with --skip 1\n",
        err.decode(),
    ), err
    # Without a connection nobody has got the second one.
    assert (b"1 more may have been" in err) is (b": connection refused;" not in err), err


async def test_follow_outlives_its_daemon(name: str) -> None:
    app = make_config(SANDBOX.seed_peers, long_polling_timeout=0.3)
    app.grpc_addr = f"127.0.0.1:{free_port()}"
    async with serving(app) as daemon:
        sh = Shell(daemon)
        await sh.good("produce", name, "-m", "first", err=f"1 message written to {name}\n")
        process = await sh.start("consume", name, "--follow")
        assert process.stdout is not None and process.stderr is not None
        assert await asyncio.wait_for(process.stdout.readline(), 15) == b"first\n"
    line = (await asyncio.wait_for(process.stderr.readline(), 15)).decode()
    assert app.grpc_addr in line and line.endswith("; trying again until Ctrl-C\n")
    async with serving(app) as daemon:
        sh = Shell(daemon)
        await sh.good("produce", name, "-m", "second", err=f"1 message written to {name}\n")
        assert await asyncio.wait_for(process.stdout.readline(), 15) == b"second\n"
        process.send_signal(signal.SIGINT)
        out, err = await asyncio.wait_for(process.communicate(), 15)
    assert (process.returncode, out) == (
        130,
        b"",
    ) and err.decode() == f"the daemon at {app.grpc_addr} is back\n"


@pytest.mark.parametrize("grouped", [False, True])
async def test_sigterm_ends_the_wait_for_a_reader_that_does_not_read(name: str, grouped: bool) -> None:
    """The first signal waited for him for ever. What he has got only a part of is not acknowledged."""
    async with shell() as sh:
        lines = ("x" * 9999 + "\n") * 20
        await sh.good("produce", name, "-p", "0", stdin=lines, err=f"20 messages written to {name}\n")
        reader, writer = os.pipe()
        args = ["-g", name, "--from-beginning"] if grouped else []
        # Without a buffer a write that a signal has ended in the middle was taken for a whole one.
        env = {**os.environ, "PYTHONUNBUFFERED": "1" * grouped}
        process = await sh.start("consume", name, "-n", "0", *args, stdout=writer, env=env)
        os.close(writer)

        async def held() -> int:
            return int.from_bytes(fcntl.ioctl(reader, termios.FIONREAD, bytes(4)), sys.byteorder)

        full = await eventually(held, lambda found: found > 60_000)
        process.send_signal(signal.SIGTERM)
        _, err = await asyncio.wait_for(process.communicate(), 30)
        assert (process.returncode, err) == (143, b"")
        with os.fdopen(reader, "rb") as pipe:
            assert len(pipe.read()) >= full
        if grouped:
            await eventually(lambda: committed(sh, name, name), lambda found: found == full // 10_000)


async def test_on_a_terminal_no_bar_sticks_to_messages(name: str) -> None:
    async with shell() as sh:
        await sh.good("produce", name, stdin="one\ntwo\n", err=f"2 messages written to {name}\n")
        terminal, end = pty.openpty()
        process = await sh.start("consume", name, "-n", "2", stdout=end, stderr=end)
        os.close(end)
        await process.wait()
        shown = await asyncio.to_thread(_all, terminal)
        assert shown in (b"one\r\ntwo\r\n", b"two\r\none\r\n"), shown


@pytest.mark.parametrize("form", ["json", "yaml"])
async def test_messages_go_where_standard_output_goes_while_a_terminal_shows_a_bar(
    name: str, form: str
) -> None:
    """``consume --json > FILE`` left the file empty: the messages were on the terminal, and acknowledged."""
    async with shell() as sh:
        for line, what in (
            (["produce", name, "-p", "0"], b"offset"),
            (["consume", name, "-n", "2"], b"value"),
        ):
            terminal, end = pty.openpty()
            process = await sh.start(*line, "--output", form, stderr=end, stdin=asyncio.subprocess.PIPE)
            os.close(end)
            out, _ = await asyncio.wait_for(process.communicate(b"one\ntwo\n"), 30)
            shown = await asyncio.to_thread(_all, terminal)
            assert process.returncode == 0 and out.count(what) == 2 and what not in shown, (out, shown)


async def test_a_message_is_written_byte_for_byte(name: str, tmp_path: Path) -> None:
    """Its last bytes were lost if they were line ends; only a line loses its own."""
    whole = b"\x89PNG a\n\r\n"
    (tmp_path / "file").write_bytes(whole)
    async with shell() as sh:
        for line in (["-f", str(tmp_path / "file")], ["-m", "a\n"]):
            await sh.good("produce", name, "-p", "0", *line, err=f"1 message written to {name}\n")
        await sh.good("produce", name, "-p", "0", stdin=b"b\r\r\n", err=f"1 message written to {name}\n")
        out = await sh.good("consume", name, "--until-end", "--json")
    values = [json.loads(line)["value"] for line in out.splitlines()]
    assert values == [{"base64": base64.b64encode(whole).decode()}, {"text": "a\n"}, {"text": "b\r"}]


def _all(terminal: int) -> bytes:
    data = b""
    with contextlib.suppress(OSError), os.fdopen(terminal, "rb", buffering=0) as stream:
        while more := stream.read(65536):
            data += more
    return data


async def test_a_reader_that_goes_away_costs_no_line(name: str) -> None:
    async with shell() as sh:
        await sh.good(
            "produce", name, "-p", "0", stdin="x\n" * 50_000, err=f"50000 messages written to {name}\n"
        )
        line = f"{sys.executable} -m pixy.cli.main consume {name} --until-end --server {sh.server} | head -1"
        done = await asyncio.to_thread(
            subprocess.run, ["bash", "-c", line], capture_output=True, cwd=ROOT, timeout=60, check=False
        )
        assert (done.stdout, done.stderr) == (b"x\n", b"")


async def test_profiles_variables_and_flags(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shell() as sh:
        profiles = tmp_path / "profiles.yaml"
        profiles.write_text(f"here: {{server: '{sh.server}', output: json}}\nbad: {{sever: x}}\n")
        monkeypatch.setenv("KAFKA_PIXY_PROFILES", str(profiles))
        monkeypatch.setenv("KAFKA_PIXY_SERVER", sh.server)

        async def run(*args: str) -> Done:
            done = await asyncio.to_thread(run_in_process, lambda: main(list(args)))
            return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

        assert (await run("topics")).code == 0, "the variable"
        monkeypatch.setenv("KAFKA_PIXY_SERVER", "127.0.0.1:1")
        assert (await run("topics", "--server", sh.server)).code == 0, "a flag overrides the variable"
        monkeypatch.delenv("KAFKA_PIXY_SERVER")
        done = await run("topics", "--profile", "here")
        assert done.code == 0 and isinstance(json.loads(done.out), dict), "the profile"
        done = await run("topics", "--profile", "her")
        assert (done.code, done.err) == (
            2,
            f"kafka-pixy topics: {profiles}: no profile 'her'; did you mean 'here'?\n",
        )
        done = await run("topics", "--profile", "bad")
        assert done.code == 2 and "unknown key 'sever' in profile 'bad'; did you mean 'server'?" in done.err
