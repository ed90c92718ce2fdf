"""Generate the client id that names this daemon in Kafka's logs and group listings."""

from __future__ import annotations

import os
import re
import socket
import uuid
from collections.abc import Mapping
from pathlib import Path

VALID = re.compile(r"\A[A-Za-z0-9._-]+\Z")
_CONTAINER = re.compile(r"(?:/docker[/-]|/containers/|/libpod-|kubepods.*[/-])([0-9a-f]{64})")


def generate_client_id() -> str:
    """Return a client id for this process."""
    try:
        host = socket.gethostname()
    except OSError:
        host = ""
    cgroup = ""
    for path in ("/proc/self/cgroup", "/proc/self/mountinfo"):
        try:
            cgroup += Path(path).read_text(errors="replace")
        except OSError:
            continue
    return make_client_id(os.environ, host, os.getpid(), cgroup)


def make_client_id(env: Mapping[str, str], host: str, pid: int, cgroup: str) -> str:
    """Derive a client id: from Nomad's allocation, else host and container, else host and pid, else at random.

    Args:
        env: the environment variables.
        host: the host name, or an empty string.
        pid: the process id.
        cgroup: the text of ``/proc/self/cgroup`` (v1) and ``/proc/self/mountinfo``, which shows the id
            of a container with cgroup v2.
    """
    if allocation := env.get("NOMAD_ALLOC_ID", ""):
        index = env.get("NOMAD_ALLOC_INDEX", "")
        name = "kp_nomad_" + allocation.split("-", 1)[0] + (f"_{index}" if index else "")
    elif not host:
        name = "kp_" + uuid.uuid4().hex[:8]
    elif container := _CONTAINER.search(cgroup):
        name = f"kp_{host}_{container[1][:12]}"
    else:
        name = f"kp_{host}_{pid}"
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)
