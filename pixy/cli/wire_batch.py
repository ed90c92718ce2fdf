"""``kafka-pixy wire batch``: record sets as JSON lines, and back."""

from __future__ import annotations

import argparse
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Add the command to the program ``kafka-pixy wire``."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "batch", help="a record set to JSON lines, and back"
    )
    parser.set_defaults(handler=lambda _args: 0)
