"""State machines in the manner of Erlang's gen_statem: handlers by state and message, postponed messages, timeouts.

    class Door(StateMachine):
        initial = "locked"

        @when("locked", Code)
        def try_code(self, message): ...   # self.goto("open", timeout=10.0)

A handler's ``goto`` takes effect when the handler has returned; if it raises, the state stays. The method of
:func:`entering` runs when the new state is in effect; if it raises, the machine is in the new state.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from actors._actor import Actor
from actors._checks import no_generator, seconds
from actors._dispatch import marks_of

H = TypeVar("H", bound=Callable[..., Any])

_WHEN, _ENTERING = "_actors_when", "_actors_entering"


class _Any:
    def __repr__(self) -> str:
        return "ANY"


ANY = _Any()
"""In :func:`when`: each state that has no handler of its own for the message."""

_TIMEOUT_KEY = ("actors.patterns.fsm", "state timeout")


@dataclass(frozen=True, slots=True)
class StateTimeout:
    """The machine has been in ``state`` for the time that ``goto`` set; handle it with :func:`when`."""

    state: Any


def when(state: Hashable, *messages: type) -> Callable[[H], H]:
    """Make a method the handler of messages of exactly these types in a state; its value is the reply.

    Args:
        state: the state, or :data:`ANY`. Apply the decorator several times for several states.
        messages: one or more classes.

    Raises:
        TypeError: no class at all, or something that is not a class.
    """
    if not messages or not all(isinstance(message, type) for message in messages):
        raise TypeError(f"@when() takes a state and the classes of messages, not {messages!r}")

    def mark(method: H) -> H:
        setattr(method, _WHEN, (*getattr(method, _WHEN, ()), *((state, message) for message in messages)))
        return method

    return mark


def entering(state: Hashable) -> Callable[[H], H]:
    """Make a method run when the machine enters a state, also the initial one; it must not call ``goto``.

    The state is in effect then, with its timeout, and what was postponed comes next. If the method raises, that holds all
    the same: who asked for the change gets the error, or supervision decides if it was told, and a restart begins in
    the initial state. An error in the initial state is a failure of the start.

    Args:
        state: the state. Apply the decorator several times for several states.

    Raises:
        TypeError: it is :data:`ANY`.
    """

    if state is ANY:
        raise TypeError("@entering() takes a state; ANY is for @when()")

    def mark(method: H) -> H:
        setattr(method, _ENTERING, (*getattr(method, _ENTERING, ()), state))
        return method

    return mark


class StateMachine(Actor):
    """An actor whose handlers depend on its state. An override of ``on_start`` calls ``super().on_start()``."""

    initial: ClassVar[Hashable]
    """The state after a start and after each restart. One that nothing is for is a ``ValueError`` of the constructor."""

    _handlers: ClassVar[dict[tuple[Any, type], str]] = {}
    _entries: ClassVar[dict[Any, str]] = {}
    _states: ClassVar[frozenset[Any]] = frozenset()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._handlers, cls._entries = dict(cls._handlers), dict(cls._entries)
        own: set[Any] = set()
        for name, value in vars(cls).items():
            for key in marks_of(cls, name, value, _WHEN):
                _take(cls, cls._handlers, own, key, name)
            for state in marks_of(cls, name, value, _ENTERING):
                _take(cls, cls._entries, own, state, name)
        named = {*(state for state, _ in cls._handlers), *cls._entries}
        # Where a handler is for ANY state, one that has no other may be the initial one.
        initial = {cls.initial} if ANY in named and hasattr(cls, "initial") else set()
        cls._states = frozenset((named | initial) - {ANY})

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not hasattr(self, "initial"):
            raise TypeError(f"{type(self).__qualname__} has no 'initial' state")
        self._check(self.initial)
        self._state: Any = self.initial
        self._next: tuple[Any, float | None] | None = None
        self._in_entry = False
        self._handling = False

    @property
    def state(self) -> Any:
        """The current state."""
        return self._state

    # -- for handlers -----------------------------------------------------------------------------

    def goto(self, state: Hashable, *, timeout: float | None = None) -> None:
        """Change the state when this handler has returned. The current state only gets the new timeout.

        A change ends the state's timeout, runs the method of :func:`entering`, and lets the messages that were
        postponed be handled again, before all others.

        Args:
            state: the next one.
            timeout: seconds until a :class:`StateTimeout`, unless the state changes before; None sets none.

        Raises:
            ValueError: no handler or entry names the state.
            RuntimeError: called by the method of an entry, or while no message is handled.
        """
        if timeout is not None:
            seconds("timeout", timeout)
        self._check(state)
        if self._in_entry:
            raise RuntimeError("a method of entering() cannot change the state; send a message instead")
        if not self._handling:
            raise RuntimeError(
                "goto() changes the state after a handler, and none is running; send a message instead"
            )
        self._next = (state, timeout)

    def _check(self, state: Any) -> None:
        if state not in self._states:
            known = ", ".join(sorted(map(repr, self._states)))
            raise ValueError(f"{type(self).__qualname__} has no state {state!r}; its states are {known}")

    def postpone(self) -> None:
        """Handle the current message again after the next change of state; its asker waits.

        Raises:
            StashFull: ``stash_capacity`` messages are postponed already.
        """
        self.stash()

    def on_unhandled(self, message: Any) -> Any:
        """Called for a message that has no handler in this state; by default as for an :class:`Actor`."""
        return super().on_receive(message)

    # -- the machine --------------------------------------------------------------------------------

    def on_start(self) -> Any:
        """Enter the initial state."""
        return self._enter()

    def on_receive(self, message: Any) -> Any:
        """Call the handler for the state and the message's type."""
        kind = type(message)
        if kind is StateTimeout and message.state != self._state:
            return None  # it was under way when the state changed
        name = self._handlers.get((self._state, kind)) or self._handlers.get((ANY, kind))
        self._next, self._handling = None, True
        waits = False
        try:
            result = self.on_unhandled(message) if name is None else getattr(self, name)(message)
            waits = inspect.iscoroutine(result)
        finally:
            self._handling = waits
        if waits:
            return self._finish(result)
        entered = self._change()
        return _after(entered, result) if inspect.iscoroutine(entered) else result

    async def _finish(self, handler: Any) -> Any:
        try:
            value = await handler
        finally:
            self._handling = False
        entered = self._change()
        if inspect.iscoroutine(entered):
            await entered
        return value

    def _change(self) -> Any:
        wanted, self._next = self._next, None
        if wanted is None:
            return None
        state, timeout = wanted
        changed = state != self._state
        self._state = state
        if timeout is None:
            self.cancel_timer(_TIMEOUT_KEY)
        else:
            self.set_timer(_TIMEOUT_KEY, timeout, StateTimeout(state))
        if not changed:
            return None
        self.unstash_all()
        return self._enter()

    def _enter(self) -> Any:
        name = self._entries.get(self._state)
        if name is None:
            return None
        self._in_entry = True
        try:
            result = getattr(self, name)()
        finally:
            self._in_entry = False
        return self._guarded(result) if inspect.iscoroutine(result) else None

    async def _guarded(self, entered: Any) -> None:
        self._in_entry = True
        try:
            await entered
        finally:
            self._in_entry = False


async def _after(entered: Any, value: Any) -> Any:
    await entered
    return value


def _take(cls: type, table: dict[Any, str], own: set[Any], key: Any, name: str) -> None:
    if key in own:
        raise TypeError(f"{cls.__qualname__}: {table[key]} and {name} are both for {key!r}")
    no_generator(f"{cls.__qualname__}.{name}", getattr(cls, name))
    own.add(key)
    table[key] = name
