"""What a container does: builds from the files that it is sent, and runs where nothing can be written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.install import builds
from tests.kafka.cluster import free_port
from tests.support import ROOT

READ_ONLY = 'mount -o remount,bind,ro / && ! touch "$1" 2>/dev/null && shift && exec "$@"'
"""Make the root read-only (in a namespace), see that it is, and run the rest."""
NAMESPACE = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]), "bash", "-c"]


def namespaces_work() -> bool:
    if shutil.which("unshare") is None:
        return False
    probe = subprocess.run([*NAMESPACE, "mount -o remount,bind,ro /"], check=False, capture_output=True)
    return probe.returncode == 0


def test_what_the_container_is_sent_is_enough_to_build(tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    for line in (ROOT / ".containerignore").read_text().split():
        name = line.removeprefix("!")
        if name == line:
            continue
        target = sent / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target, symlinks=True, ignore=builds.SKIPPED)
        else:
            shutil.copy(ROOT / name, target)
    options = ("--no-index", "--no-deps", "--no-build-isolation")
    builds.run(sys.executable, "-m", "pip", "wheel", "-q", *options, "--wheel-dir", str(tmp_path), str(sent))
    assert list(tmp_path.glob("kafka_pixy-*.whl"))


@pytest.mark.skipif(
    not namespaces_work(), reason="!!! not run on a read-only file system: unshare --mount is refused !!!"
)
def test_the_daemon_writes_nothing(tmp_path: Path) -> None:
    grpc, tcp = free_port(), free_port()
    arguments = ["--sandbox", f"--grpcAddr=127.0.0.1:{grpc}", f"--tcpAddr=127.0.0.1:{tcp}"]
    daemon = subprocess.Popen(
        [
            *NAMESPACE,
            READ_ONLY,
            "bash",
            str(tmp_path / "x"),
            sys.executable,
            "-m",
            "pixy.cli.main",
            *arguments,
        ],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent"},
    )
    try:
        assert daemon.stdout is not None
        said = []
        for line in daemon.stdout:
            said.append(line)
            if "Ctrl-C" in line:
                break
        assert daemon.poll() is None, "".join(said)
        check = {**os.environ, "KAFKA_PIXY_TCP_ADDR": f"127.0.0.1:{tcp}"}
        health = [sys.executable, "-m", "pixy.cli.health"]
        assert subprocess.run(health, cwd=ROOT, env=check, check=False, timeout=60).returncode == 0
    finally:
        daemon.terminate()
        output, _ = daemon.communicate(timeout=60)
    assert daemon.returncode == 0 and "Traceback" not in output, output
