"""Requests that schemathesis makes from the daemon's OpenAPI document: what it describes, and what it forbids.

An answer that the document does not describe is a finding, and so is a server error, except where the Go original has the same.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from typing import Any

import hypothesis
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

TIMEOUT = 30.0
"""Seconds within which a request must be answered."""
_KEPT = ("acks channel missing for ", "kafka server: Message was too large")
"""The Go original answers these with 500, and so does this daemon."""


def no_unexpected_5xx(_context: Any, response: Any, case: Any) -> None:
    """Allow a server error only where the Go original answers the same."""
    if response.status_code >= 500 and not response.json().get("error", "").startswith(_KEPT):
        raise AssertionError(f"{case.method} {response.request.url}: {response.status_code} {response.text}")


def no_error_of_ours(context: Any, response: Any, case: Any) -> None:
    """The same, but a daemon under attack may be busy."""
    if response.status_code != 503:
        no_unexpected_5xx(context, response, case)


def nobody_is_served(_context: Any, response: Any, case: Any) -> None:
    """Only what needs no caller may be served to nobody."""
    if response.status_code < 400 and case.operation.definition.raw.get("security") != []:
        raise AssertionError(
            f"{case.method} {response.request.url}: {response.status_code} without credentials"
        )


DESCRIBED = (status_code_conformance, content_type_conformance, response_schema_conformance)


class Contract:
    """The operations of a daemon.

    Args:
        address: the daemon's.
        document: its OpenAPI document.
        known: what parameters of a path are called most of the time, so that requests get beyond the 404.
        checks: of each answer.
        headers: sent with each request.
    """

    def __init__(
        self,
        address: str,
        document: dict[str, Any],
        known: Mapping[str, str],
        *,
        checks: tuple[Any, ...] = (no_unexpected_5xx, *DESCRIBED),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        document = copy.deepcopy(document)
        for parameter, value in known.items():
            document["components"]["parameters"][parameter]["schema"] = {"enum": [value, "absent"]}
        schema = schemathesis.openapi.from_dict(document)
        schema.config.update(base_url=f"http://{address}")
        self._checks = list(checks)
        self._headers = dict(headers or {})
        self.operations: list[Any] = []
        """All but those below ``/clusters`` that change anything: they have the same handlers again."""
        for found in schema.get_all_operations():
            operation: Any = found.ok()  # type: ignore[union-attr]
            if operation.method == "get" or not operation.path.startswith("/clusters/"):
                self.operations.append(operation)

    def attack(self, seed: int, examples: int) -> None:
        """Make requests of an operation; the seed says of which, and which ones. Blocks."""
        rng = random.Random(seed)
        mode = rng.choice((GenerationMode.POSITIVE, GenerationMode.NEGATIVE))
        self.ask(rng.choice(self.operations), mode, examples, seed)

    def ask(self, operation: Any, mode: GenerationMode, examples: int, seed: int | None = None) -> None:
        """Make valid or invalid requests of an operation. Blocks.

        Args:
            operation: one of :attr:`operations`.
            mode: which ones.
            examples: how many.
            seed: says which ones; None: always the same.

        Raises:
            Exception: an answer is wrong, or missing.
        """
        has_input = operation.body or operation.query or operation.path_parameters
        if mode is GenerationMode.NEGATIVE and not has_input:
            return
        try:
            strategy = operation.as_strategy(generation_mode=mode)
        except Exception as error:
            raise AssertionError(f"{operation.label}: {error}") from error

        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=seed is None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        )
        @given(strategy)
        def make(case: Any) -> None:
            # A value that is not a string is put into the path as it is: "?" would end it, and what
            # answers would be another operation.
            assume(not any({"?", "#"} & set(str(each)) for each in (case.path_parameters or {}).values()))
            case.call_and_validate(
                headers=self._headers, checks=self._checks, timeout=TIMEOUT, session=session
            )

        with requests.Session() as session:
            (make if seed is None else hypothesis.seed(seed)(make))()


__all__ = ["DESCRIBED", "Contract", "no_error_of_ours", "no_unexpected_5xx", "nobody_is_served"]
