"""The bytes that the bodies of all requests and answers of the process may hold together."""

from __future__ import annotations

from types import TracebackType

from pixy.engine.shares import TIMES_FREE
from pixy.errors import OverBudget


class Budget:
    """Counts the bytes held and refuses more than the limit. For one event loop, so it needs no lock.

    One request may hold all of it. By several, a caller may hold at most three times what he leaves free, so three quarters
    if he is alone, and the next one three quarters of the rest: others find room, however many take all they can
    (dynamic thresholds, as in :class:`pixy.engine.shares.Shares`).

    Args:
        limit: bytes.
        key: of the limit in the configuration, for errors.
    """

    __slots__ = ("_callers", "_key", "held", "limit", "most", "refused")

    def __init__(self, limit: int, key: str = "rest.max_buffered_bytes") -> None:
        self.limit = limit
        self._key = key
        self._callers: dict[str, int] = {}
        self.held = 0
        self.most = 0
        """The largest sum so far."""
        self.refused = 0
        """The number of times that bytes were refused."""

    def share(self, caller: str = "") -> Share:
        """Return a new share that holds nothing. As a context manager it gives everything back at the end.

        Args:
            caller: who holds it; empty: somebody unknown, whose shares are not added up.
        """
        return Share(self, caller)

    def change(self, caller: str, size: int) -> None:
        """Count more bytes, or fewer, for a caller.

        Args:
            caller: as for :meth:`share`.
            size: bytes; below 0: they are given back.
        """
        self.held += size
        self.most = max(self.most, self.held)
        if caller:
            held = self._callers.get(caller, 0) + size
            if held:
                self._callers[caller] = held
            else:
                self._callers.pop(caller, None)

    def room(self, caller: str) -> int:
        """Return the bytes that a caller may have by one more request beside others."""
        room = self.limit - self.held
        if caller:
            room = (TIMES_FREE * room - self._callers.get(caller, 0)) // (TIMES_FREE + 1)
        return max(0, room)

    def check(self, caller: str, held: int, size: int) -> None:
        """Raise OverBudget if a caller may not have more bytes.

        Args:
            caller: as for :meth:`share`.
            held: bytes that his request holds already.
            size: bytes that it asks for beside them.
        """
        free = self.limit - self.held - size
        all_of_his = self._callers.get(caller, 0) if caller else 0
        unfair = all_of_his > held and all_of_his + size > TIMES_FREE * free
        if unfair or free < 0:
            self.refused += 1
            raise OverBudget(self._key)


class Share:
    """The bytes that one request holds."""

    __slots__ = ("_budget", "_caller", "_other", "held")

    def __init__(self, budget: Budget, caller: str) -> None:
        self._budget = budget
        self._caller = caller
        self._other: Share | None = None
        """Holds bytes of the same request."""
        self.held = 0

    def goes_with(self, other: Share) -> None:
        """Note that this share and another one hold bytes of the same request from now on: what has arrived of it, and what is read."""
        if other._budget is self._budget and other._caller == self._caller:
            self._other, other._other = other, self

    def goes_alone(self) -> None:
        """Note that no other share holds bytes of the same request any more."""
        self._other = None

    def take(self, size: int) -> None:
        """Hold ``size`` more bytes. Raises OverBudget, and then holds as many as before."""
        together = self.held if self._other is None else self.held + self._other.held
        self._budget.check(self._caller, together, size)
        self._budget.change(self._caller, size)
        self.held += size

    def give_back(self, size: int | None = None) -> None:
        """Release ``size`` bytes, or all."""
        size = self.held if size is None else min(size, self.held)
        if size:
            self._budget.change(self._caller, -size)
            self.held -= size

    def hold(self, size: int) -> None:
        """Hold exactly ``size`` bytes, even above the limit, because they exist already."""
        self._budget.change(self._caller, size - self.held)
        self.held = size

    def keep(self, size: int) -> None:
        """Hold ``size`` bytes that exist already; count no more of them than the caller may have, so others find room."""
        self.give_back()
        self.hold(min(size, self._budget.room(self._caller)))

    def hold_more(self, size: int) -> None:
        """Hold ``size`` more bytes that exist as well; as in :meth:`keep`, no more of them count than the caller may have."""
        self.hold(self.held + min(size, self._budget.room(self._caller)))

    def __enter__(self) -> Share:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.give_back()
