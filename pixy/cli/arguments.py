"""A parser of command lines that says what is wrong in one line."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, NoReturn

from pixy.escaping import escaped

EXIT_USAGE = 2


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
        super().__init__(*args, **options)

    def error(self, message: str) -> NoReturn:
        """Write one line to standard error, and raise SystemExit with exit code 2."""
        text = " ".join(message.split())
        self.exit(EXIT_USAGE, escaped(f"{self.prog}: {text} (see {self.prog} --help)") + "\n")


def _examples(examples: Mapping[str, str]) -> str:
    lines = [f"  {line}" + (f"\n      {meaning}" if meaning else "") for line, meaning in examples.items()]
    return "\n".join(["examples:", *lines]) if lines else ""


def _exits(exits: Mapping[int, str]) -> str:
    return (
        "\n".join(["exit codes:", *(f"  {code}  {meaning}" for code, meaning in exits.items())])
        if exits
        else ""
    )


__all__ = ["Parser"]
