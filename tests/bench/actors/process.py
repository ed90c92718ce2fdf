"""Scenarios in processes of their own, in turn: no peer inherits another's heap or threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.bench.actors.handlers import Result
from tests.bench.report import ROOT

ROUNDS = 5
TIMEOUT = 120


class ScenarioFailed(Exception):
    """A process ended without its figures."""


@dataclass(frozen=True)
class Scenario:
    """What runs: a function of ``tests.bench.actors.on_PEER``.

    ``one_core`` keeps its process on one: two threads that hand each other the word do it three
    to four times as fast there as across cores, and which of the two the scheduler picks depends
    on what else the machine does.
    """

    peer: str
    name: str
    count: int
    one_core: bool = False


def measure(scenario: Scenario, env: Mapping[str, str] | None = None) -> Result:
    """Run it once in a new process."""
    command = [
        sys.executable,
        "-m",
        "tests.bench.actors.child",
        scenario.peer,
        scenario.name,
        str(scenario.count),
        *(["one-core"] if scenario.one_core else []),
    ]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        raise ScenarioFailed(f"{scenario} took more than {TIMEOUT} s") from None
    if done.returncode:
        raise ScenarioFailed(f"{scenario}: {(done.stderr.splitlines() or ['no word'])[-1]}")
    result: Result = json.loads(done.stdout.splitlines()[-1])
    return result


def in_turn(scenarios: Sequence[Scenario], rounds: int = ROUNDS) -> list[list[Result]]:
    """Each scenario's results, round by round; every other round goes backwards, against drift."""
    found: list[list[Result]] = [[] for _ in scenarios]
    for round_ in range(rounds):
        order = range(len(scenarios)) if round_ % 2 == 0 else reversed(range(len(scenarios)))
        for at in order:
            found[at].append(measure(scenarios[at]))
    return found


def column(results: Sequence[Result], key: str = "per_second") -> list[float]:
    """One figure of each round."""
    return [result[key] for result in results]
