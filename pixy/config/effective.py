"""Merge all that configures a daemon: defaults, file, environment variables; and show what came of it.

A later source overrides an earlier one; the command line's flags (:mod:`pixy.cli.flags`) come last.
"""

from __future__ import annotations

import dataclasses
import os
import re
import typing
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import yaml

from pixy.config import environment, model, secrets
from pixy.config.durations import format_duration
from pixy.config.kinds import Duration
from pixy.config.load import Origins, load_file
from pixy.config.validate import validate
from pixy.errors import ConfigError

DEFAULT = "default"
"""The origin of a value that nobody has set."""
_COLUMN = 44
"""The column of origins in :func:`as_yaml`, unless a value is longer."""
_KEY = re.compile(
    r"(?:invalid config, cluster=(?P<cluster>.+?): )?invalid config parameter: (?P<key>[a-z_0-9.]+) "
)
"""Matches the beginning of what :func:`validate` says of one key."""


class Row(NamedTuple):
    """One value: the path of its key, the value as it may be shown, and where it comes from."""

    key: str
    value: Any
    origin: str


def load_app(
    path: str, variables: Mapping[str, str] = os.environ, origins: Origins | None = None
) -> model.App:
    """Load a configuration from a file and environment variables, with secrets from the files that it names.

    Args:
        path: the file; empty for that of ``KAFKA_PIXY_CONFIG``, or none.
        variables: the environment.
        origins: gets the origin of each value that is no default.

    Raises:
        ConfigError: something in it is wrong. The rules between keys are not checked: that is
            :func:`pixy.config.validate`.
    """
    origins = {} if origins is None else origins
    path = path or variables.get(environment.CONFIG, "")
    app = load_file(path, origins) if path else model.App()
    environment.apply(app, variables, origins)
    if not app.proxies:
        app.proxies["default"] = model.Proxy()  # what names no cluster has the default one
    for name, proxy in app.proxies.items():
        if proxy.kafka.version == variables.get("KAFKA_VERSION"):
            origins.setdefault(f"proxies.{name}.kafka.version", "$KAFKA_VERSION")
    secrets.read_files(app, origins)
    return app


def checked(app: model.App, origins: Origins) -> model.App:
    """Return the configuration if it is valid.

    Args:
        app: of :func:`load_app`.
        origins: of its values.

    Raises:
        ConfigError: it is not; the text names the file and line, the variable or the flag that has set the value.
    """
    try:
        return validate(app)
    except ConfigError as error:
        text = str(error)
        found = _KEY.match(text)
        if found is None:
            raise
        key = f"proxies.{found['cluster']}.{found['key']}" if found["cluster"] else found["key"]
        if key not in origins:
            raise
        raise ConfigError(f"{text} ({origins[key]})") from None


def rows(app: model.App, origins: Origins) -> Iterator[Row]:
    """Yield every value of a configuration, secrets masked, in the order of ``config/default.yaml``.

    Args:
        app: the configuration.
        origins: where its values come from; what is missing there is a default.
    """
    for section, path in secrets.sections(app):
        kinds = typing.get_type_hints(type(section))
        for field in dataclasses.fields(section):
            value = getattr(section, field.name)
            if dataclasses.is_dataclass(value) or _has_sections(value):
                continue
            key = f"{path}{field.name}"
            yield Row(key, _shown(kinds[field.name], field.name, value), _origin(origins, key))


def as_yaml(app: model.App, origins: Origins, *, changed: bool = False) -> str:
    """Return a configuration as YAML that :func:`~pixy.config.load_text` reads, each value with its origin in a comment.

    Args:
        app: the configuration.
        origins: where its values come from.
        changed: leave out the values that are defaults.
    """
    lines: list[str] = []
    open_sections: list[str] = []
    for key, value, origin in sorted(rows(app, origins), key=lambda row: _place(app, row.key)):
        if changed and origin == DEFAULT:
            continue
        *parents, name = _split(app, key)
        common = 0
        while common < min(len(parents), len(open_sections)) and parents[common] == open_sections[common]:
            common += 1
        lines += [f"{'  ' * depth}{_scalar(parents[depth])}:" for depth in range(common, len(parents))]
        open_sections = parents
        lines.append(f"{'  ' * len(parents)}{name}: {_scalar(value)}".ljust(_COLUMN) + f"  # {origin}")
    return "".join(f"{line}\n" for line in lines)


def _place(app: model.App, key: str) -> tuple[int, ...]:
    """Return where a key stands in the file: sections come in the order of their fields."""
    place: list[int] = []
    section: Any = app
    for part in _split(app, key):
        if isinstance(section, dict):
            place.append(list(section).index(part))
            section = section[part]
        else:
            place.append([field.name for field in dataclasses.fields(section)].index(part))
            section = getattr(section, part)
    return tuple(place)


def _split(app: model.App, key: str) -> list[str]:
    """Split the path of a key; the name of a cluster may have dots in it."""
    if not key.startswith("proxies."):
        return key.split(".")
    rest = key.removeprefix("proxies.")
    name = max((each for each in app.proxies if rest.startswith(f"{each}.")), key=len)
    return ["proxies", name, *rest.removeprefix(f"{name}.").split(".")]


def _has_sections(value: Any) -> bool:
    return isinstance(value, dict) and any(dataclasses.is_dataclass(item) for item in value.values())


def _origin(origins: Origins, key: str) -> str:
    """Return a value's origin; that of a map may be known by its items only."""
    inside = sorted({origin for path, origin in origins.items() if path.startswith(f"{key}.")})
    return origins.get(key) or ", ".join(inside) or DEFAULT


def _shown(kind: Any, name: str, value: Any) -> Any:
    """Return a value as it is written in the file, secrets masked."""
    if kind is Duration:
        return format_duration(value)
    if isinstance(value, list):
        return [_shown(typing.get_args(kind)[0], name, item) for item in value]
    if isinstance(value, dict):
        return {key: _shown(typing.get_args(kind)[1], str(key), item) for key, item in value.items()}
    if dataclasses.is_dataclass(value):
        kinds = typing.get_type_hints(type(value))
        fields = dataclasses.fields(value)
        return {each.name: _shown(kinds[each.name], each.name, getattr(value, each.name)) for each in fields}
    return secrets.masked(name, value) if isinstance(value, str) else value


def _scalar(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")
