"""The profile file: values of the shared options, by profile.

``$KAFKA_PIXY_PROFILES``, or else ``kafka-pixy/profiles.yaml`` in ``$XDG_CONFIG_HOME`` (``~/.config``). A flag overrides an environment
variable, which overrides the profile.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import click

from pixy.cli.shell.errors import EXIT_USAGE, ShellError, nearest
from pixy.config.files import read_small

KEYS: Final = ("server", "cluster", "tls", "ca", "cert", "cert_key", "token_file", "timeout", "output")


def path() -> Path:
    """Return the path of the file with the profiles."""
    given = os.environ.get("KAFKA_PIXY_PROFILES")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "kafka-pixy" / "profiles.yaml"


def load(name: str) -> dict[str, Any]:
    """Return the values of a profile; none if there is no file and none is named.

    Raises:
        ShellError: the file is not readable, lacks the profile, or has an unknown key.
    """
    try:
        file = path()
        text = read_small(file).decode()
    except RuntimeError:  # a user without a home
        if name == "default":
            return {}
        raise ShellError(f"--profile {name}: name the file in KAFKA_PIXY_PROFILES", EXIT_USAGE) from None
    except (FileNotFoundError, NotADirectoryError):
        if os.environ.get("KAFKA_PIXY_PROFILES"):  # defaults instead could be of another cluster
            raise ShellError(f"KAFKA_PIXY_PROFILES: there is no {file}", EXIT_USAGE) from None
        if name == "default":
            return {}
        raise ShellError(f"--profile {name}: there is no {file}", EXIT_USAGE) from None
    except PermissionError as error:
        if name == "default" and not (
            os.environ.get("KAFKA_PIXY_PROFILES") or os.access(file.parent, os.X_OK)
        ):
            return {}  # a home that this user may not enter holds no profiles of his
        raise ShellError(f"{file}: {error.strerror}", EXIT_USAGE) from None
    except UnicodeDecodeError:
        raise ShellError(f"{file}: it is not text in UTF-8: name a YAML file", EXIT_USAGE) from None
    except OSError as error:
        raise ShellError(f"{file}: {error.strerror or error}", EXIT_USAGE) from None
    import yaml

    try:
        found = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        from pixy.config.load import yaml_problem

        raise ShellError(f"{file}: not YAML: {yaml_problem(error, text)}", EXIT_USAGE) from None
    if twice := _twice(text):
        raise ShellError(f"{file}: {twice} stands twice", EXIT_USAGE)
    if not isinstance(found, dict):
        raise ShellError(f"{file}: profiles by name are expected", EXIT_USAGE)
    for key, value in found.items():
        if key in KEYS and value is not None and not isinstance(value, dict):
            # Ignored, it would send a command to another daemon than the one that it names.
            text = f"{file}: {key} stands outside of a profile; write it into one, such as default: {{{key}: ...}}"
            raise ShellError(text, EXIT_USAGE)
    if name not in found and name != "default":
        known = nearest(name, map(str, found)) or f"it has {', '.join(map(str, found)) or 'none'}"
        raise ShellError(f"{file}: no profile {name!r}; {known}", EXIT_USAGE)
    values = found.get(name) or {}
    if not isinstance(values, dict):
        raise ShellError(f"{file}: profile {name!r} is not a mapping", EXIT_USAGE)
    for key in values:
        if key not in KEYS:
            hint = nearest(str(key), KEYS) or f"known are {', '.join(KEYS)}"
            raise ShellError(f"{file}: unknown key {key!r} in profile {name!r}; {hint}", EXIT_USAGE)
    return {str(key): value for key, value in values.items()}


def _twice(text: str) -> str:
    """Name a profile, or a key of one, that stands twice, where YAML takes the last one in silence; empty if none does."""
    import yaml

    root = yaml.compose(text, Loader=yaml.SafeLoader)
    sections = root.value if isinstance(root, yaml.MappingNode) else []
    names = [str(name.value) for name, _ in sections]
    for at, (name, section) in enumerate(sections):
        if name.value in names[:at]:
            return f"profile {name.value!r}"
        keys = [str(key.value) for key, _ in section.value] if isinstance(section, yaml.MappingNode) else []
        for key in keys:
            if keys.count(key) > 1:
                return f"{key!r} of profile {name.value!r}"
    return ""


def use_profile(ctx: click.Context, _param: click.Parameter, name: str) -> str:
    """Make a profile's values the defaults of the command's other options."""
    ctx.default_map = {
        **(ctx.default_map or {}),
        **load(name),
    }  # also for completion, where click ignores errors
    return name


def file_of(ctx: click.Context, name: str) -> str:
    """Return the profile file and a colon if the value of a parameter is the profile's; else nothing."""
    is_profile_s = ctx.get_parameter_source(name) is click.core.ParameterSource.DEFAULT_MAP
    return f"{path()}: " if is_profile_s else ""


def of_profile(error: ShellError, ctx: click.Context) -> ShellError:
    """Return the error of an option, with the profile file before it if the option's value is the profile's."""
    for param in ctx.command.params:
        if param.name and str(error).startswith(f"{param.opts[-1]} ") and (file := file_of(ctx, param.name)):
            return ShellError(f"{file}{error}", error.code)
    return error


__all__ = ["KEYS", "file_of", "load", "of_profile", "path", "use_profile"]
