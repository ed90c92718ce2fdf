"""Dispatch by message type: a decorator names the messages that a method handles.

Each actor class has a table, made once; a message costs one lookup by its exact type. An actor that
overrides ``on_receive`` reaches the table through ``super().on_receive(message)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from actors._checks import no_generator

H = TypeVar("H", bound=Callable[..., Any])

Handlers = dict[type, Callable[[Any, Any], Any]]

_MARK = "_handled_messages"


def handles(*messages: type) -> Callable[[H], H]:
    """Make a method of an actor the handler of messages of exactly these types.

    The value that the method returns is the reply, as with ``on_receive``; a coroutine is awaited. An
    override of the method in a subclass replaces the handler, with or without the decorator. A message
    whose type no method handles is treated as pykka treats messages without an ``on_receive``: with a
    warning in the log, and an :class:`~actors.Unhandled` event.

    Args:
        messages: one or more classes. Messages of their subclasses are not handled.

    Raises:
        TypeError: no class at all, or something that is not a class.
    """
    if not messages or not all(isinstance(message, type) for message in messages):
        raise TypeError(f"@handles() takes the classes of messages, not {messages!r}")

    def mark(method: H) -> H:
        setattr(method, _MARK, messages)
        return method

    return mark


def marks_of(owner: type, name: str, value: Any, mark: str) -> tuple[Any, ...]:
    """Return what a decorator has noted on a member of a class; nothing if it has not been there.

    Args:
        owner: the class.
        name: the member's.
        value: the member.
        mark: the attribute that the decorator sets.

    Raises:
        TypeError: it has been on a static method or a class method, which gets no actor.
    """
    kind = type(value) if isinstance(value, (staticmethod, classmethod)) else None
    marks: tuple[Any, ...] = getattr(value, mark, ()) or (getattr(value.__func__, mark, ()) if kind else ())
    if kind and marks:
        raise TypeError(
            f"{owner.__qualname__}.{name} is called with the actor, so it cannot be a {kind.__name__}"
        )
    return marks


def handlers_of(actor_class: type) -> Handlers:
    """Make the table of an actor class: from a message's type to the function that handles it.

    Raises:
        TypeError: two methods of one class handle the same message, or one is a generator function, a static method or a class method.
    """
    names: dict[type, str] = {}
    for base in reversed(actor_class.__mro__):
        own: dict[type, str] = {}
        for name, value in vars(base).items():
            for message in marks_of(base, name, value, _MARK):
                if message in own:
                    raise TypeError(
                        f"{base.__qualname__}: {own[message]} and {name} both handle {message.__qualname__}"
                    )
                own[message] = name
        names |= own
    for name in names.values():
        no_generator(f"{actor_class.__qualname__}.{name}", getattr(actor_class, name))
    return {message: getattr(actor_class, name) for message, name in names.items()}


__all__ = ["Handlers", "handlers_of", "handles"]
