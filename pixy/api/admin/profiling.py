"""Take a profile of the running process, as folded stacks or as a flame graph.

A thread looks at all stacks some hundred times a second and counts them, so the profile has what runs as well as what waits in C code
that holds the interpreter's lock. Threads that only sleep are told apart by their names, which are the roots of the graph. One profile
at a time: it costs a few percent of a core.
"""

from __future__ import annotations

import html
import os
import sys
import threading
import time
from collections import Counter
from types import FrameType
from typing import Final

LONGEST: Final = 60.0
"""Seconds that a profile may take."""
EVERY: Final = 0.005
"""Seconds between two looks."""
DEEPEST: Final = 128
"""Frames of a stack, counted from the innermost."""
MOST: Final = 20_000
"""Different stacks; later ones are counted together."""
_WIDTH: Final = 1200
_HEIGHT: Final = 18
_NARROW: Final = 0.4
"""Pixels below which a box is left out."""

Stacks = Counter[tuple[str, ...]]


def sample(seconds: float, every: float = EVERY) -> Stacks:
    """Count the stacks of all other threads for a time. Blocks.

    Args:
        seconds: how long.
        every: seconds between two looks.
    """
    found: Stacks = Counter()
    until = time.monotonic() + min(seconds, LONGEST)
    own = threading.get_ident()
    while time.monotonic() < until:
        names = {each.ident: each.name for each in threading.enumerate()}
        for ident, frame in sys._current_frames().items():
            if ident != own:
                stack = (names.get(ident, "another thread"), *_stack(frame))
                found[stack if len(found) < MOST or stack in found else ("(others)",)] += 1
        time.sleep(every)
    return found


def _stack(frame: FrameType | None) -> list[str]:
    names: list[str] = []
    while frame is not None and len(names) < DEEPEST:
        code = frame.f_code
        names.append(f"{code.co_qualname} ({_short(code.co_filename)}:{code.co_firstlineno})")
        frame = frame.f_back
    return names[::-1]


def _short(path: str) -> str:
    """Return the last two parts of a file's path."""
    return "/".join(path.split(os.sep)[-2:])


def folded(stacks: Stacks) -> str:
    """Return the stacks one a line, as flamegraph.pl, speedscope and inferno read them."""
    return "".join(
        f"{';'.join(each.replace(';', ',') for each in stack)} {count}\n"
        for stack, count in stacks.most_common()
    )


class _Node:
    __slots__ = ("below", "count")

    def __init__(self) -> None:
        self.count = 0
        self.below: dict[str, _Node] = {}


def flame_graph(stacks: Stacks, title: str) -> str:
    """Return a flame graph as an SVG picture that needs nothing else: each box has its name and share as a tooltip.

    Args:
        stacks: what was counted.
        title: above the picture.
    """
    root = _Node()
    for stack, count in stacks.items():
        node = root
        node.count += count
        for name in stack:
            node = node.below.setdefault(name, _Node())
            node.count += count
    boxes: list[str] = []
    deepest = 0
    todo = [(root, "all", 0.0, 0)]
    while todo:
        node, name, left, depth = todo.pop()
        width = _WIDTH * node.count / max(1, root.count)
        if width < _NARROW:
            continue
        deepest = max(deepest, depth)
        boxes.append(_box(name, node.count, root.count, left, width, depth))
        for below, each in sorted(node.below.items()):
            todo.append((each, below, left, depth + 1))
            left += _WIDTH * each.count / max(1, root.count)
    height = (deepest + 3) * _HEIGHT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="monospace" font-size="11">'
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>'
        f'<text x="4" y="13">{html.escape(title)}</text>{"".join(boxes)}</svg>'
    )


def _box(name: str, count: int, of: int, left: float, width: float, depth: int) -> str:
    top = (depth + 1) * _HEIGHT
    hue = 20 + sum(name.encode()) % 35
    text = html.escape(name)
    fits = int(width / 6.7)
    shown = html.escape(name[: fits - 1] + "…" if len(name) > fits else name) if fits > 3 else ""
    return (
        f'<g><title>{text}: {count} of {of} ({100 * count / max(1, of):.1f} %)</title><rect x="{left:.1f}" y="{top}" '
        f'width="{max(width - 0.5, 0.2):.1f}" height="{_HEIGHT - 1}" fill="hsl({hue},85%,68%)"/>'
        f'<text x="{left + 3:.1f}" y="{top + 13}">{shown}</text></g>'
    )


__all__ = ["EVERY", "LONGEST", "Stacks", "flame_graph", "folded", "sample"]
