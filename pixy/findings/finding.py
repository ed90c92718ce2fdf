"""A finding: a cause of trouble, its evidence, since when, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["error", "warning"]
"""``error``: messages do not flow. ``warning``: they flow, but not as they should."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule has found.

    Attributes:
        rule: its name, such as ``never-acked``.
        cause: one sentence.
        todo: one sentence that begins with a verb.
        age: seconds since it began.
        where: what it is about: ``cluster``, ``group``, ``topic``, ``partition``, ``client``, ``actor``, ``broker``, ``api``, ``thread``.
        evidence: the figures behind it.
    """

    rule: str
    severity: Severity
    cause: str
    todo: str
    age: float
    where: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def document(self, at: float) -> dict[str, Any]:
        """Return it as JSON has it.

        Args:
            at: the moment of the snapshot, in seconds since 1970.
        """
        return {
            "rule": self.rule,
            "severity": self.severity,
            "cause": self.cause,
            "todo": self.todo,
            "since": round(at - self.age, 3),
            "age": round(self.age, 3),
            "where": dict(self.where),
            "evidence": dict(self.evidence),
        }


__all__ = ["Finding", "Severity"]
