"""A process is gone once its log says that it has stopped, whatever its threads still wait for."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from pixy.kafka.sandbox import Sandbox
from tests.integration.test_program import wait_until
from tests.support import Program

PLANTED = """\
import sys, threading
if "pixy.cli.{module}" in sys.orig_argv:
    threading.Thread(target=threading.Event().wait).start()
"""
CONFIG = """\
grpc_addr: 127.0.0.1:0
tcp_addr: 127.0.0.1:0
server: {{workers: {workers}}}
proxies: {{default: {{kafka: {{seed_peers: ['{seed}']}}}}}}
"""


@pytest.mark.parametrize(("module", "workers"), [("main", 1), ("workers.worker", 2)])
def test_a_process_is_gone_when_it_has_stopped(tmp_path: Path, module: str, workers: int) -> None:
    """A thread that never ends stands for one in librdkafka that waits for a frozen broker."""
    (tmp_path / "sitecustomize.py").write_text(PLANTED.format(module=module))
    sandbox = Sandbox()
    (tmp_path / "config.yaml").write_text(CONFIG.format(workers=workers, seed=sandbox.seed_peers[0]))
    pid_file = tmp_path / "pid"
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH", ""))))
    args = (f"--config={tmp_path / 'config.yaml'}", f"--pidFile={pid_file}")
    with Program(*args, env={"PYTHONPATH": path}) as program:
        wait_until(pid_file.exists)
        program.process.send_signal(signal.SIGTERM)
        code, output = program.wait()
    assert code == 0 and output.count("stopped, exit code 0") == workers, output
    assert not pid_file.exists()
