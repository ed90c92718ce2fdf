"""Answers that are the same for everybody who asks at the same time: made once for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class SharedAnswers:
    """Those that are being made."""

    def __init__(self) -> None:
        self._making: dict[Hashable, asyncio.Task[Any]] = {}

    async def get(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """Return an answer: the one that is being made for others, or a new one.

        Args:
            key: what is asked for. There must be few of them.
            make: makes the answer; its errors are those of all who wait for it.
        """
        task = self._making.get(key)
        if task is None:
            task = self._making[key] = asyncio.ensure_future(make())
            task.add_done_callback(lambda done: self._made(key, done))
        answer: T = await asyncio.shield(task)
        return answer

    def _made(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        del self._making[key]
        if not task.cancelled():
            task.exception()  # whoever waits hears it; perhaps nobody does any more


__all__ = ["SharedAnswers"]
