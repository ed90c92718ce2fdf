"""Patterns of topics in Java's dialect."""

from __future__ import annotations

import re

import pytest

from pixy.api.restv1.errors import ApiError
from pixy.api.restv1.topic_patterns import posix_pattern


@pytest.mark.parametrize(
    ("pattern", "posix"),
    [
        ("orders.*", "orders.*"),
        (r"x-\d", "x-[0-9]"),
        (r"\w+\.\D{2,}?", r"[A-Za-z0-9_]+\.[^0-9]{2,}"),
        (r"(?:a|b)*?c++", "(a|b)*c+"),
        (r"[\w\-.]+", "[A-Za-z0-9_.-]+"),
        (r"[^\d\.]x", "[^0-9.]x"),
        ("[[:alpha:]0-9]a", "[[:alpha:]0-9]a"),
        ("(", "("),
        ("[", "["),
    ],
)
def test_what_posix_writes_otherwise_is_translated(pattern: str, posix: str) -> None:
    assert posix_pattern(pattern) == posix


@pytest.mark.parametrize(
    "pattern", ["(?i)a", "a(?=b)", "(?!a)b", "(?<!a)b", r"\bx", r"\p{L}", r"[\]]", r"a\Qb"]
)
def test_what_posix_cannot_say_is_refused(pattern: str) -> None:
    with pytest.raises(ApiError, match="is not supported") as caught:
        posix_pattern(pattern)
    assert caught.value.kind.status == 422


@pytest.mark.parametrize("pattern", [r"t\d+-(?:a|\w)", r"[\w\-]+?", "a{1,2}?b?+"])
def test_a_translation_matches_the_same_names(pattern: str) -> None:
    for name in ("t12-a", "t-b", "ab", "a", "aab", "t1-_", "x.y"):
        java = pattern.replace("?+", "?")
        assert bool(re.fullmatch(java, name)) == bool(re.fullmatch(posix_pattern(pattern), name)), name
