"""The command line of ``kafka-pixy pipeline``: help, wrong usage, and errors before anything is touched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pixy.cli.pipeline import MODULES, run


def test_help_and_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in MODULES) and "exit codes" in shown
    for argv in ([], ["nothing"], ["archive"], ["verify"], ["replay", "--config", "x", "--lake", "l"]):
        assert run(argv) == 2, argv
    capsys.readouterr()
    for command, wanted in (
        ("archive", "--trigger"),
        ("compact", "--keep"),
        ("replay", "--where"),
        ("verify", "--shallow"),
    ):
        assert run([command, "--help"]) == 0
        assert wanted in capsys.readouterr().out


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
        (["compact", "--lake", "{folder}/l", "--dry-run"], 1, "is not a lake"),
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
    ("more", "named"),
    [
        (["--format", "parquet", "--delta-jars", "x"], "--delta-jars goes with --format delta"),
        (["--format", "iceberg"], "invalid choice: 'iceberg'"),
    ],
)
def test_options_that_contradict_each_other(
    more: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[Any]
) -> None:
    config = tmp_path / "pixy.yaml"
    config.write_text('{"proxies": {"main": {"kafka": {"seed_peers": ["localhost:1"]}}}}')
    assert (
        run(["archive", "--config", str(config), "--topics", "t", "--lake", str(tmp_path / "l"), *more]) == 2
    )
    assert named in capsys.readouterr().err
