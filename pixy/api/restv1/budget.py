"""The bytes that the bodies of all requests and answers of the process may hold together."""

from __future__ import annotations

from types import TracebackType

from pixy.errors import OverBudget


class Budget:
    """Counts the bytes held and refuses more than the limit. For one event loop, so it needs no lock."""

    __slots__ = ("held", "limit", "most", "refused")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.most = 0
        """The largest sum so far."""
        self.refused = 0
        """How many times bytes were refused."""

    def share(self) -> Share:
        """A new share that holds nothing. As a context manager it gives everything back at the end."""
        return Share(self)


class Share:
    """The bytes that one request holds."""

    __slots__ = ("_budget", "held")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.held = 0

    def take(self, size: int) -> None:
        """Hold ``size`` more bytes. Raises OverBudget, and then holds as many as before."""
        budget = self._budget
        if budget.held + size > budget.limit:
            budget.refused += 1
            raise OverBudget("rest.max_buffered_bytes")
        budget.held += size
        budget.most = max(budget.most, budget.held)
        self.held += size

    def give_back(self, size: int | None = None) -> None:
        """Release ``size`` bytes, or all."""
        size = self.held if size is None else min(size, self.held)
        self._budget.held -= size
        self.held -= size

    def hold(self, size: int) -> None:
        """Hold exactly ``size`` bytes, even above the limit, because they exist already."""
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
