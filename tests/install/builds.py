"""Build the archives in a copy of the source tree, as a person would, and make environments to install them into."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.support import ROOT

SKIPPED = shutil.ignore_patterns(
    ".git",
    ".venv",
    "build",
    "dist",
    "__pycache__",
    "*.egg-info",
    "*_pb2*",
    "tests",
    ".*_cache",
    ".hypothesis",
)
"""What a fresh clone has not, and the tests, which no build needs."""


def copy_source(into: Path) -> Path:
    """Copy the source tree, so that a build leaves nothing in the real one and sees nothing that was built there."""
    shutil.copytree(ROOT, into, symlinks=True, ignore=SKIPPED)
    return into


def build(source: Path, into: Path, *options: str) -> tuple[Path, Path]:
    """Run ``python -m build``: a source archive, and a wheel out of that archive; return both.

    Args:
        source: a source tree.
        into: the folder for the archives.
        options: such as ``--no-isolation``, which takes the build's requirements from this environment.
    """
    run(sys.executable, "-m", "build", *options, "--outdir", str(into), str(source))
    [archive], [wheel] = into.glob("*.tar.gz"), into.glob("*.whl")
    return archive, wheel


def wheel_of(archive: Path, folder: Path) -> Path:
    """Build a wheel from a source archive with the requirements of this environment; return its folder."""
    into = folder / "wheel"
    options = ("--no-index", "--no-deps", "--no-build-isolation")
    run(sys.executable, "-m", "pip", "wheel", "-q", *options, "--wheel-dir", str(into), str(archive))
    return into


def environment(prefix: Path) -> Path:
    """Make a virtual environment that sees the libraries of this one, but not its kafka-pixy; return its Python.

    A ``.pth`` file adds this environment's folder. The editable install of kafka-pixy in there is a ``.pth`` file too,
    and those are only read in an environment's own folder.
    """
    run(sys.executable, "-m", "venv", "--without-pip", str(prefix))
    [site] = prefix.glob("lib/python*/site-packages")
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return prefix / "bin" / "python"


def bare_environment(prefix: Path, *packages: str) -> Path:
    """Make a virtual environment that sees nothing but the standard library and some packages of this one; return its Python."""
    run(sys.executable, "-m", "venv", "--without-pip", str(prefix))
    [site] = prefix.glob("lib/python*/site-packages")
    for package in packages:
        (site / package).symlink_to(Path(sysconfig.get_path("purelib")) / package)
    return prefix / "bin" / "python"


def install(python: Path, *what: str) -> None:
    """Install into an environment from :func:`environment`, without a network."""
    options = ("--no-index", "--no-deps", "--no-build-isolation", "--ignore-installed")
    run(sys.executable, "-m", "pip", "--python", str(python), "install", "-q", *options, *what)


def run(*command: str, cwd: Path | None = None) -> str:
    """Run a command; return its output, or fail with it."""
    done = subprocess.run(
        command,
        cwd=cwd,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}"
    return done.stdout
