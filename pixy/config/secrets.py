"""Secrets in the configuration: read from files, and never shown.

A text key with a neighbour of the same name and ``_file`` (``password``, ``password_file``) may be given as a file. Which keys are
secrets is told by their names, so that a new one cannot be forgotten.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from pixy.config.environment import read_value_file
from pixy.config.load import Origins
from pixy.errors import ConfigError

MASK = "********"
_SECRET = re.compile(r"(password|passphrase|secret|token|api_?key|credential)s?\Z", re.IGNORECASE)
_USER_INFO = re.compile(r"(?<=://)\S+(?=@)")
_QUERY = re.compile(
    r"(?<=[?&])([^=&\s]*(?:token|secret|password|key|credential|sig|code|auth)[^=&\s]*)=[^&\s]+",
    re.IGNORECASE,
)


def read_files(app: Any, origins: Origins) -> None:
    """Fill in the keys whose ``_file`` neighbour is set.

    Args:
        app: is changed.
        origins: gets the file of each key that is filled in.

    Raises:
        ConfigError: both are set, or the file cannot be read.
    """
    for section, path in sections(app):
        names = {field.name for field in dataclasses.fields(section)}
        for name in sorted(names):
            source = getattr(section, f"{name}_file", "") if f"{name}_file" in names else ""
            if not source:
                continue
            if getattr(section, name):
                raise ConfigError(
                    f"invalid config parameter: {path}{name} and {path}{name}_file are both set"
                )
            try:
                setattr(section, name, read_value_file(source))
            except ConfigError as error:
                raise ConfigError(f"invalid config parameter: {path}{name}_file: {error}") from None
            origins[f"{path}{name}"] = source


def sections(section: Any, path: str = "") -> Iterator[tuple[Any, str]]:
    """Yield every section of a configuration with the path of its keys, which ends in a dot unless it is empty.

    Args:
        section: a dataclass of the configuration; it comes first.
        path: of its keys; empty for the whole configuration.
    """
    yield section, path
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        if dataclasses.is_dataclass(value):
            yield from sections(value, f"{path}{field.name}.")
        elif isinstance(value, dict):
            for key, item in value.items():
                if dataclasses.is_dataclass(item):
                    yield from sections(item, f"{path}{field.name}.{key}.")


def masked(name: str, text: str) -> str:
    """Return a text as it may be shown: secrets are masked, and so are users, passwords and tokens in URLs.

    Args:
        name: the key's, without its section: it tells a secret.
        text: the value.
    """
    if text and _SECRET.search(name):
        return MASK
    shown = _USER_INFO.sub(MASK, text)
    return _QUERY.sub(rf"\1={MASK}", shown) if "://" in shown else shown
