"""The shell without a daemon: help, completion, man pages, and the programs beside it."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import grpc
import pytest

from pixy.cli import COMMANDS, COMPLETE, EXITS, PROGRAMS, pipeline, wire_messages
from pixy.cli.main import main
from pixy.cli.shell import group, offsets, output, profiles, session, topic
from pixy.cli.shell.app import ROOT
from pixy.cli.shell.errors import CallError, ShellError
from pixy.cli.shell.man_pages import pages
from pixy.cli.shell.times import clock_ahead
from pixy.errors import GroupActive
from tests.in_process import Finished, run_in_process
from tests.support import ROOT as REPOSITORY


def run(*args: str) -> Finished:
    return run_in_process(lambda: main(list(args)))


def every(ctx: click.Context) -> list[click.Context]:
    found = [ctx]
    if isinstance(ctx.command, click.Group):
        for name in ctx.command.list_commands(ctx):
            command = ctx.command.get_command(ctx, name)
            assert command is not None
            found += every(click.Context(command, info_name=name, parent=ctx))
    return found


def test_every_command_has_help_with_examples_and_exit_codes() -> None:
    seen = 0
    for ctx in every(click.Context(ROOT, info_name="kafka-pixy")):
        name = ctx.command_path.split()[1:2]
        if not name or name[0] not in COMMANDS:
            continue
        done = run(*ctx.command_path.split()[1:], "--help")
        text = done.stdout.decode()
        assert (done.returncode, done.stderr) == (0, b""), ctx.command_path
        assert "Examples:" in text and "Exit codes:" in text, ctx.command_path
        seen += 1
    assert seen >= 20


def test_no_help_is_wider_than_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples were up to 117 wide, which a terminal breaks in the middle of a word."""
    monkeypatch.setenv("COLUMNS", "80")
    wide = [
        (ctx.command_path, line)
        for ctx in every(click.Context(ROOT, info_name="kafka-pixy"))
        for line in run(*ctx.command_path.split()[1:], "--help").stdout.decode().splitlines()
        if len(line) > 80
    ]
    assert wide == []


@pytest.mark.parametrize(
    "args",
    [
        "keys",
        "keys new",
        "keys remove",
        "keys list",
        "rules",
        "rules explain",
        "wire",
        "wire batch",
        "wire decode",
        "wire encode",
        "wire list",
        "wire topic",
        "top",
        "tap",
        "config",
        "config check",
        "config show",
        "config init",
        "pipeline",
        *(f"pipeline {each}" for each in pipeline.MODULES),
        "",
    ],
)
def test_the_programs_beside_it_have_both_too(args: str) -> None:
    done = run(*args.split(), "--help")
    text = done.stdout.decode()
    assert (done.returncode, done.stderr) == (0, b"")
    examples = text.partition("\nexamples:\n")[2]
    assert examples.startswith(("  kafka-pixy ", "  echo ")) and "\n\nexit codes:\n  0  " in examples, text
    assert "\n  2  wrong command line" in examples


@pytest.mark.parametrize("command", ["decode", "encode"])
def test_the_examples_of_wire_work(command: str) -> None:
    (line,) = wire_messages._EXAMPLES[command]
    sent, _, args = line.removeprefix("echo ").partition(" | kafka-pixy ")
    done = run_in_process(lambda: main(args.split()), stdin=sent.strip("'").encode())
    assert (done.returncode, done.stderr) == (0, b"") and done.stdout


