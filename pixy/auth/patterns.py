"""The patterns of ``rules``, ``limits`` and ``auth.groups``. Pure.

``*`` matches everything, ``orders.*`` a prefix, ``re:EXPRESSION`` a whole name in RE2's syntax, and anything else one
name. RE2 takes linear time, so no name that a client sends makes a check slow. The name ``*`` stands for all names at
once: no expression matches it, since few expressions match all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import re2

from pixy.auth.principal import ANONYMOUS, Principal
from pixy.errors import ConfigError

Matches = Callable[[str], object]

EVERYTHING: Final = "*"
"""Stands for every topic or group where a right to all of them is needed; only the pattern ``*`` matches it."""
_EXPRESSION = "re:"
_GROUP = "group:"


def compile_pattern(text: str) -> Matches:
    """Return a function that tells whether a name matches. Raises ConfigError."""
    if text == EVERYTHING:
        return lambda _name: True
    if text.startswith(_EXPRESSION):
        options = re2.Options()
        options.log_errors = False
        try:
            expression = re2.compile(text.removeprefix(_EXPRESSION), options)
        except re2.error as error:
            why = error.args[0] if error.args else ""
            shown = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
            raise ConfigError(f"bad pattern {text!r}: {shown}") from None
        return lambda name: name != EVERYTHING and _is_text(name) and expression.fullmatch(name) is not None
    head, star, tail = text.partition("*")
    if tail or not text:
        raise ConfigError(
            f"bad pattern {text!r}: * stands at the end only; re:EXPRESSION matches anything else"
        )
    return (lambda name: name.startswith(head)) if star else (lambda name: name == text)


def _is_text(name: str) -> bool:
    """Return whether a name is Unicode: RE2 takes no other, and bytes of a client that are not UTF-8 stand for themselves."""
    return name.isascii() or not any("\ud800" <= each <= "\udfff" for each in name)


class AnyOf:
    """Some patterns; a name matches if one of them does.

    Args:
        patterns: their texts.

    Raises:
        ConfigError: a pattern is wrong.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        matches = {text: compile_pattern(text) for text in patterns}
        plain = [text for text in matches if not text.startswith(_EXPRESSION)]
        self._names = frozenset(text for text in plain if not text.endswith("*"))
        self._prefixes = tuple(text[:-1] for text in plain if text.endswith("*"))
        self._expressions = [match for text, match in matches.items() if text.startswith(_EXPRESSION)]

    def __call__(self, name: str) -> bool:
        """Return whether a name matches."""
        if name in self._names or name.startswith(self._prefixes):
            return True
        return bool(self._expressions) and any(matches(name) for matches in self._expressions)


class Who:
    """Some principals: patterns of names, and ``group:NAME``. ``*`` is everybody but ``anonymous``.

    Args:
        who: the texts.
        groups: ``auth.groups``: the members of each group, as patterns of names.

    Raises:
        ConfigError: a pattern is wrong.
    """

    def __init__(self, who: Sequence[str], groups: Mapping[str, Sequence[str]]) -> None:
        self._groups = {text.removeprefix(_GROUP) for text in who if text.startswith(_GROUP)}
        members = [member for name in sorted(self._groups) for member in groups.get(name, ())]
        names = [text for text in who if not text.startswith(_GROUP)] + members
        self._anonymous = ANONYMOUS.name in names
        self._names = AnyOf(names)

    def __call__(self, principal: Principal) -> bool:
        """Return whether a principal is one of them."""
        if principal.name == ANONYMOUS.name:
            return self._anonymous
        return not self._groups.isdisjoint(principal.groups) or self._names(principal.name)


__all__ = ["EVERYTHING", "AnyOf", "Who", "compile_pattern"]
