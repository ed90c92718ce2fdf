"""Raise the number of files that a program may open: too few end librdkafka and gRPC in the middle, with SIGABRT and no word."""

from __future__ import annotations

import contextlib
import resource
from typing import Final

FEWEST: Final = 64
"""Open files without which the daemon or the tap is not started; a daemon without clients takes about 40."""


def allow_open_files() -> int:
    """Raise the limit of open files to the hard limit, and return it; -1 if there is none.

    librdkafka aborts the process when it cannot open one. Each group and each consumer instance has a Kafka client with about
    eight open files.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return -1 if limit == resource.RLIM_INFINITY else limit


def too_few(limit: int) -> str:
    """Say what keeps a program from starting that may open so many files; empty if they are enough."""
    if limit < 0 or limit >= FEWEST:
        return ""
    return f"at most {limit} files may be open, and {FEWEST} are needed: allow more (ulimit -n, LimitNOFILE of systemd)"


__all__ = ["FEWEST", "allow_open_files", "too_few"]
