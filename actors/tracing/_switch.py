"""Base class of listeners to a system: they listen from ``start`` to ``stop``, or within a ``with`` block."""

from __future__ import annotations

from typing import Self


class Switch:
    """Base class: a ``with`` block starts and stops it."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to listen; do nothing if it listens already."""
        raise NotImplementedError

    def stop(self) -> None:
        """Listen no longer."""
        raise NotImplementedError
