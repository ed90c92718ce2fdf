"""Make a release: ``make release VERSION=1.0.0``. It publishes nothing.

The version is written down, CHANGELOG's Unreleased section becomes the version's, both distributions are built from that tree and checked
by twine, and then it is committed and tagged. ``dist/`` holds the archives and ``notes.md``. If a step fails, the files are as before.

``pixy/__init__.py`` has the version; the builds read it there. The other files of :data:`COPIES` only repeat it for their readers.
"""

from __future__ import annotations

import argparse
import datetime
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

VERSION_FILE = "pixy/__init__.py"
CHANGELOG = "CHANGELOG.md"
CHART = "deploy/helm/kafka-pixy/Chart.yaml"
COPIES = ("docs/install.md", CHART)
"""Files that repeat the version; tests compare them with it."""
_VERSION = re.compile(r"\d+\.\d+\.\d+(\.dev\d+|(a|b|rc)\d+)?")
_UNRELEASED = "## [Unreleased]\n"


class ReleaseError(Exception):
    """The release cannot be made; the text says why."""


def main(argv: Sequence[str] | None = None) -> int:
    """Make the release; return the exit code."""
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("version", nargs="?", default="", help="such as 1.0.0 or 1.0.0rc1")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1], help="the checkout")
    parser.add_argument("--no-isolation", action="store_true", help="build with what this environment has")
    args = parser.parse_args(argv)
    try:
        release(args.root, args.version, ["--no-isolation"] if args.no_isolation else [])
    except ReleaseError as error:
        print(f"make release: {error}", file=sys.stderr)
        return 1
    print(
        f"v{args.version} is committed and tagged; dist/ has the archives and notes.md. Nothing is published: git push --follow-tags,"
    )
    print("then twine upload dist/*.tar.gz dist/*.whl")
    return 0


def release(root: Path, version: str, options: Sequence[str] = ()) -> None:
    """Make a release of a checkout.

    Args:
        root: the checkout.
        version: the release's.
        options: of ``python -m build``.

    Raises:
        ReleaseError: the checkout is not ready, or a build or a check fails.
    """
    check(root, version)
    changed = {name: (root / name).read_text(encoding="utf-8") for name in (VERSION_FILE, CHANGELOG, *COPIES)}
    try:
        notes = write_version(root, version)
        build(root, options)
        (root / "dist" / "notes.md").write_text(notes, encoding="utf-8")
        _run(root, "git", "commit", "--quiet", "--message", f"release {version}", "--", *changed)
    except BaseException:
        for name, text in changed.items():
            (root / name).write_text(text, encoding="utf-8")
        raise
    _run(
        root,
        "git",
        "tag",
        "--annotate",
        f"v{version}",
        "--cleanup=verbatim",
        "--message",
        f"Kafka-Pixy {version}\n\n{notes}",
    )


def check(root: Path, version: str) -> None:
    """Raise ReleaseError unless the version is new and the checkout is clean."""
    if not _VERSION.fullmatch(version):
        raise ReleaseError(
            f"VERSION={version or '...'} is needed, such as 1.0.0 or 1.0.0rc1; now it is {current(root)}"
        )
    if version == current(root) or _run(root, "git", "tag", "--list", f"v{version}").strip():
        raise ReleaseError(f"there is a version {version} already")
    if _run(root, "git", "status", "--porcelain").strip():
        raise ReleaseError("the checkout has changes that are not committed")
    if not notes_of(root).strip():
        raise ReleaseError(f"{CHANGELOG} has nothing in its section Unreleased")


def current(root: Path) -> str:
    """Return the version of a checkout."""
    found = re.search(
        r'^__version__ = "(.*)"$', (root / VERSION_FILE).read_text(encoding="utf-8"), re.MULTILINE
    )
    if found is None:
        raise ReleaseError(f"{VERSION_FILE} has no __version__")
    return found[1]


def notes_of(root: Path) -> str:
    """Return the section Unreleased of the changelog, without its heading."""
    _, _, rest = (root / CHANGELOG).read_text(encoding="utf-8").partition(_UNRELEASED)
    return re.split(r"^## \[", rest, maxsplit=1, flags=re.MULTILINE)[0].strip() + "\n"


def write_version(root: Path, version: str) -> str:
    """Write the version into every file that has it, and return the release's notes."""
    old, notes = current(root), notes_of(root)
    for name in (VERSION_FILE, *COPIES):
        text = (root / name).read_text(encoding="utf-8")
        if name == CHART:  # Helm wants a semantic version: 1.0.0-rc1
            text = text.replace(semantic(old), semantic(version))
        if old not in text and version not in text:
            raise ReleaseError(f"{name} does not name the version {old}")
        (root / name).write_text(text.replace(old, version), encoding="utf-8")
    today = datetime.datetime.now(datetime.UTC).date()
    text = (root / CHANGELOG).read_text(encoding="utf-8")
    dated = f"{_UNRELEASED}\n## [{version}] - {today}\n"
    (root / CHANGELOG).write_text(text.replace(_UNRELEASED, dated, 1), encoding="utf-8")
    return notes


def semantic(version: str) -> str:
    """Return a version of Python's as a semantic one."""
    return re.sub(r"\.?((?:dev|a|b|rc)\d+)$", r"-\1", version)


def build(root: Path, options: Sequence[str]) -> None:
    """Build both distributions from what git has of the checkout, into ``dist``, and check them."""
    shutil.rmtree(root / "dist", ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="pixy-release-") as folder:
        # A copy of the tracked files: nothing that lies about in the checkout gets into an archive.
        names = _run(root, "git", "ls-files", "-z").split("\0")
        for name in filter(None, names):
            target = Path(folder) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, target, follow_symlinks=False)
        for source in (folder, f"{folder}/distributions/actors"):
            _run(root, sys.executable, "-m", "build", *options, "--outdir", "dist", source)
    _run(
        root, sys.executable, "-m", "twine", "check", "--strict", *map(str, sorted((root / "dist").iterdir()))
    )


def _run(root: Path, *command: str) -> str:
    done = subprocess.run(
        command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise ReleaseError(f"{' '.join(command[:4])} ... failed:\n{done.stdout}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
