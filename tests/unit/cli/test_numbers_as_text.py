"""Numbers of JSON lines are written as they stand there."""

from __future__ import annotations

import json

import pytest

from pixy.cli.shell.errors import ShellError
from pixy.cli.shell.numbers_as_text import decode, encode
from pixy.cli.shell.produce_input import Shape, to_record

EXACT = [
    "1e400",
    "-1e400",
    "1E5",
    "0.1000000000000000055511151231257827",
    "-0",
    "-0.0",
    "1.0",
    "100000000000000000000000000000000.5",
    "9" * 5000,
    "[1e400,[],{},[0.10]]",
    '{"a":{"b":1.50,"c":"x\\ny","d":[null,true,-0]}}',
]


@pytest.mark.parametrize("text", EXACT, ids=range(len(EXACT)))
def test_a_number_keeps_its_text(text: str) -> None:
    """1e400 became Infinity, which is no JSON, and 0.10 became 0.1."""
    assert encode(decode(text.encode())) == text.encode()
    for line in ({"value": 0}, {"key": 0}, {"headers": {"h": 0}}):
        record = to_record(json.dumps(line).replace("0", text).encode(), 1, Shape(json_lines=True))
        assert text.encode() in (record.value, record.key, *(each.value for each in record.headers))


def test_white_space_goes_and_characters_stay() -> None:
    assert encode(decode('{"é": [1, 1e400, "\\u00e9"]}'.encode())) == '{"é":[1,1e400,"é"]}'.encode()


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_json_is_refused(word: str) -> None:
    with pytest.raises(ShellError, match=f"line 1: not JSON: {word} is no number of JSON"):
        to_record(f'{{"value": [{word}]}}'.encode(), 1, Shape(json_lines=True))
