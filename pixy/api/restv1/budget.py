"""The bytes that requests and answers may hold together, over the whole process."""

from __future__ import annotations

from types import TracebackType

from pixy.errors import OverBudget


class Budget:
    """Counts what is held; refuses what would be too much. Of one event loop, so without a lock."""

    __slots__ = ("held", "limit", "most", "refused")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.most = 0
        """The largest sum so far."""
        self.refused = 0
        """How often something was refused."""

    def share(self) -> Share:
        """Something that holds nothing yet; leave it with ``with`` and it gives all back."""
        return Share(self)


class Share:
    """What one request holds."""

    __slots__ = ("_budget", "held")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.held = 0

    def take(self, size: int) -> None:
        """Hold ``size`` bytes more. Raises OverBudget, and then holds what it held before."""
        budget = self._budget
        if budget.held + size > budget.limit:
            budget.refused += 1
            raise OverBudget("rest.max_buffered_bytes")
        budget.held += size
        budget.most = max(budget.most, budget.held)
        self.held += size

    def give_back(self, size: int | None = None) -> None:
        """Let go of ``size`` bytes, or of all."""
        size = self.held if size is None else min(size, self.held)
        self._budget.held -= size
        self.held -= size

    def hold(self, size: int) -> None:
        """Hold ``size`` bytes from now on, whatever the limit: they are there already."""
        budget = self._budget
        budget.held += size - self.held
        budget.most = max(budget.most, budget.held)
        self.held = size

    def __enter__(self) -> Share:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.give_back()
