"""A dictionary with a bound: what was used the longest time ago is forgotten, and counted."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Bounded(Generic[K, V]):
    """At most ``limit`` entries; :meth:`get`, :meth:`make` and setting make an entry the newest."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.forgotten = 0
        self._entries: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def values(self) -> list[V]:
        """All values, the longest unused first."""
        return list(self._entries.values())

    def items(self) -> list[tuple[K, V]]:
        """All entries, the longest unused first."""
        return list(self._entries.items())

    def get(self, key: K) -> V | None:
        """The value, None if there is none (any more)."""
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key]

    def make(self, key: K, factory: Callable[[], V]) -> V:
        """The value; a new one if there is none."""
        if key not in self._entries:
            self[key] = factory()
        self._entries.move_to_end(key)
        return self._entries[key]

    def __setitem__(self, key: K, value: V) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        while len(self._entries) > self.limit:
            self._entries.popitem(last=False)
            self.forgotten += 1

    def pop(self, key: K) -> V | None:
        """Remove an entry; its value."""
        return self._entries.pop(key, None)

    def clear(self) -> None:
        """Remove all; they are not counted as forgotten."""
        self._entries.clear()
