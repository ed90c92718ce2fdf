"""Install what we build in every way that the docs name, from the package registry, and run it: ``make test-install``.

On each Python, as this user and, if this one is root, as another one: the source archive and the wheel with pip; besides,
``pipx install`` and ``uv tool install`` of the source tree where those programs are. Some minutes.
"""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.install import builds
from tests.kafka.cluster import free_port
from tests.support import ROOT

VERSIONS = ("3.11", "3.13")
OTHER_USER = "nobody"


def main() -> int:
    """Try everything; return 1 if something failed."""
    with tempfile.TemporaryDirectory(prefix="pixy-install-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        source = builds.copy_source(folder / "source")
        archives = builds.build(source, folder / "dist")
        failures = [
            each
            for user in users()
            for version in VERSIONS
            for each in on_python(version, user, archives, folder / f"{version}-{user or 'self'}")
        ]
        failures += [each for tool in ("pipx", "uv") for each in with_tool(tool, source, folder / tool)]
    for failure in failures:
        print(f"!!! {failure}", file=sys.stderr)
    return int(bool(failures))


def users() -> list[str]:
    """Name the users to install as; an empty name is this one."""
    return ["", OTHER_USER] if os.geteuid() == 0 else [""]


def on_python(version: str, user: str, archives: tuple[Path, Path], folder: Path) -> list[str]:
    """Install each archive with pip on one version of Python, and describe what failed."""
    who = user or pwd.getpwuid(os.geteuid()).pw_name
    python = interpreter(version, user)
    if python is None:
        print(f"!!! NOT TESTED: Python {version} as {who}: no such interpreter that {who} may run !!!")
        return []
    failures = []
    for archive in archives:
        name = f"Python {version}, {archive.name} as {who}"
        home = folder / archive.suffix.strip(".")
        env = home / "env"
        home.mkdir(parents=True)
        builds.run(python, "-m", "venv", "--without-pip", str(env))
        builds.run(sys.executable, "-m", "pip", "--python", str(env / "bin/python"), "install", "-q", "pip")
        give(folder, user)
        failures += attempt(
            name, [str(env / "bin/python"), "-m", "pip", "install", "-q", str(archive)], home, env, user
        )
    return failures


def with_tool(tool: str, source: Path, home: Path) -> list[str]:
    """Install the source tree with pipx or uv, and describe what failed."""
    program = shutil.which(tool) or shutil.which(tool, path=str(Path(sys.executable).parent))
    if program is None:
        print(f"!!! NOT TESTED: {tool}: not installed !!!")
        return []
    home.mkdir()
    if tool == "pipx":
        command = [program, "install", "--quiet", "--python", sys.executable, str(source)]
        env = home / "pipx" / "venvs" / "kafka-pixy"
    else:
        command = [program, "tool", "install", "--quiet", "--python", sys.executable, str(source)]
        env = home / "uv" / "kafka-pixy"
    return attempt(f"{tool} install", command, home, env, "")


def attempt(name: str, command: list[str], home: Path, env: Path, user: str) -> list[str]:
    """Run the installing command and then the check, both as a user; describe what failed."""
    variables = {
        **os.environ,
        "HOME": str(home),
        "PIP_CONSTRAINT": str(ROOT / "constraints.txt") if not user else "",
        "PIPX_HOME": str(home / "pipx"),
        "PIPX_BIN_DIR": str(home / "bin"),
        "UV_TOOL_DIR": str(home / "uv"),
        "UV_TOOL_BIN_DIR": str(home / "bin"),
    }
    variables.pop("PYTHONPATH", None)
    check = home / "check.py"
    shutil.copy(ROOT / "tests" / "install" / "check.py", check)
    check.chmod(0o644)
    for each in (command, [str(env / "bin/python"), "-P", str(check), str(free_port()), str(free_port())]):
        done = subprocess.run(
            each,
            cwd=home,
            env=variables,
            user=user or None,
            text=True,
            capture_output=True,
            check=False,
            timeout=900,
        )
        if done.returncode:
            return [f"{name}: {' '.join(each)}\n{done.stdout}{done.stderr}"]
    print(f"{name}: works", flush=True)
    return []


def interpreter(version: str, user: str) -> str | None:
    """Find a Python that the user may run: on the PATH, of the system, or pyenv's."""
    places = [shutil.which(f"python{version}") or "", f"/usr/bin/python{version}"]
    places += sorted(glob.glob(str(Path.home() / f".pyenv/versions/{version}*/bin/python")))
    for place in places:
        try:
            done = subprocess.run(
                [place, "-c", ""], user=user or None, cwd="/", capture_output=True, check=False
            )
        except OSError:
            continue
        if done.returncode == 0:
            return place
    return None


def give(folder: Path, user: str) -> None:
    """Make a folder and all in it the user's."""
    if user:
        subprocess.run(["chown", "-R", user, str(folder)], check=True)


if __name__ == "__main__":
    sys.exit(main())
