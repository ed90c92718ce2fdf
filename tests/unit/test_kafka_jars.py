"""``make kafka``'s first start: what Maven prints stays readable in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka import cluster

MAVEN = """#!/bin/sh
echo "$MAVEN_OPTS" > "$(dirname "$0")/options"
case "$MAVEN_OPTS" in *-Djansi.noreset=true*) ;; *) printf '\\033[0m'; printf '\\033[0m' >&2 ;; esac
"""
"""As Maven 3.8 does at its end."""


def test_maven_leaves_no_escape_sequences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mvn").write_text(MAVEN)
    (tmp_path / "mvn").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("MAVEN_OPTS", "-Xmx64m")
    cluster._fetch(4, tmp_path)
    assert capfd.readouterr() == ("", "")
    assert (tmp_path / "options").read_text() == "-Xmx64m -Djansi.noreset=true\n"
