"""`make release`: it builds, checks, commits and tags, or leaves everything as it was."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import types
from pathlib import Path

import pytest

from pixy import __version__
from tests.install import builds
from tests.support import ROOT


def load() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "distributions" / "release.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


release = load()


def git(root: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    return subprocess.run(
        ["git", *identity, *arguments], cwd=root, check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = builds.copy_source(tmp_path / "checkout")
    git(root, "init", "-q")
    git(root, "config", "user.name", "t")
    git(root, "config", "user.email", "t@example.com")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "all")
    return root


def test_a_release(checkout: Path) -> None:
    pytest.importorskip("twine", reason="!!! make release is not tested: twine is missing !!!")
    notes = release.notes_of(checkout)
    (checkout / "pixy" / "stray.py").write_text("")
    (checkout / ".gitignore").write_text((checkout / ".gitignore").read_text() + "stray.py\n")
    git(checkout, "commit", "-qam", "ignore")
    release.release(checkout, "1.2.3rc1", ["--no-isolation"])
    names = sorted(path.name for path in (checkout / "dist").iterdir())
    assert names == [
        "kafka_pixy-1.2.3rc1-py3-none-any.whl",
        "kafka_pixy-1.2.3rc1.tar.gz",
        "kafka_pixy_actors-1.2.3rc1-py3-none-any.whl",
        "kafka_pixy_actors-1.2.3rc1.tar.gz",
        "notes.md",
    ]
    assert (checkout / "dist" / "notes.md").read_text() == notes and notes.startswith(
        "The first version in Python"
    )
    assert "stray.py" not in builds.run("tar", "tzf", str(checkout / "dist" / "kafka_pixy-1.2.3rc1.tar.gz"))
    assert git(checkout, "tag").split() == ["v1.2.3rc1"] and git(checkout, "status", "--porcelain") == ""
    assert notes.strip() in git(checkout, "tag", "-l", "--format=%(contents)", "v1.2.3rc1")
    assert release.current(checkout) == "1.2.3rc1" and release.notes_of(checkout) == "\n"
    assert "version: 1.2.3-rc1\nappVersion: 1.2.3rc1\n" in (checkout / release.CHART).read_text()
    assert re.search(
        r"## \[Unreleased\]\n\n## \[1\.2\.3rc1\] - \d{4}-\d\d-\d\d\n", (checkout / "CHANGELOG.md").read_text()
    )
    with pytest.raises(release.ReleaseError, match="nothing in its section Unreleased"):
        release.check(checkout, "1.2.3")


def test_what_is_not_ready_stays_as_it_is(checkout: Path) -> None:
    for version, part in (("", "VERSION="), ("1.0", "VERSION="), ("x", "VERSION="), (__version__, "already")):
        with pytest.raises(release.ReleaseError, match=part):
            release.release(checkout, version)
    git(checkout, "tag", "v3.0.0")
    with pytest.raises(release.ReleaseError, match="already"):
        release.release(checkout, "3.0.0")
    (checkout / "setup.cfg").write_text("[broken")
    with pytest.raises(release.ReleaseError, match="not committed"):
        release.release(checkout, "2.0.0")
    git(checkout, "commit", "-qam", "broken")
    with pytest.raises(release.ReleaseError, match=r"build.* failed"):
        release.release(checkout, "2.0.0", ["--no-isolation"])
    assert git(checkout, "status", "--porcelain") == "" and git(checkout, "tag").split() == ["v3.0.0"]
    assert release.current(checkout) == __version__


def test_the_version_stands_in_one_place_and_its_copies_agree() -> None:
    assert release.current(ROOT) == __version__
    for name in release.COPIES:
        assert __version__ in (ROOT / name).read_text(), name
    for name in ("setup.cfg", "pyproject.toml", "distributions/actors/pyproject.toml", "README.md"):
        assert __version__ not in (ROOT / name).read_text(), name
