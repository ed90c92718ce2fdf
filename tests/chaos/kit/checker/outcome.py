"""The checker's findings, and how they are printed."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.chaos.kit.checker.evidence import Evidence

SHOWN = 8
"""Findings of one rule that are printed in full."""
AROUND = 20.0
"""Seconds before a finding whose faults are printed with it."""


@dataclass(frozen=True)
class Finding:
    """Something that must not happen.

    Attributes:
        rule: ``loss``, ``order``, ``commits``, ``progress``, ``refusals``, ``placement``, ``duplicates`` or ``daemons``.
        text: what, in a line.
        t: when.
        since: when it began to be wrong.
    """

    rule: str
    text: str
    t: float
    since: float


class Outcome:
    """The findings of a run, and the figures of what was found to be right."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self.findings: list[Finding] = []
        self.given_up: Counter[str] = Counter()
        """Messages that a rule allows to be missing, by rule."""
        self.repeated: Counter[str] = Counter()
        """Repeated deliveries by what explains them."""
        self.figures: Counter[str] = Counter()
        self.slowest = (0.0, "")
        self.behind = (0.0, "")
        """The longest wait for a message that was new to its group, and where."""
        """The longest silence of a partition that had a message, outside of faults, in seconds; and where."""

    def find(self, rule: str, text: str, t: float, since: float | None = None) -> None:
        """Add a finding.

        Args:
            rule: that is broken.
            text: what is wrong, and where.
            t: when it showed, wall-clock time in seconds.
            since: when it may have begun; None: at ``t``.
        """
        self.findings.append(Finding(rule, text, t, t if since is None else since))

    @property
    def rules(self) -> list[str]:
        """The rules that have findings, in alphabetical order."""
        return sorted({finding.rule for finding in self.findings})

    def count(self, rule: str) -> int:
        """Return the number of findings of one rule."""
        return sum(1 for finding in self.findings if finding.rule == rule)

    def lines(self) -> list[str]:
        """Return the report, line by line."""
        evidence, figures = self._evidence, self.figures
        lost, stalls = self.count("loss"), self.count("progress")
        found = [
            "",
            f"seed {evidence.plan['seed']}, {evidence.plan['membership']}, {evidence.minutes:.1f} minutes: "
            f"{figures['produced']:,} messages acknowledged to producers, {figures['delivered']:,} delivered to "
            f"groups, {len(evidence.faults):,} faults",
            f"lost {lost}, stalls {stalls}, out of order {self.count('order')}, committed too early "
            f"{self.count('commits')}, duplicates unexplained {self.count('duplicates')}, refused "
            f"without a reason {self.count('refusals')}, in another partition {self.count('placement')}, other "
            f"{self.count('daemons')}",
            f"duplicates explained: {self.repeated.total():,} ({_list(self.repeated)})",
            f"given up by a rule: {self.given_up.total():,} ({_list(self.given_up)})",
            f"longest silence of a partition with messages: {self.slowest[0]:.1f} s outside of faults"
            f"{', ' + self.slowest[1] if self.slowest[1] else ''}",
            f"longest wait for a new message, behind others that came again: {self.behind[0]:.1f} s, faults or not"
            f"{', ' + self.behind[1] if self.behind[1] else ''}",
            *(f"{name}: {count:,}" for name, count in sorted(figures.items()) if ":" in name),
            f"faults: {_list(Counter(fault.kind for fault in evidence.faults))}",
        ]
        for rule in self.rules:
            found += self._of_rule(rule)
        if self.findings:
            found += ["", f"repeat it with: {evidence.command}"]
        return found

    def _of_rule(self, rule: str) -> list[str]:
        findings = sorted((each for each in self.findings if each.rule == rule), key=lambda each: each.t)
        found = ["", f"== {rule}: {len(findings)}"]
        for finding in findings[:SHOWN]:
            found.append(f"- {self._at(finding.t)} {finding.text}")
            found += [f"      {line}" for line in self._around(finding.since, finding.t)]
        if len(findings) > SHOWN:
            found.append(f"- and {len(findings) - SHOWN} more")
        return found

    def _around(self, since: float, until: float) -> list[str]:
        """Return the faults and other events before a finding."""
        lines = [
            (fault.t0, f"{self._at(fault.t0)} to {self._at(fault.t1)} {fault.kind}: {fault.note}")
            for fault in self._evidence.faults
            if fault.t1 >= since - AROUND and fault.t0 <= until
        ]
        lines += [
            (t, f"{self._at(t)} {text}")
            for t, text in self._evidence.timeline
            if since - AROUND <= t <= until
        ]
        return [line for _, line in sorted(lines)][-25:]

    def _at(self, t: float) -> str:
        elapsed = t - self._evidence.began
        clock = time.strftime("%H:%M:%S", time.localtime(t))
        return f"{elapsed:.1f}s ({clock})"


def _list(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counter.most_common()) or "none"


__all__ = ["Finding", "Outcome"]
