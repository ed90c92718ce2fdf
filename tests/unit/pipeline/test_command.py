"""The command line of ``kafka-pixy pipeline``: help, wrong usage, and errors before anything is touched."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pixy.cli import pipeline, pipeline_replay
from pixy.cli.pipeline import MODULES, run
from pixy.pipeline.errors import UsageError
from tests.support import ROOT
from tests.unit.pipeline.support import make_lake


def test_help_and_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in MODULES) and "exit codes" in shown
    for argv in ([], ["nothing"], ["archive"], ["verify"], ["replay", "--config", "x", "--lake", "l"]):
        assert run(argv) == 2, argv
    capsys.readouterr()
    for command, wanted in (
        ("archive", "--trigger"),
        ("optimize", "--before"),
        ("vacuum", "--keep"),
        ("migrate", "--lake"),
        ("replay", "--where"),
        ("verify", "--shallow"),
    ):
        assert run([command, "--help"]) == 0
        assert wanted in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("argv", "code", "named"),
    [
        (["verify", "--lake", "{folder}/none"], 1, "is not a lake"),
        (
            ["archive", "--config", "{folder}/none.yaml", "--topics", "t", "--lake", "{folder}/l"],
            2,
            "none.yaml",
        ),
        (
            ["archive", "--config", "{config}", "--cluster", "x", "--topics", "t", "--lake", "{folder}/l"],
            2,
            "proxy `x` does not exist",
        ),
        (
            ["archive", "--config", "{config}", "--topics", "t/u", "--lake", "{folder}/l"],
            2,
            "'t/u' is not a name of a topic",
        ),
        (
            ["archive", "--config", "{config}", "--topics", "t", "--lake", "{folder}/l"],
            1,
            "tried localhost:1",
        ),
        (
            ["replay", "--config", "{config}", "--topic", "t", "--to", "u", "--lake", "{folder}/l"],
            1,
            "is not a lake",
        ),
        (["optimize", "--lake", "{folder}/l", "--dry-run"], 1, "is not a lake"),
        (["vacuum", "--lake", "{folder}/l"], 1, "is not a lake"),
        (["migrate", "--lake", "{folder}/l"], 1, "is not a lake of format 1"),
    ],
)
def test_errors_name_what_is_wrong(
    argv: list[str], code: int, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "pixy.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "proxies": {
                    "main": {
                        "kafka": {"seed_peers": ["localhost:1"]},
                        "net": {"dial_timeout": "1s", "read_timeout": "1s", "write_timeout": "1s"},
                    }
                }
            }
        )
    )
    assert run([part.format(folder=tmp_path, config=config) for part in argv] + ["--json"]) == code
    caught = capsys.readouterr()
    assert named in caught.err
    summary = json.loads(caught.out)
    assert summary["ok"] is False and named in summary["error"]
    assert not (tmp_path / "l").exists()


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["vacuum", "--keep", "90m"], "'90m' is not a number of whole hours"),
        (["optimize", "--before", "today"], "'today' is not a day"),
    ],
)
def test_values_that_make_no_sense(argv: list[str], named: str, capsys: pytest.CaptureFixture[Any]) -> None:
    assert run([*argv, "--lake", "l"]) == 2
    assert named in capsys.readouterr().err


def test_two_ranges_of_a_partition_are_refused() -> None:
    """The last one alone would be replayed."""
    ranges = ["--offsets", "0:0-100", "--offsets", "1:5-6"]
    argv = ["replay", "--config", "c", "--topic", "t", "--to", "u", "--lake", "l", *ranges]
    parser = pipeline._parser("replay")
    request = pipeline_replay._request(parser.parse_args(argv))
    assert request.selection.offsets == {0: (0, 100), 1: (5, 6)}
    with pytest.raises(UsageError, match="--offsets names partition 0 twice"):
        pipeline_replay._request(parser.parse_args([*argv, "--offsets", "0:500-600"]))


def test_without_the_extra_each_command_says_what_to_install(tmp_path: Path) -> None:
    """In a process of its own, which cannot import the libraries, as after a plain install."""
    program = """
import json, sys

class Missing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in sys.argv[2].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from pixy.cli.pipeline import run
sys.exit(sum(run(command) != 1 for command in json.loads(sys.argv[1])))
"""
    config = tmp_path / "pixy.yaml"
    config.write_text("proxies: {main: {kafka: {seed_peers: ['localhost:1']}}}")
    lake, named = ["--lake", str(tmp_path / "lake")], ["--config", str(config)]
    commands = [
        ["archive", *named, "--topics", "t", *lake],
        ["optimize", *lake],
        ["vacuum", *lake],
        ["migrate", *lake],
        ["replay", *named, "--topic", "t", "--to", "u", *lake],
        ["verify", *lake],
        ["scan", *named, "--topics", "t"],
        ["audit", *lake, "--out", str(tmp_path / "out")],
    ]
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            program,
            json.dumps(commands),
            "pyspark,pyarrow,deltalake,xxhash,py4j,numpy,pandas,jinja2,matplotlib",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == len(commands), done.stderr
    for line, command in zip(lines, commands, strict=True):
        assert line.startswith(f"kafka-pixy pipeline {command[0]}: ")
        assert line.endswith(
            " is not installed: make pipeline-install, or pip install '.[pipeline]' in a checkout"
        )


@pytest.mark.parametrize(
    "argv",
    [["verify"], ["verify", "--shallow"], ["optimize", "--dry-run"], ["expire", "--older-than", "90d"]],
)
def test_a_topic_that_the_lake_lacks_is_no_success(
    argv: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt topic was verified as archived: no file of it was damaged."""
    make_lake(tmp_path / "lake")
    assert run([*argv, "--lake", f"{tmp_path}/lake", "--topic", "odrers"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.endswith(f"{tmp_path}/lake has no topic odrers\n")
