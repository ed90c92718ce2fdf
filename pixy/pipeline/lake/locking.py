"""Hold a lock file, so that one process at a time does a job on this machine."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pixy.pipeline.errors import LakeError, PipelineError


@contextmanager
def exclusive_lock(path: Path | str, busy: PipelineError) -> Iterator[None]:
    """Hold the lock of a file; create the file and its folder. The system frees it when a process is killed.

    Args:
        path: the lock file.
        busy: raised if another process holds the lock.

    Raises:
        LakeError: the file cannot be written.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("wb")
    except OSError as error:
        raise LakeError(f"cannot write {path.parent}: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise busy from None
        yield
