"""Every shell block of every page is run by a test, or says on the page why not; what `make` is asked for exists."""

from __future__ import annotations

import re

import pytest

from tests.pages import (
    LONG_PAGES,
    OUTPUTS,
    ROOT,
    RUN_PAGES,
    Block,
    blocks,
    developing,
    differences,
    pages,
    shell_blocks,
)

ELSEWHERE = {
    "docs/admin.md": "tests/unit/docs/test_admin_page.py",
    "docs/rest.md": "tests/integration/restv1/test_docs.py",
    "docs/security.md": "tests/unit/docs/test_security_page.py",
    "docs/tap.md": "tests/unit/docs/test_tap_page.py",
    "docs/wire.md": "tests/unit/docs/test_wire_page.py",
}
"""Pages whose blocks have a test of their own."""
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

BLOCKS = [block for page in pages() for block in shell_blocks(page)]


@pytest.mark.parametrize("block", BLOCKS, ids=[block.where for block in BLOCKS])
def test_a_shell_block_is_run_or_says_why_not(block: Block) -> None:
    if block.page in (*RUN_PAGES, *LONG_PAGES) or block.reason:
        return
    if block.page in ELSEWHERE:
        assert block.page.rpartition("/")[2] in (ROOT / ELSEWHERE[block.page]).read_text()
        return
    assert developing(block), (
        f"{block.where} is not run: add its page, or begin it with '# Not tested: REASON'"
    )


@pytest.mark.parametrize("page", pages())
def test_a_target_of_make_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    named = {
        found
        for each in re.finditer(r"(?:`|^ *)make ([\w-]+)", text, re.MULTILINE)
        for found in each.groups()
    }
    assert named <= TARGETS, named - TARGETS


@pytest.mark.parametrize(
    "block", [each for each in BLOCKS if "pytest" in each.text], ids=lambda block: block.where
)
def test_a_test_that_a_page_runs_exists(block: Block) -> None:
    for path in re.findall(r"\btests/[\w/.]+", block.text):
        assert (ROOT / path).exists(), path


def test_a_reason_says_something() -> None:
    reasons = [block.reason for block in BLOCKS if block.reason]
    assert len(reasons) >= 3 and all(len(reason.split()) >= 3 for reason in reasons)


def test_pages_print_one_line_for_the_path() -> None:
    for page in pages():
        text = (ROOT / page).read_text()
        assert 'PATH="$PWD' not in text, f"{page}: the line is `. .venv/bin/activate`"
        assert ".venv/bin/kafka-pixy" not in text, f"{page}: kafka-pixy, after `. .venv/bin/activate`"


def test_no_page_installs_what_is_not_published() -> None:
    for page in pages():
        assert not re.search(r"pip3? install [^\n`]*\bkafka-pixy\b", (ROOT / page).read_text()), page


def test_how_a_page_is_read() -> None:
    text = "a\n```sh terminal\nx\n```\n\n```text\n1\n...\n9\n```\n  ```sh\n  # Not tested: no cluster here\n  y\n  ```\n```json 200\n{}\n```\n"
    first, output, second, third = blocks("page", text)
    assert (first.line, first.options, first.expected) == (2, ("terminal",), output)
    assert (second.reason, second.text) == ("no cluster here", "# Not tested: no cluster here\ny\n")
    assert second.expected == third and third.language in OUTPUTS
    assert differences(output, "1\n2\n3\n9\n") == "" == differences(output, "1\n9\n")
    assert "but the output is" in differences(output, "1\n2\n") and differences(third, "{ }") == ""
