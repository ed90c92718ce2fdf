"""Set configuration keys by environment variables.

The variable of a key is ``KAFKA_PIXY_`` and the path of the key in upper case, with two underscores for each dot:
``KAFKA_PIXY_PROXIES__DEFAULT__KAFKA__SEED_PEERS=broker1:9092,broker2:9092`` sets ``proxies.default.kafka.seed_peers``. With
``_FILE`` at its end the variable names a file that holds the value, for secrets. Names of clusters (and other names that a person
chooses) are compared without case, with an underscore for every character that a variable cannot have.

A variable with two underscores that is no key is an error. Others are ignored unless they resemble a key, because Kubernetes sets
``KAFKA_PIXY_PORT`` and the like wherever a service is named kafka-pixy. The variables of the client commands (:data:`OTHERS`) are
always ignored.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import typing
from collections.abc import Mapping
from typing import Any

import yaml

from pixy.config import model
from pixy.config.files import open_given
from pixy.config.load import Origins, Walk, yaml_problem
from pixy.errors import ConfigError

PREFIX = "KAFKA_PIXY_"
CONFIG = "KAFKA_PIXY_CONFIG"
"""The variable that names the configuration file, as ``--config`` does."""
OTHERS = frozenset(
    PREFIX + name
    for name in (
        *("ADMIN", "CA", "CLUSTER", "PROFILE", "PROFILES", "SERVER", "TLS", "TOKEN"),  # the shell's
        *("CONFIG", "DELTA_JARS", "JARS"),
    )
)
"""Variables of the programs themselves, which are no keys of the configuration."""
MAX_FILE_BYTES = 65_536
"""The longest value that a file may hold."""
_RESOLVER: Any = yaml.SafeLoader("")


def apply(app: model.App, variables: Mapping[str, str], origins: Origins) -> None:
    """Set the keys that environment variables name.

    Args:
        app: is changed.
        variables: the environment.
        origins: gets the variable of each key that is set.

    Raises:
        ConfigError: variables name no key or have bad values; the error lists all of them.
    """
    errors: list[str] = []
    for name in sorted(variables):
        if name.startswith(PREFIX) and name not in OTHERS:
            _Variable(name, variables[name], errors).set_in(app, origins)
    if errors:
        raise ConfigError("bad environment variables:\n  " + "\n  ".join(errors))


def read_value_file(path: str) -> str:
    """Return the text of a file that holds one value, without the line end after it.

    Raises:
        ConfigError: it cannot be read, is longer than :data:`MAX_FILE_BYTES`, or is not UTF-8.
    """
    try:
        with open_given(path) as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{path} is longer than {MAX_FILE_BYTES} bytes")
    try:
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8") from None


class _Variable:
    """One variable, and the key that it names."""

    def __init__(self, name: str, text: str, errors: list[str]) -> None:
        self._name = name
        self._text = text
        self._errors = errors
        self._parts = name.removeprefix(PREFIX).lower().split("__")
        self._origins: Origins = {}

    def set_in(self, app: model.App, origins: Origins) -> None:
        """Set the key, or say why it cannot be set."""
        self._origins = origins
        self._set(app, self._parts, "")

    def _set(self, section: Any, parts: list[str], path: str) -> None:
        """Find the first of ``parts`` in a section, and the rest below it."""
        kinds = typing.get_type_hints(type(section))
        name, rest = parts[0], parts[1:]
        if name not in kinds:
            stem = name.removesuffix("_file")
            if not rest and stem != name and stem in kinds and not _is_section(kinds[stem]):
                self._assign(section, stem, kinds[stem], path, from_file=True)
            else:
                self._unknown(name, kinds, path)
        elif _is_section(kinds[name]):
            if rest:
                self._set(getattr(section, name), rest, f"{path}{name}.")
            elif len(self._parts) > 1:
                self._wrong(f"{path}{name} is a section: name a key in it")
        elif rest and typing.get_origin(kinds[name]) is dict:
            self._set_in_dict(getattr(section, name), typing.get_args(kinds[name])[1], rest, f"{path}{name}.")
        elif rest:
            self._wrong(f"{path}{name} has no keys below it")
        else:
            self._assign(section, name, kinds[name], path)

    def _set_in_dict(self, values: dict[str, Any], kind: Any, parts: list[str], path: str) -> None:
        wanted = parts[0]
        key = next((each for each in values if _normalized(each) == wanted), wanted)
        if not dataclasses.is_dataclass(kind):
            if len(parts) == 1:
                self._keep(values.__setitem__, key, kind, path)
            else:
                self._wrong(f"{path}{key} has no keys below it")
        elif len(parts) > 1:
            section = values[key] if key in values else typing.cast(Any, kind)()
            before = len(self._errors)
            self._set(section, parts[1:], f"{path}{key}.")
            if len(self._errors) == before:
                values[key] = section
        else:
            self._wrong(f"{path}{key} is a section: name a key in it")

    def _assign(self, section: Any, name: str, kind: Any, path: str, *, from_file: bool = False) -> None:
        if from_file:
            if self._origins.get(f"{path}{name}", "") == f"${self._name.removesuffix('_FILE')}":
                self._wrong(f"{self._name.removesuffix('_FILE')} is set, too")
                return
            try:
                self._text = read_value_file(self._text)
            except ConfigError as error:
                self._wrong(str(error))
                return
        self._keep(lambda key, value: setattr(section, key, value), name, kind, path)

    def _keep(self, store: Any, key: str, kind: Any, path: str) -> None:
        walk = Walk(self._name)
        try:
            node = self._node(kind)
        except yaml.YAMLError as error:
            self._wrong(f"not YAML: {yaml_problem(error)}")
            return
        value = walk.value(kind, node, f"{path}{key}.")
        self._errors += walk.errors
        if not walk.errors:
            store(key, value)
            self._origins[f"{path}{key}"] = f"${self._name}"

    def _node(self, kind: Any) -> yaml.Node:
        """Return the value as a YAML node: lists of texts may be written with commas, other lists and maps are YAML."""
        text = self._text
        origin = typing.get_origin(kind)
        if origin is list and not text.lstrip().startswith("["):
            parts = [part.strip() for part in text.split(",") if part.strip()]
            return yaml.SequenceNode("", [yaml.ScalarNode("tag:yaml.org,2002:str", part) for part in parts])
        if origin in (list, dict):
            composed: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
            return composed if composed is not None else yaml.ScalarNode("tag:yaml.org,2002:null", "")
        tag = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))
        return yaml.ScalarNode(tag, text)

    def _unknown(self, name: str, kinds: Mapping[str, Any], path: str) -> None:
        close = difflib.get_close_matches(name, kinds, 1, 0.8)
        if len(self._parts) > 1 or close:
            hint = f" (did you mean {path}{close[0]}?)" if close else ""
            self._wrong(f"unknown key {path}{name}{hint}")

    def _wrong(self, problem: str) -> None:
        self._errors.append(f"{self._name}: {problem}")


def _is_section(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind)


def _normalized(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "_", name.lower())


__all__ = ["CONFIG", "MAX_FILE_BYTES", "OTHERS", "PREFIX", "Origins", "apply", "read_value_file"]
