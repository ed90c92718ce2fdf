"""Dispatch by message type: a method names the messages it handles.

One dictionary lookup by the message's exact type, in a table made once per class. An actor with its
own ``on_receive`` does as it likes, and reaches the table through ``super().on_receive(message)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

H = TypeVar("H", bound=Callable[..., Any])

Handlers = dict[type, Callable[[Any, Any], Any]]

_MARK = "_handled_messages"


def handles(*messages: type) -> Callable[[H], H]:
    """Make a method of an actor the handler of messages of exactly these types.

    What the method returns is the reply, as with ``on_receive``; a coroutine function is awaited. A
    subclass that overrides the method replaces the handler. A message that no method handles is
    unhandled, as if there were no ``on_receive``.

    Args:
        messages: classes; a message of a subclass of theirs is not handled.
    """

    def mark(method: H) -> H:
        setattr(method, _MARK, messages)
        return method

    return mark


def handlers_of(actor_class: type) -> Handlers:
    """The table of an actor class: message type to the function that handles it.

    Raises:
        TypeError: two methods of one class handle the same message.
    """
    names: dict[type, str] = {}
    for base in reversed(actor_class.__mro__):
        own: dict[type, str] = {}
        for name, value in vars(base).items():
            for message in getattr(value, _MARK, ()):
                if message in own:
                    raise TypeError(
                        f"{base.__qualname__}: {own[message]} and {name} both handle {message.__qualname__}"
                    )
                own[message] = name
        names |= own
    return {message: getattr(actor_class, name) for message, name in names.items()}


__all__ = ["Handlers", "handlers_of", "handles"]
