"""How the test files are dealt out to the processes of ``make check``."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.effort import DEAR, UNIT, is_in_share

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(ROOT.glob("tests/unit/**/test_*.py"))


def test_each_file_is_in_one_share_and_no_share_has_nearly_all() -> None:
    found = Counter(share for path in FILES for share in ("1/3", "2/3", "3/3") if is_in_share(path, share))
    assert found.total() == len(FILES) and len(found) == 3
    assert max(found.values()) < len(FILES) / 2


def test_the_dear_files_exist_and_are_dealt_out() -> None:
    dear = [UNIT / path for path in DEAR]
    assert [path for path in dear if not path.exists()] == []
    assert all(any(is_in_share(path, share) for path in dear) for share in ("1/3", "2/3", "3/3"))


def test_a_file_that_is_no_unit_test_is_in_the_first_share() -> None:
    path = ROOT / "tests/chaos/test_kit.py"
    assert [is_in_share(path, share) for share in ("1/3", "2/3", "3/3")] == [True, False, False]


def test_the_shares_that_make_check_runs_are_all() -> None:
    text = (ROOT / "Makefile").read_text()
    [shares] = re.findall(r"^QUICK := (.*)$", text, re.MULTILINE)
    assert shares.split() == [f"quick-{number}" for number in range(1, len(shares.split()) + 1)]
    assert "PIXY_TEST_SHARE=$*/$(words $(QUICK))" in text
    [check] = re.findall(r"^check:.*\n(?:\t.*\n)*", text, re.MULTILINE)
    assert "$(QUICK)" in check


def test_without_a_share_a_process_tests_all_files() -> None:
    assert all(is_in_share(path, "1/1") for path in FILES)
