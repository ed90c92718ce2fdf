"""Make one answer of what all workers of a daemon say. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

_SAMPLE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(\{?)(.*)", re.DOTALL)
_END: Final = "# EOF"


def merge_metrics(texts: Mapping[int, str]) -> str:
    """Return the metrics of all workers, each sample with the label ``worker``.

    Args:
        texts: what each worker exposes, as Prometheus or OpenMetrics has it, by its number.
    """
    about: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    ends = False
    for number, text in sorted(texts.items()):
        family = ""
        for line in text.splitlines():
            if line == _END:
                ends = True
            elif line.startswith("#"):
                _, _, family, *_ = line.split(" ", 3)
                lines = about.setdefault(family, [])
                if line not in lines:
                    lines.append(line)
            elif line:
                samples.setdefault(family, []).append(_labelled(line, number))
    families = about.keys() | samples.keys()
    ordered = [each for each in [*about, *samples] if each in families]
    lines = [
        line for each in dict.fromkeys(ordered) for line in (*about.get(each, ()), *samples.get(each, ()))
    ]
    return "\n".join([*lines, *([_END] if ends else [])]) + "\n"


def _labelled(sample: str, number: int) -> str:
    found = _SAMPLE.fullmatch(sample)
    if found is None:
        return sample
    name, brace, rest = found.groups()
    if not brace:
        return f'{name}{{worker="{number}"}}{rest}'
    return f'{name}{{worker="{number}"{"" if rest.startswith("}") else ","}{rest}'


def merge_findings(documents: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the findings of all workers, each with the number of its worker.

    Args:
        documents: what ``/findings`` of each worker answers, by its number.
    """
    found = [
        {**each, "worker": number}
        for number, document in sorted(documents.items())
        for each in document["findings"]
    ]
    return {"at": max((each["at"] for each in documents.values()), default=0.0), "findings": found}


def merge_actions(action: str, done: Mapping[int, tuple[int, dict[str, Any]]]) -> tuple[int, dict[str, Any]]:
    """Return the status and the document of an action that all workers were to do.

    Args:
        action: its name. A pause has failed if it has failed in one worker; other actions if they have failed in all of them.
        done: status and document of each, by its number.
    """
    if not done:
        return 503, {"error": "no worker serves"}
    every = action in ("pause", "resume", "sampler")
    status, number = (max if every else min)((status, number) for number, (status, _) in done.items())
    document: dict[str, Any] = {"workers": {str(each): done[each][1] for each in sorted(done)}}
    if status >= 400:
        document["error"] = done[number][1].get("error", "")
    return status, document


def merge_readiness(
    documents: Mapping[int, Mapping[str, Any]], count: int, late: Collection[int] = (), within: float = 0.0
) -> dict[str, Any]:
    """Return whether all workers that serve are ready, with the checks of all.

    A worker that has crashed gets no connections until it is there again, so the daemon is ready without it, but not without any.
    One that does not answer in time still gets its part of them, and serves none.

    Args:
        documents: what ``/readyz`` of each worker answers, by its number.
        count: of workers that there should be.
        late: the numbers of those that do not answer in time.
        within: seconds that they had.
    """
    checks: list[dict[str, Any]] = []
    for number in range(1, count + 1):
        document = documents.get(number)
        why = "" if document is not None else "it does not answer"
        if number in late:
            why = f"worker {number} does not answer within {within:g} s"
        checks.append({"check": "worker", "worker": number, "ok": not why, "reason": why})
        checks += [{**each, "worker": number} for each in (document or {}).get("checks", ())]
    ready = bool(documents) and not late and all(each["ready"] for each in documents.values())
    return {"ready": ready, "checks": checks}


def parsed(body: bytes) -> dict[str, Any]:
    """Return a JSON object. Raises ValueError."""
    document = json.loads(body)
    if not isinstance(document, dict):
        raise ValueError("no object")
    return document


__all__ = ["merge_actions", "merge_findings", "merge_metrics", "merge_readiness", "parsed"]
