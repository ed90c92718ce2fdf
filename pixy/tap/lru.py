"""A dictionary with a limit: it evicts the least recently used entry, and counts evictions."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruDict(Generic[K, V]):
    """Keep at most ``limit`` entries; :meth:`get`, :meth:`get_or_create` and assignment count as use."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.forgotten = 0
        """Entries evicted at the limit."""
        self._entries: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def values(self) -> list[V]:
        """List all values, least recently used first."""
        return list(self._entries.values())

    def items(self) -> list[tuple[K, V]]:
        """List all entries, least recently used first."""
        return list(self._entries.items())

    def get(self, key: K) -> V | None:
        """Return the value, or None if the key is absent."""
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key]

    def get_or_create(self, key: K, factory: Callable[[], V]) -> V:
        """Return the value; if the key is absent, store what ``factory`` returns.

        Args:
            key: the key.
            factory: makes the value, and is called only if the key is absent.
        """
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
        """Remove an entry and return its value, or None if the key is absent."""
        return self._entries.pop(key, None)

    def clear(self) -> None:
        """Remove all entries without counting them as forgotten."""
        self._entries.clear()