def test_help_without_dashes_and_a_group_without_command() -> None:
    assert run("help", "topic", "create").stdout == run("topic", "create", "--help").stdout
    done = run("topic")
    assert done.returncode == 2 and done.stdout == b"" and done.stderr.count(b"\n") == 1
    assert done.stderr.startswith(b"kafka-pixy topic: name a command: list, describe, ")


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ("wire", "wire: the following arguments are required: COMMAND"),
        ("wire decode --nope", "wire decode: the following arguments are required: NAME"),
        ("rules", "rules: the following arguments are required: COMMAND"),
        (
            "keys new --file f --expires never x",
            "keys new: argument --expires: 'never' is not a time such as 90d or 12h",
        ),
        ("config", "config: the following arguments are required: check|show|init"),
        ("config init a b", "config: init takes no 'b'"),
        ("pipeline", "pipeline: the following arguments are required: COMMAND"),
        ("pipeline verify", "pipeline verify: the following arguments are required: "),
        ("tap --nope", "tap: unrecognized arguments: --nope"),
        ("tap a\x1b[2J", "tap: unrecognized arguments: a\\u001b[2J"),
    ],
)
def test_a_wrong_command_line_is_one_line(args: str, text: str) -> None:
    """The programs beside the shell, too: their usage is in --help."""
    done = run_in_process(lambda: main(args.split(" ")))
    line = done.stderr.decode()
    assert done.returncode == 2 and done.stdout == b"" and line.count("\n") == 1, line
    assert line.startswith(f"kafka-pixy {text}") and line.rstrip().endswith("--help)"), line


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed_and_parse(name: str) -> None:
    done = run("completion", name)
    script = done.stdout.decode()
    assert done.returncode == 0 and COMPLETE in script
    if shutil.which(name):
        checked = subprocess.run([name, "-n"], input=script, text=True, capture_output=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("kafka-pixy ", {*COMMANDS, *PROGRAMS}),
        ("kafka-pixy top", {"top", "topic", "topics"}),
        ("kafka-pixy group re", {"reset"}),
        ("kafka-pixy consume foo --until", {"--until-end"}),
        ("kafka-pixy consume foo --ack ", {"explicit", "auto", "none"}),
        ("kafka-pixy tap --adv", {"--advertise"}),
        ("kafka-pixy wire dec", {"decode"}),
        ("kafka-pixy produce fo", set()),
        ("kafka-pixy --kaf", {"--kafkaPeers"}),
        ("kafka-pixy --sandbox --tcp", {"--tcpAddr"}),
        ("kafka-pixy config check --wait", {"--waitForKafka"}),
        ("kafka-pixy config show --ch", {"--changed"}),
    ],
)
def test_words_are_completed(words: str, wanted: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a daemon no topic is completed, and nothing goes wrong."""
    monkeypatch.setenv(COMPLETE, "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - (not words.endswith(" "))))
    monkeypatch.setenv("KAFKA_PIXY_SERVER", "127.0.0.1:1")
    done = run()
    assert {line.partition(",")[2] for line in done.stdout.decode().splitlines() if line} == wanted
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("kafka-pixy --config ", "file"),
        ("kafka-pixy --caCertFile x", "file"),
        ("kafka-pixy config check --config ", "file"),
        ("kafka-pixy tap --dump ", "file"),
        ("kafka-pixy top --ca ", "file"),
        ("kafka-pixy pipeline verify --lake ", "dir"),
        ("kafka-pixy consume foo --ca ", "file"),
        ("kafka-pixy produce foo --file ", "file"),
    ],
)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_names_of_files_are_left_to_the_shell(
    shell: str, words: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(COMPLETE, f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    last = len(words.split()) - (not words.endswith(" "))
    monkeypatch.setenv("COMP_CWORD", words.rpartition(" ")[2] if shell == "fish" else str(last))
    done = run()
    assert re.split(r"[,\n]", done.stdout.decode())[0] == kind and done.stderr == b"", done


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        ("kafka-pixy t", ["a proxy that shows groups, members and partitions", COMMANDS["topic"]]),
        ("kafka-pixy topic ", ["Show a topic's partitions and its own settings."]),
        ("kafka-pixy wire ", []),
    ],
)
def test_descriptions_are_those_of_the_help(
    words: str, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(COMPLETE, "zsh_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - (not words.endswith(" "))))
    lines = run().stdout.decode().splitlines()
    assert len(lines) > 3 and not [line for line in lines if line.endswith("...")]
    assert set(texts) <= set(lines)


def test_names_are_asked_of_the_profile_s_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all that its connection needs, and without a flag for it."""
    seen: list[session.Settings] = []

    class Session:
        def __init__(self, settings: session.Settings) -> None:
            seen.append(settings)
            raise OSError("no daemon")

    (tmp_path / "p.yaml").write_text(
        "default: {server: 'd:1'}\nstaging: {server: 's:1', ca: a, cert: c, cert_key: k, token_file: t, tls: true}\n"
    )
    monkeypatch.setattr(session, "Session", Session)
    monkeypatch.setenv("KAFKA_PIXY_PROFILES", str(tmp_path / "p.yaml"))
    monkeypatch.setenv(COMPLETE, "bash_complete")
    for words in ("produce fo", "produce --profile staging fo", "produce --server x:1 --profile staging fo"):
        monkeypatch.setenv("COMP_WORDS", f"kafka-pixy {words}")
        monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
        assert run().stderr == b""
    staging = session.Settings("s:1", tls=True, ca="a", cert="c", cert_key="k", token_file="t")
    assert seen == [session.Settings("d:1"), staging, dataclasses.replace(staging, server="x:1")]


def test_the_daemon_s_page_has_its_flags_and_exit_codes() -> None:
    page = dict(pages())["kafka-pixy"]
    assert "\\-\\-kafkaPeers" in page and "\\-\\-waitForKafka" in page and ".SH EXIT STATUS" in page
    text = run("--help").stdout.decode()
    assert all(f"  {code}  {meaning}\n" in text for code, meaning in EXITS.items())


def test_every_command_has_a_man_page_that_groff_takes() -> None:
    found = dict(pages())
    assert {"kafka-pixy", "kafka-pixy-produce", "kafka-pixy-group-reset", "kafka-pixy-wire-decode"} <= set(
        found
    )
    assert (
        ".SH EXAMPLES" in found["kafka-pixy-keys-new"] and ".SH EXIT STATUS" in found["kafka-pixy-wire-batch"]
    )
    assert ".SH EXAMPLES" in found["kafka-pixy-consume"] and ".SH EXIT STATUS" in found["kafka-pixy-consume"]
    for name, page in found.items():
        codes = [
            int(each) for each in re.findall(r"^\.TP\n(\d+)$", page.partition(".SH EXIT STATUS")[2], re.M)
        ]
        assert codes == sorted(codes), name
    if shutil.which("groff"):
        text = "".join(found.values())
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", "-z"], input=text, text=True, capture_output=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_lag_is_coloured_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("t", 0), ("u", 5), ("v", 5000)]

    def shown(terminal: bool) -> str:
        def program() -> int:
            monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
            output.table(("topic", "lag"), rows)
            return 0

        monkeypatch.setenv("TERM", "xterm")
        return run_in_process(program).stdout.decode()

    assert shown(False) == "topic   lag\nt         0\nu         5\nv      5000\n"
    assert "\x1b[32m" in shown(True) and "\x1b[33m" in shown(True) and "\x1b[31m" in shown(True)
    rows = [("t", -5)]  # committed beyond the end of the log
    assert not any(f"\x1b[{colour}m" in shown(True) for colour in (31, 32, 33))
    rows = [("t", 0), ("u", 5), ("v", 5000)]
    monkeypatch.setenv("NO_COLOR", "1")
    assert not any(f"\x1b[{colour}m" in shown(True) for colour in (31, 32, 33))


def test_a_home_that_holds_no_profiles_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Service users have /dev/null, nothing, or a folder that they may not enter; only a profile that is named needs a file."""
    monkeypatch.delenv("KAFKA_PIXY_PROFILES", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    assert profiles.load("default") == {}
    with pytest.raises(ShellError, match="--profile x: there is no "):
        profiles.load("x")

    def refuse(_path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(profiles, "read_small", refuse)
        patch.setattr("os.access", lambda *_: False)
        assert profiles.load("default") == {}
        patch.setattr("os.access", lambda *_: True)
        with pytest.raises(ShellError, match="Permission denied"):
            profiles.load("default")

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert profiles.load("default") == {}
    with pytest.raises(ShellError, match="--profile x: name the file in KAFKA_PIXY_PROFILES"):
        profiles.load("x")


def test_profiles_that_are_no_yaml_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It had several, with text of the file."""
    file = tmp_path / "profiles.yaml"
    monkeypatch.setenv("KAFKA_PIXY_PROFILES", str(file))
    file.write_text("default:\n  server: [a\n")
    done = run("topics")
    assert (done.returncode, done.stderr.decode()) == (
        2,
        f"kafka-pixy topics: {file}: not YAML: line 2: expected ',' or ']', but got the end of the file\n",
    )


def test_values_outside_of_a_profile_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were ignored, and the command went to the default daemon."""
    file = tmp_path / "profiles.yaml"
    monkeypatch.setenv("KAFKA_PIXY_PROFILES", str(file))
    file.write_text("server: localhost:1\nstaging: {server: 's:1'}\n")
    for name in ("default", "staging"):
        with pytest.raises(
            ShellError, match="server stands outside of a profile; write it into one, such as default"
        ):
            profiles.load(name)
    file.write_text("server: {server: 'of-that-name:1'}\ndefault:\n")
    assert profiles.load("server") == {"server": "of-that-name:1"} and profiles.load("default") == {}


def test_the_page_names_every_command() -> None:
    """docs/shell.md: in its first table the shell's commands, such as `topic list`, `create`; below it the programs."""
    page, _, _ = (REPOSITORY / "docs/shell.md").read_text().partition("\n## ")
    named = set()
    for row in re.findall(r"^\| (`.+?) \|", page, re.MULTILINE):
        first, *more = [tuple(words.split()) for words in re.findall(r"`([^`]+)`", row)]
        named |= {first[:1], first[:2]} | {each[:1] for each in more} | {(first[0], each[0]) for each in more}
    paths = {
        tuple(ctx.command_path.split()[1:])
        for ctx in every(click.Context(ROOT, info_name="kafka-pixy"))
        if ctx.parent and ctx.command_path.split()[1] in COMMANDS
    }
    assert paths and paths - named == set()
    assert [name for name in PROGRAMS if f"`{name}`" not in page] == []


@pytest.mark.parametrize("args", [("topic", "--help"), ("group", "--help"), ("--help",)])
def test_lists_of_commands_fit_80_columns_and_are_whole(
    args: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = run(*args).stdout.decode()
    assert max(map(len, text.splitlines())) <= 80 and "..." not in text.replace("[ARGS]...", ""), text


def test_the_help_of_config_check_names_the_flags() -> None:
    for action in ("check", "show"):
        assert b"--config FILE" in run("config", action, "--help").stdout


def test_a_clock_is_compared_with_all_of_the_call() -> None:
    """A call of 12 s had the daemon's clock 5 s behind: it had looked at it first."""
    assert clock_ahead(100.1, 100.0, 112.0) == 0 == clock_ahead(111.9, 100.0, 112.0)
    assert clock_ahead(97.0, 100.0, 112.0) == -3 and clock_ahead(115.0, 100.0, 112.0) == 3


class Answers(session.Session):
    """A session whose daemon has one topic, ``foo``, with four partitions, and refuses some methods."""

    def __init__(self, **refused: CallError) -> None:
        self.server, self.cluster, self.timeout, self.out = "d:1", "", 1.0, output.Output("table")
        self._refused = refused

    def call(self, method: str, request: Any, timeout: float | None = None) -> Any:
        if method in self._refused:
            raise self._refused[method]
        if method == "GetTopicMetadata" and request.topic != "foo":
            raise NOT_FOUND
        return SimpleNamespace(
            offsets=[], topics=["foo"], partitions=[0, 1, 2, 3], config={"retention.ms": "1"}
        )


def called(command: click.Command, with_session: Answers, *args: object) -> object:
    """Call the function of a command that is connected."""
    assert command.callback is not None
    return command.callback.__wrapped__(with_session, *args)  # type: ignore[attr-defined]


NOT_FOUND = CallError(grpc.StatusCode.NOT_FOUND, "no such partition on this broker.")


def test_a_partition_that_a_topic_lacks_is_told_with_those_it_has() -> None:
    with pytest.raises(
        CallError, match="NOT_FOUND: no such partition on this broker; topic foo has partitions 0 to 3"
    ):
        called(offsets.offsets, Answers(SetOffsets=NOT_FOUND), "foo", "g", ((9, 5),))


def test_only_who_writes_or_reads_a_topic_is_told_to_make_it() -> None:
    daemon = Answers(DeleteTopic=NOT_FOUND)
    with pytest.raises(CallError, match="'nosuch' does not exist; kafka-pixy topic list shows all"):
        called(topic.delete, daemon, "nosuch", True)
    with pytest.raises(CallError, match="make it: kafka-pixy topic create nosuch"):
        daemon.topic("nosuch", make=True)


def test_unsetting_what_is_not_set_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert called(topic.config, Answers(), "foo", (), ("retention.ms", "nosuch"), None, False) == 0
    assert capsys.readouterr().err == (
        "topic foo has no setting nosuch of its own: there was nothing to unset\ntopic foo changed\n"
    )


def test_a_group_with_members_that_is_reset_says_how_to_see_them() -> None:
    daemon = Answers(SetOffsets=CallError(grpc.StatusCode.FAILED_PRECONDITION, str(GroupActive("g"))))
    with pytest.raises(CallError, match="group describe g shows its members"):
        called(group.reset, daemon, "g", "foo", "begin", None, (), False)


def test_an_address_is_blamed_on_what_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PIXY_SERVER", "localhost")
    assert run("topics").stderr.startswith(
        b"kafka-pixy topics: KAFKA_PIXY_SERVER 'localhost': is not HOST:PORT"
    )


def test_the_daemon_s_single_dash_asks_commands_for_help_too() -> None:
    assert run("produce", "-help").stdout == run("produce", "--help").stdout != b""
    assert run("topic", "-help").returncode == 0
