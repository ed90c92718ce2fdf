"""The start message of a worker: where to import from, its limits, and the actor, pickled separately."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass

ROOM = 16 << 20
"""Bytes that a worker needs at least beside what it has when it starts."""


@dataclass(frozen=True, slots=True)
class Spec:
    """The settings of a worker.

    ``actor`` is the pickle of (class, arguments, keyword arguments, the error that the actor is restarted for or
    None); it is unpickled after :meth:`prepare`. ``limit`` is the most bytes of a frame, ``memory`` of the address
    space, or None (see :meth:`limit_memory`); ``stop_grace`` is in seconds.
    """

    path: str
    name: str
    actor: bytes
    limit: int
    memory: int | None
    stop_grace: float
    log_level: int
    sys_path: tuple[str, ...]
    argv: tuple[str, ...]
    directory: str
    main_name: str | None
    main_path: str | None

    def prepare(self) -> None:
        """Set up this process as the parent is."""
        sys.path[:] = self.sys_path
        sys.argv[:] = self.argv
        os.chdir(self.directory)

    def limit_memory(self, actor: str) -> None:
        """Limit the address space of this process, which has imported what the actor needs.

        Args:
            actor: the class of the actor, for the error.

        Raises:
            ValueError: the limit leaves no room beside what the process has already (checked where ``/proc`` is).
        """
        if self.memory is None:
            return
        import ctypes
        import resource

        with suppress(OSError):  # where there is none, none is needed
            # A thread that ends loads it; without memory for that, the process would abort at its end.
            ctypes.CDLL("libgcc_s.so.1")
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        memory = self.memory if hard == resource.RLIM_INFINITY else min(self.memory, hard)
        least = address_space() + ROOM
        if memory < least:
            raise ValueError(
                f"{actor}.memory_limit is {least} bytes or more, not {memory}: "
                f"its worker has {least - ROOM} when it starts, with all libraries"
            )
        resource.setrlimit(resource.RLIMIT_AS, (memory, hard))


def address_space() -> int:
    """Return the bytes of this process's address space; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as pages:
            return int(pages.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def main_program() -> tuple[str | None, str | None]:
    """Return the name or the path by which another process can load this process's main program; None and None if none can."""
    main = sys.modules.get("__main__")
    if (
        main is not None
    ):  # what a worker sends back names the main program's classes so, as with multiprocessing
        sys.modules.setdefault("__mp_main__", main)
    known: tuple[str | None, str | None] | None = vars(main).get("actors_main_program")
    if known is not None:  # this process is a worker itself
        return known
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if name is not None:
        # The ``__main__`` of a package runs at once: it has nothing to import.
        return (None, None) if name == "__main__" or name.endswith(".__main__") else (name, None)
    path = getattr(main, "__file__", None)
    # That of a program from standard input is "<stdin>".
    return None, os.path.abspath(path) if path is not None and os.path.isfile(path) else None
