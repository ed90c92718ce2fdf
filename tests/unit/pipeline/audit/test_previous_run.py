"""An audit's folder is empty, holds an earlier run, or is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pixy.pipeline.audit.previous_run import FORMAT, SUMMARY, VERSION, PreviousRun, read_previous_run
from pixy.pipeline.errors import PipelineError, UnknownVersion


def test_an_absent_or_empty_folder_has_no_earlier_run(tmp_path: Path) -> None:
    assert read_previous_run(str(tmp_path)) == PreviousRun()
    assert read_previous_run(str(tmp_path / "absent")) == PreviousRun()


def test_a_folder_with_other_files_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(PipelineError, match=r"is not empty and holds no audit \(no audit.json\)"):
        read_previous_run(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("{", PipelineError, "holds an audit that cannot be read"),
        ('{"format": "other"}', PipelineError, "is not the summary of an audit"),
        (
            json.dumps({"format": FORMAT, "version": VERSION + 1}),
            UnknownVersion,
            f"has format version {VERSION + 1}; this program reads version {VERSION}",
        ),
        (json.dumps({"format": FORMAT, "version": VERSION}), PipelineError, "windows.parquet"),
    ],
)
def test_a_summary_that_cannot_be_read_is_an_error(
    tmp_path: Path, text: str, error: type[PipelineError], message: str
) -> None:
    (tmp_path / SUMMARY).write_text(text)
    with pytest.raises(error, match=message):
        read_previous_run(str(tmp_path))
