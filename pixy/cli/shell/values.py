"""Values on the command line that a message to the daemon can hold: numbers within its fields, and text in UTF-8."""

from __future__ import annotations

import math
import re
from typing import Any, Final

import click

MAX_PARTITION: Final = 2**31 - 1
MAX_OFFSET: Final = 2**63 - 1
"""Also of a time, in milliseconds since 1970."""
PARTITION: Final = click.IntRange(0, MAX_PARTITION)
OFFSET: Final = click.IntRange(0, MAX_OFFSET)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_LONGEST: Final = 10_000_000.0
"""Seconds that a call may take, about four months: gRPC refuses what no clock can hold."""


class Seconds(click.FloatRange):
    """A number of seconds above 0."""

    def __init__(self) -> None:
        super().__init__(0, _LONGEST, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert a text. Raises click.BadParameter."""
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return found


def is_text(text: str) -> bool:
    """Return whether a text can be written as UTF-8: Python and JSON allow halves of surrogate pairs, which UTF-8 does not."""
    return _SURROGATE.search(text) is None


def check_texts(ctx: click.Context) -> None:
    """Refuse arguments that are not UTF-8, except for names of files.

    Raises:
        click.BadParameter: the first of them.
    """
    for param in ctx.command.params:
        value = ctx.params.get(param.name or "")
        if isinstance(param.type, click.Path):
            continue
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, str) and not is_text(each):
                raise click.BadParameter(
                    "it is not UTF-8; messages of any bytes come from files or standard input", ctx, param
                )


__all__ = ["MAX_OFFSET", "MAX_PARTITION", "OFFSET", "PARTITION", "Seconds", "check_texts", "is_text"]
