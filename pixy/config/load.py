"""Read YAML text into :mod:`pixy.config.model`, with errors that name the line.

Reads PyYAML's nodes rather than plain values, because only nodes know their line and their tag. The
error texts are those of the original's YAML library.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import re
import typing
from collections.abc import Callable, Iterable
from importlib import resources
from typing import Any

import yaml
from yaml.reader import ReaderError

from pixy.config import kinds, model
from pixy.config.durations import parse_duration
from pixy.config.files import open_given, read_small
from pixy.errors import ConfigError, reason_of

Origins = dict[str, str]
"""The origins of values, by the paths of their keys, such as ``proxies.default.kafka.seed_peers``."""

_KNOWN_VERSIONS = frozenset(
    [
        "0.8.2.2",
        "0.9.0.0",
        "0.9.0.1",
        "0.10.0.0",
        "0.10.0.1",
        "0.10.1.0",
        "0.10.2.0",
        "0.10.2.1",
        "0.10.2.2",
        "0.11.0.0",
        "0.11.0.1",
        "0.11.0.2",
        "0.11.0.3",
        "1.0.0",
        "1.0.1",
        "1.0.2",
        "1.1.0",
        "1.1.1",
        "2.0.0",
        "2.0.1",
        "2.1.0",
        "2.1.1",
        "2.2.0",
        "2.2.1",
        "2.3.0",
    ]
)
_LATER_VERSION = re.compile(r"(\d+)\.(\d+)\.\d+\Z")
_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
_REQUIRED_ACKS = ("no_response", "wait_for_local", "wait_for_all")


def default_text() -> str:
    """Return ``config/default.yaml``: every key with its default and what it means."""
    return resources.files("pixy.config").joinpath("default.yaml").read_text(encoding="utf-8")


def load_file(path: str, origins: Origins | None = None) -> model.App:
    """Read and parse a configuration file; see :func:`load_text`."""
    try:
        text = read_small(path, open_given).decode()
    except UnicodeDecodeError:
        why = "it is not text in UTF-8: name a YAML file"
        raise ConfigError(f"failed to read config file: path={path}, err=({why})") from None
    except OSError as error:
        raise ConfigError(f"failed to read config file: path={path}, err=({reason_of(error)})") from error
    return load_text(text, origins, path)


def load_text(text: str, origins: Origins | None = None, name: str = "") -> model.App:
    """Parse a configuration. Keys that it leaves out keep their defaults.

    Args:
        text: YAML.
        origins: gets ``name:line`` of each value that the text sets.
        name: the file's, for errors; empty: they name the line alone.

    Raises:
        ConfigError: the text is not YAML, or has unknown keys or values of the wrong kind; the error
            lists all of them.
    """
    where = f"{name}: " if name else ""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise ConfigError(f"failed to parse config: yaml: {where}{yaml_problem(error, text)}") from None
    walk = Walk(file=where)
    app = walk.mapping(model.App, root, "") if root is not None else model.App()
    if walk.errors:
        raise ConfigError("failed to parse config: yaml: unmarshal errors:\n  " + "\n  ".join(walk.errors))
    if origins is not None:
        origins.update((path, f"{name}:{line}") for path, line in walk.lines.items())
    return typing.cast(model.App, app)


def yaml_problem(error: yaml.YAMLError, text: str = "") -> str:
    """Return what is wrong with a text, without quoting from it: what YAML takes for an alias may be a password.

    Kept are the names of YAML's own tokens, such as ``']'`` and ``'<document start>'``, and a single character.

    Args:
        error: of PyYAML.
        text: what it was raised for, if that has lines: the error then begins with ``line N: ``.
    """
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it is not readable"
    for theirs, ours in _WORDS.items():
        problem = problem.replace(theirs, ours)
    problem = _QUOTED.sub(lambda found: found[0] if found["own"] else "", problem)
    return f"{_line(error, text)}{problem}" if text else problem


def _line(error: yaml.YAMLError, text: str) -> str:
    """Return ``line N: `` for the place of an error; the end of a text is its last line."""
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        return f"line {min(mark.line + 1, len(text.splitlines()) or 1)}: "
    if isinstance(error, ReaderError):
        return f"line {text.count(chr(10), 0, error.position) + 1}: "
    return ""


def check_kafka_version(text: str) -> str:
    """Return the text if it is a Kafka version; raise ValueError otherwise."""
    later = _LATER_VERSION.match(text)
    if text in _KNOWN_VERSIONS or (later and (int(later[1]), int(later[2])) > (2, 3)):
        return text
    raise ValueError(f"bad kafka version, {text}")


def check_workers(text: str) -> str:
    """Return the text if it is ``auto`` or a number of workers; raise ValueError otherwise."""
    if text == "auto" or (text.isascii() and text.isdecimal() and 1 <= int(text) <= model.MOST_WORKERS):
        return text
    raise ValueError(f"server.workers must be auto or a number from 1 to {model.MOST_WORKERS}, not {text!r}")


def _one_of(allowed: tuple[str, ...], text: str) -> str:
    if text not in allowed:
        # The original says "compression" for required_acks too; its texts are kept.
        raise ValueError(f"bad compression, {text}")
    return text


_FEW = 3
"""Sections that a hint names; more of them help nobody."""
_QUOTED = re.compile(
    r"""\ (?:(?P<own>'(?:<[a-z ]+>|\\[^xuU]|\\x..|\\u.{4}|\\U.{8}|.)'|"'")|(['"]).*\2)""",
    re.DOTALL | re.VERBOSE,
)
_WORDS = {
    "'<stream end>'": "the end of the file",
    "'\\x00'": "the end of the file",
    "'\\n'": "the end of the line",
    "but found another document": "found a second document",
    "second occurrence": "an anchor that stands twice",
}
"""What PyYAML says where a person needs other words."""
_CONSTRUCT: Any = yaml.SafeLoader("")
_GO_TYPES = {
    str: "string",
    int: "int",
    bool: "bool",
    float: "float64",
    kinds.Duration: "time.Duration",
}
_CHECKED: dict[Any, Callable[[str], str]] = {
    kinds.KafkaVersion: check_kafka_version,
    kinds.Compression: lambda text: _one_of(_COMPRESSIONS, text),
    kinds.RequiredAcks: lambda text: _one_of(_REQUIRED_ACKS, text),
    kinds.Workers: check_workers,
}


class Walk:
    """Convert nodes, and collect errors and the lines of values.

    Args:
        place: where all nodes are, for errors; empty: each node knows its line.
        file: stands before the lines.
    """

    def __init__(self, place: str = "", file: str = "") -> None:
        self.errors: list[str] = []
        self.lines: dict[str, int] = {}
        self._place = place
        self._file = file

    def _wrong(self, node: yaml.Node, problem: str) -> None:
        where = self._place or f"{self._file}line {node.start_mark.line + 1}"
        self.errors.append(f"{where}: {problem}")

    def _cannot(self, node: yaml.Node, wanted: str, *, shows: bool = True) -> None:
        tag = node.tag.replace("tag:yaml.org,2002:", "!!")
        shown = f" `{node.value}`" if shows and isinstance(node, yaml.ScalarNode) else ""
        self._wrong(node, f"cannot unmarshal {tag}{shown} into {wanted}")

    def mapping(self, kind: type, node: yaml.Node, where: str) -> Any:
        """Convert a mapping node to a dataclass; an empty value keeps all defaults.

        Args:
            kind: the dataclass.
            node: what is wrong in it is collected, and keeps its default.
            where: the path of its keys, for errors: empty, or with a dot at its end.
        """
        made = kind()
        if _is_null(node):
            return made
        if not isinstance(node, yaml.MappingNode):
            # What stands in the place of a section may be one of its secrets.
            self._cannot(node, f"config.{kind.__name__}", shows=False)
            return made
        types = typing.get_type_hints(kind)
        seen: set[str] = set()
        for key_node, value_node in node.value:
            key = str(key_node.value)
            if key not in types:
                hint = _elsewhere(key) or _close(key, types)
                self._wrong(key_node, f"unknown key {where}{key}{hint}")
            elif key in seen:
                self._wrong(key_node, f"key {where}{key} stands twice")
            elif not _is_null(value_node):
                seen.add(key)
                setattr(made, key, self.value(types[key], value_node, f"{where}{key}."))
        return made

    def value(self, kind: Any, node: yaml.Node, where: str) -> Any:
        """Convert a node to a value of a type.

        Args:
            kind: the type.
            node: what is wrong in it is collected.
            where: the path of its key and a dot.
        """
        if self._place == "":
            # Of a list it is the first line.
            self.lines.setdefault(where.rstrip("."), node.start_mark.line + 1)
        if dataclasses.is_dataclass(kind):
            return self.mapping(typing.cast(type, kind), node, where)
        origin = typing.get_origin(kind)
        if origin is list:
            return self._list(typing.get_args(kind)[0], node, where)
        if origin is dict:
            return self._dict(typing.get_args(kind)[1], node, where)
        if not isinstance(node, yaml.ScalarNode):
            self._cannot(node, _GO_TYPES.get(kind, "string"))
            return None
        return self._scalar(kind, node)

    def _list(self, item: Any, node: yaml.Node, where: str) -> list[Any]:
        if not isinstance(node, yaml.SequenceNode):
            self._cannot(node, f"[]{_GO_TYPES.get(item, 'config.Logger')}")
            return []
        return [self.value(item, child, where) for child in node.value]

    def _dict(self, item: Any, node: yaml.Node, where: str) -> dict[str, Any]:
        if not isinstance(node, yaml.MappingNode):
            self._cannot(node, "map[string]")
            return {}
        return {str(key.value): self.value(item, value, f"{where}{key.value}.") for key, value in node.value}

    def _scalar(self, kind: Any, node: yaml.ScalarNode) -> Any:
        text, tag = str(node.value), node.tag.rpartition(":")[2]
        if kind is str:
            return text
        if kind in _CHECKED:
            try:
                return _CHECKED[kind](text)
            except ValueError as error:
                self._wrong(node, str(error))
                return text
        if kind is bool and tag == "bool":
            return bool(_CONSTRUCT.construct_yaml_bool(node))
        if kind is int and tag == "int":
            number = int(_CONSTRUCT.construct_yaml_int(node))
            if -(2**63) <= number < 2**63:
                return number
        if kind is float and tag in ("int", "float"):
            return float(_CONSTRUCT.construct_yaml_float(node))
        if kind is kinds.Duration:
            if tag == "int":
                return int(_CONSTRUCT.construct_yaml_int(node)) / 1e9
            try:
                return parse_duration(text)
            except ValueError:
                pass
        self._cannot(node, _GO_TYPES[kind])
        return None


def _close(key: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(key, list(known), 1)
    return f" (did you mean {found[0]}?)" if found else ""


def _elsewhere(key: str) -> str:
    """Say where a key stands, if it is one of other sections: ``consumer`` is one of a cluster's."""
    paths = _paths().get(key, [])
    return f" (it stands at {' or '.join(paths)})" if 0 < len(paths) <= _FEW else ""


@functools.cache
def _paths() -> dict[str, list[str]]:
    """Return the paths of all keys, by their last names."""
    found: dict[str, list[str]] = {}

    def walk(kind: Any, path: str) -> None:
        for name, inner in typing.get_type_hints(kind).items():
            found.setdefault(name, []).append(f"{path}{name}")
            below, items = f"{path}{name}.", typing.get_args(inner)
            if typing.get_origin(inner) is dict and dataclasses.is_dataclass(items[1]):
                walk(items[1], f"{below}<{'cluster' if name == 'proxies' else 'name'}>.")
            elif dataclasses.is_dataclass(inner):
                walk(inner, below)

    walk(model.App, "")
    return found


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null")
