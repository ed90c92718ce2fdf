"""The pages for people, and the shell blocks in them, which are run as they are printed.

- A block fenced as ``sh`` is run; blocks of a page run in their order, in one shell.
- ``sh terminal``: in a terminal of its own, until the end of the page.
- A block that begins with ``# Not tested: REASON`` is not run. Readers see the reason, too.
- A ``text`` or ``json`` block right after a block is its output. A line ``...`` stands for any lines; JSON is compared as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUN_PAGES = tuple(
    page
    for page in ("README.md", "docs/install.md", "docs/configuration.md", "docs/shell.md")
    if (ROOT / page).exists()
)
"""Every command of these is run."""
LONG_PAGES = ("docs/pipeline.md",)
"""The same; these start Kafka and Spark: minutes."""
NOT_TESTED = re.compile(r"# Not tested(?: here)?: (?P<reason>.*)")
_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```[ ]*$", re.MULTILINE | re.DOTALL
)
SHELLS = ("sh", "bash", "shell", "console")
OUTPUTS = ("text", "json")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a page.

    Attributes:
        page: the page's path in the repository.
        line: the number of its first line, from 1.
        language: the first word behind the fence.
        options: the other words.
        text: what is between the fences, without their indentation.
        expected: the block of its output, if the page shows it.
    """

    page: str
    line: int
    language: str
    options: tuple[str, ...]
    text: str
    expected: Block | None = None

    @property
    def reason(self) -> str:
        """Why it is not run; empty: it is."""
        first, _, _ = self.text.partition("\n")
        found = NOT_TESTED.fullmatch(first)
        return found["reason"] if found else ""

    @property
    def where(self) -> str:
        """Where it stands, for people."""
        return f"{self.page}:{self.line}"


_COMMAND = re.compile(
    r"(make (?P<target>[\w-]+)( \w+=[\w,-]+)*|\.venv/bin/python -m (pytest|tests\.[\w.]+) .*)?( *#.*)?"
)
FIRST_STEPS = {"install", "pipeline-install", "run", "demo", "kafka"}
"""The targets of make that a page may begin with; others are for developers."""


def developing(block: Block) -> bool:
    """Whether a block only names commands for developers: CI runs those."""
    found = [_COMMAND.fullmatch(line) for line in block.text.splitlines()]
    return all(found) and not all(each and each["target"] in FIRST_STEPS for each in found)


def pages() -> list[str]:
    """List every page that is written for people."""
    found = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
    return [
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        *sorted(str(each.relative_to(ROOT)) for each in found),
    ]


def blocks(page: str, text: str | None = None) -> list[Block]:
    """List the fenced blocks of a page in their order.

    Args:
        page: its path in the repository.
        text: its text; None reads the file.
    """
    text = (ROOT / page).read_text(encoding="utf-8") if text is None else text
    found = list(_FENCE.finditer(text))
    return [
        _block(page, text, fence, following if following and _adjacent(text, fence, following) else None)
        for fence, following in zip(found, (*found[1:], None), strict=False)
    ]


def shell_blocks(page: str) -> Iterator[Block]:
    """Yield the blocks of a page that are commands."""
    return (block for block in blocks(page) if block.language in SHELLS)


def differences(expected: Block, output: str) -> str:
    """Describe how an output differs from the one that the page shows; empty: it does not."""
    if expected.language == "json":
        try:
            same = json.loads(output) == json.loads(expected.text)
        except ValueError:
            same = False
    else:
        pattern = "".join(
            "(?:.*\n)*?" if line == "..." else f"{re.escape(line)}\n"
            for line in expected.text.rstrip("\n").split("\n")
        )
        same = re.fullmatch(pattern, output if output.endswith("\n") else f"{output}\n") is not None
    return "" if same else f"{expected.where} shows\n{expected.text}\nbut the output is\n{output}"


def _adjacent(text: str, fence: re.Match[str], following: re.Match[str]) -> bool:
    return not text[fence.end() : following.start()].strip() and following["info"].split()[:1] in [
        [each] for each in OUTPUTS
    ]


def _block(page: str, text: str, fence: re.Match[str], following: re.Match[str] | None) -> Block:
    language, *options = fence["info"].split() or [""]
    return Block(
        page,
        text.count("\n", 0, fence.start()) + 1,
        language,
        tuple(options),
        re.sub(f"^{fence['indent']}", "", fence["text"], flags=re.MULTILINE),
        None if following is None else _block(page, text, following, None),
    )
