"""Notes: what a valid configuration says that somebody has hardly meant."""

from __future__ import annotations

import dataclasses
import typing
from typing import Final
from urllib.parse import urlsplit

from pixy.config import model, secrets
from pixy.config.durations import format_duration
from pixy.config.kinds import Duration
from pixy.config.validate_security import certificate_notes, logger_notes

_TRACES: Final = "/v1/traces"
_SHORT: Final = 1e-3
"""Seconds; nothing in the configuration is sensibly shorter."""


def notes_of(app: model.App) -> list[str]:
    """List valid values that do something else than one may expect: a line for each."""
    return start_notes(app) + certificate_notes(app) + worker_notes(app) + idle_notes(app)


def start_notes(app: model.App) -> list[str]:
    """List those of them that the daemon repeats when it starts."""
    return logger_notes(app) + duration_notes(app)


def duration_notes(app: model.App) -> list[str]:
    """List the durations below a millisecond, such as ``ack_timeout: 5``: Go, and so the original, takes it for nanoseconds."""
    notes: list[str] = []
    for section, path in secrets.sections(app):
        kinds = typing.get_type_hints(type(section))
        for field in dataclasses.fields(section):
            value = getattr(section, field.name)
            if kinds[field.name] is Duration and 0 < value < _SHORT:
                shown = format_duration(value)
                text = f"{path}{field.name} is {shown}: a number without a unit is nanoseconds; write 5s or 500ms"
                notes.append(text)
    return notes


def worker_notes(app: model.App) -> list[str]:
    """Say that replacing workers would fail gRPC calls: a line or none."""
    age, within = app.connections.grpc_max_age, app.moving_time
    if app.server.processes == 1 or not app.grpc_addr or (age and 1.1 * age <= within):
        return []
    said = (
        f"connections.grpc_max_age is {format_duration(age)}{'' if age else ' (any age)'}, and workers that are replaced (SIGUSR2) leave their "
        f"clients {format_duration(within)} for moving on: gRPC calls that are under way then fail (server.restart_timeout)"
    )
    return [said]


def idle_notes(app: model.App) -> list[str]:
    """List keys that have no effect as they are set: a line for each."""
    notes = []
    if app.admin_actions and not app.admin_addr:
        notes.append(
            "admin_actions: true has no effect without admin_addr: actions are requests to the admin listener"
        )
    endpoint = app.tracing.export.endpoint
    if endpoint and not urlsplit(endpoint).path.rstrip("/").endswith(_TRACES):
        # It is used as it is: the exporter appends a path to OTEL_EXPORTER_OTLP_ENDPOINT only.
        notes.append(
            f"tracing.export.endpoint {endpoint} does not end with {_TRACES}, where OpenTelemetry collectors take spans "
            "over HTTP: nothing is appended to it"
        )
    return notes


__all__ = ["duration_notes", "idle_notes", "notes_of", "start_notes", "worker_notes"]
