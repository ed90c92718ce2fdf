"""The reading order in the package's docstring names files, classes and messages that exist."""

from __future__ import annotations

import re
from pathlib import Path

from pixy.engine import consume

ROOT = Path(__file__).resolve().parents[4]
FOLDER = "pixy/engine/consume/"


def test_each_file_of_the_reading_order_contains_the_names_that_its_step_mentions() -> None:
    text = consume.__doc__ or ""
    steps = re.findall(r"^\d\. ``([\w/.]+)``:(.*?)(?=^\d\. |^``)", text, re.MULTILINE | re.DOTALL)
    assert len(steps) == 6
    for path, words in steps:
        source = (ROOT / path).read_text()
        for name in re.findall(r"``(\w+)``", words):
            assert re.search(rf"\b{name}\b", source), f"{path} does not mention {name}"


def test_each_file_that_the_docstring_mentions_exists() -> None:
    text = consume.__doc__ or ""
    paths = re.findall(r"``([\w/]+\.py)``", text)
    for path in paths:
        assert (ROOT / path).exists() or (ROOT / FOLDER / path).exists(), path
