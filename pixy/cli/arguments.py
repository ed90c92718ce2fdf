"""A parser of command lines that says what is wrong in one line."""

from __future__ import annotations

import argparse
import difflib
import re
import textwrap
from collections.abc import Mapping
from typing import Any, NoReturn

from pixy.escaping import escaped

EXIT_USAGE = 2
_WRONG_CHOICE = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)")
_WRONG_OPTION = re.compile(r"unrecognized arguments: (-[^\s=]*)")
"""Match argparse's own messages."""
_WIDTH = 80
"""Columns of the examples and exit codes at the end of a help text. An example with more of them is broken by its author."""


class Once(argparse.Action):
    """Stores the value of an option that may be given once. A switch with a value may be given again with the same one."""

    given = False

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, _option: Any = None
    ) -> None:
        """Store a value. Calls the parser's ``error`` if there is one already."""
        again = self.nargs == "?" and values == getattr(namespace, self.dest)
        if self.option_strings and self.given and not again:
            parser.error(f"{self._named()} is given twice: it takes one value")
        self.given = True
        setattr(namespace, self.dest, values)

    def _named(self) -> str:
        """Return the option's names, without that of one dash if it is the other one's."""
        names = [each for each in self.option_strings if f"-{each}" not in self.option_strings]
        return " / ".join(names)


class Parser(argparse.ArgumentParser):
    """As argparse's, without the block of usage before an error: that is in ``--help``. Subcommands' parsers are like it.

    Args:
        examples: command lines, each with what it does; the end of the help, and a section of the man page.
        exits: exit codes and their meaning; as well.
    """

    def __init__(
        self,
        *args: Any,
        examples: Mapping[str, str] | None = None,
        exits: Mapping[int, str] | None = None,
        **options: Any,
    ) -> None:
        self.examples, self.exits = examples or {}, exits or {}
        if examples or exits:
            ends = (options.get("epilog"), _examples(self.examples), _exits(self.exits))
            options["epilog"] = "\n\n".join(each.strip() for each in ends if each)
            options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
            options["description"] = _narrow(options.get("description") or "")
        super().__init__(*args, **options)
        for name in (None, "store"):
            self.register("action", name, Once)

    def parse_known_args(self, *args: Any, **options: Any) -> Any:
        """Parse a command line. An option that takes one value and has two is an error: none is dropped in silence."""
        for action in self._actions:
            if isinstance(action, Once):
                action.given = False
        return super().parse_known_args(*args, **options)

    def error(self, message: str) -> NoReturn:
        """Write one line to standard error, and raise SystemExit with exit code 2."""
        text = " ".join(message.split()) + self.meant(message)
        self.exit(EXIT_USAGE, escaped(f"{self.prog}: {text} (see {self.prog} --help)") + "\n")

    def meant(self, message: str) -> str:
        """Return ``, did you mean 'x'?`` for what resembles the wrong option, command or value of an error most; empty if nothing does."""
        if found := _WRONG_CHOICE.search(message):
            known = re.findall(r"[^\s,'\"]+", found[2])
        elif found := _WRONG_OPTION.search(message):
            # Without dashes: they alone would make short options alike.
            options = {each.lstrip("-"): each for each in self._option_string_actions}
            close = difflib.get_close_matches(found[1].lstrip("-"), options, 1)
            return f", did you mean {options[close[0]]!r}?" if close else ""
        else:
            return ""
        close = difflib.get_close_matches(found[1], known, 1)
        return f", did you mean {close[0]!r}?" if close else ""


def _narrow(text: str) -> str:
    """Fill a text that has lines wider than a help text."""
    wide = any(len(line) > _WIDTH for line in text.splitlines())
    return textwrap.fill(text, _WIDTH) if wide else text


def _examples(examples: Mapping[str, str]) -> str:
    lines = [
        f"  {line}" + (f"\n{_filled(meaning, '      ')}" if meaning else "")
        for line, meaning in examples.items()
    ]
    return "\n".join(["examples:", *lines]) if lines else ""


def _exits(exits: Mapping[int, str]) -> str:
    return (
        "\n".join(
            ["exit codes:", *(_filled(meaning, f"  {code}  ") for code, meaning in sorted(exits.items()))]
        )
        if exits
        else ""
    )


def _filled(text: str, first: str) -> str:
    """Break a text into lines that begin below its first word."""
    return textwrap.fill(text, _WIDTH, initial_indent=first, subsequent_indent=" " * len(first))


__all__ = ["Once", "Parser"]
