"""A parser of command lines that says what is wrong in one line."""

from __future__ import annotations

import argparse
from typing import NoReturn

from pixy.escaping import escaped

EXIT_USAGE = 2


class Parser(argparse.ArgumentParser):
    """As argparse's, without the block of usage before an error: that is in ``--help``. Subcommands' parsers are like it."""

    def error(self, message: str) -> NoReturn:
        """Write one line to standard error, and raise SystemExit with exit code 2."""
        text = " ".join(message.split())
        self.exit(EXIT_USAGE, escaped(f"{self.prog}: {text} (see {self.prog} --help)") + "\n")


__all__ = ["Parser"]
