"""What a process lets go of that the code of a worker's actor has forked."""

from __future__ import annotations

import os
import socket

from actors.process.main import Worker


def test_a_child_of_a_forked_child_closes_no_file_of_its_parent() -> None:
    """It inherits the hook that closes the connection, whose file descriptors have other owners by then."""
    ours, theirs = socket.socketpair()
    worker, watched = Worker(ours), os.dup(ours.fileno())
    worker.forked(watched)
    assert theirs.recv(1) == b"", "nobody else has the connection"
    opened = os.dup(theirs.fileno())
    if opened != watched:
        os.dup2(opened, watched)
        os.close(opened)
    worker.forked(watched)
    os.close(watched)  # fails if it was closed
    theirs.close()
