"""Run scenarios in turn, each in a process of its own, so that no peer inherits another's heap or threads."""

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
    """A scenario's process failed or timed out."""


@dataclass(frozen=True)
class Scenario:
    """A function of ``tests.bench.actors.on_PEER`` and its argument.

    Attributes:
        peer: the runtime.
        name: the function.
        count: its number of messages or actors.
        one_core: run the process on one core. Two threads that take turns do so three to four times as fast
            on one core as on two, and the scheduler's choice between the two depends on the machine's other
            load.
    """

    peer: str
    name: str
    count: int
    one_core: bool = False


def measure(scenario: Scenario, env: Mapping[str, str] | None = None) -> Result:
    """Run a scenario once in a new process and return its figures.

    Args:
        scenario: the scenario.
        env: variables to add to the environment.

    Raises:
        ScenarioFailed: the process failed or timed out.
    """
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
        raise ScenarioFailed(f"{scenario}: {(done.stderr.splitlines() or ['no error output'])[-1]}")
    result: Result = json.loads(done.stdout.splitlines()[-1])
    return result


def in_turn(scenarios: Sequence[Scenario], rounds: int = ROUNDS) -> list[list[Result]]:
    """Run the scenarios in turn, every other round in reverse order to cancel out drift.

    Returns:
        Each scenario's results, round by round.
    """
    found: list[list[Result]] = [[] for _ in scenarios]
    for round_ in range(rounds):
        order = range(len(scenarios)) if round_ % 2 == 0 else reversed(range(len(scenarios)))
        for at in order:
            found[at].append(measure(scenarios[at]))
    return found


def column(results: Sequence[Result], key: str = "per_second") -> list[float]:
    """Extract one figure of each round."""
    return [result[key] for result in results]
