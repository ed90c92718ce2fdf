"""A schema registry (Confluent's API): its settings, and the schemas of a subject with all that they refer to.

Only the driver of a job talks to the registry. It takes the schemas of a subject along to the tasks, which so need
neither its address nor its credentials, and never wait for it: see :mod:`pixy.kafka.schema_decoders`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

import yaml

from pixy.config.durations import parse_duration
from pixy.config.environment import read_value_file
from pixy.errors import ConfigError, PixyError, needs_extra

_KEYS: Final = {"url", "ca", "username", "password_file", "timeout", "max_schemas"}
_MAX_FILE: Final = 1 << 20
_RETRIES: Final = 2
_RETRY_WAIT_MS: Final = 500
_NOT_FOUND: Final = 404
_MAX_REFERENCES: Final = 100
"""Schemas that one schema may refer to, directly or not."""
AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"


class RegistryError(PixyError):
    """The schema registry does not answer, refuses, or has more schemas than the settings allow."""


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """How to reach a registry.

    Attributes:
        url: http or https, without credentials.
        ca: file with the certificates to trust; empty for those of the system.
        username: for basic authentication; empty for none.
        password_file: holds the password.
        timeout: seconds of one request. It is repeated twice at most.
        max_schemas: the most schemas of one subject.
    """

    url: str
    ca: str = ""
    username: str = ""
    password_file: str = ""
    timeout: float = 10.0
    max_schemas: int = 1000


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """One version of a subject.

    Attributes:
        id: the id in front of each record.
        version: of the subject, from 1.
        kind: ``AVRO``, ``PROTOBUF`` or ``JSON``.
        text: the schema; of Protobuf a FileDescriptorProto in base64, if the registry can make it.
        subject: the subject.
        references: schemas of other subjects, each under the name by which this one refers to it.
        fault: why the schema cannot be used, if it cannot.
    """

    id: int
    version: int
    kind: str
    text: str
    subject: str = ""
    references: tuple[tuple[str, RegisteredSchema], ...] = ()
    fault: str = ""


def load_settings(path: str) -> RegistrySettings:
    """Read a registry's settings from a YAML file.

    Raises:
        ConfigError: the file cannot be read, or a value makes no sense.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MAX_FILE + 1)
        document = yaml.safe_load(data) if len(data) <= _MAX_FILE else None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{path} has no settings of a schema registry: url is needed")
    unknown = sorted(str(key) for key in document if key not in _KEYS)
    if unknown:
        raise ConfigError(f"{path}: unknown key {unknown[0]!r}; there are {', '.join(sorted(_KEYS))}")
    return _settings(path, document)


def _settings(path: str, document: Mapping[Any, Any]) -> RegistrySettings:
    texts = {key: document.get(key, "") for key in ("url", "ca", "username", "password_file")}
    for key, value in texts.items():
        if not isinstance(value, str):
            raise ConfigError(f"{path}: {key} is not text")
    _check_url(path, texts["url"])
    if bool(texts["username"]) != bool(texts["password_file"]) or ":" in texts["username"]:
        raise ConfigError(f"{path}: username (without a colon) and password_file go together")
    try:
        timeout = parse_duration(str(document.get("timeout", "10s")))
    except ValueError:
        timeout = 0.0
    if not 0 < timeout <= 600:
        raise ConfigError(f"{path}: timeout is not a duration from 1ms to 10m, such as 10s")
    most = document.get("max_schemas", 1000)
    if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= 100_000:
        raise ConfigError(f"{path}: max_schemas is not a number from 1 to 100000")
    return RegistrySettings(**texts, timeout=timeout, max_schemas=most)


def _check_url(path: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and "," not in url
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"{path}: url is not the http or https address of one registry")
    if parts.username or parts.password:
        raise ConfigError(f"{path}: url holds credentials: they belong into username and password_file")


class Registry:
    """The schemas of a registry, each fetched once.

    Args:
        settings: how to reach it.

    Raises:
        ConfigError: a file that the settings name cannot be used, or the extra ``decode`` is not installed.
    """

    def __init__(self, settings: RegistrySettings) -> None:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
        except ImportError as error:
            raise ConfigError(needs_extra("a schema registry", "decode", error)) from None
        self._settings = settings
        self._known: dict[tuple[str, int], RegisteredSchema] = {}
        config: dict[str, Any] = {
            "url": settings.url,
            "timeout": settings.timeout,
            "max.retries": _RETRIES,
            "retries.wait.ms": _RETRY_WAIT_MS,
            "cache.capacity": settings.max_schemas,
        }
        if settings.ca:
            config["ssl.ca.location"] = settings.ca
        if settings.username:
            config["basic.auth.user.info"] = f"{settings.username}:{read_value_file(settings.password_file)}"
        try:
            self._client = SchemaRegistryClient(config)
        except (OSError, ValueError) as error:
            named = f"ca {settings.ca}" if settings.ca else settings.url
            raise ConfigError(f"schema registry: {named} cannot be used: {error}") from None

    def versions(self, subject: str) -> list[int]:
        """Return the numbers of a subject's versions, also of those that were deleted, but not for good; none if there is no subject.

        Raises:
            RegistryError: the registry does not answer.
        """
        return sorted(self._ask(subject, lambda: self._client.get_versions(subject, deleted=True)) or ())

    def schemas(self, subject: str) -> list[RegisteredSchema]:
        """Return the versions of a subject, oldest first; none if the registry lacks the subject.

        Raises:
            RegistryError: the registry does not answer, or there are more than ``max_schemas``.
        """
        versions = self.versions(subject)
        if len(versions) > self._settings.max_schemas:
            raise RegistryError(
                f"subject {subject} has {len(versions)} schemas, max_schemas allows {self._settings.max_schemas}"
            )
        schemas = [self._schema(subject, version, [_MAX_REFERENCES]) for version in versions]
        return [each for each in schemas if each is not None]

    def _schema(self, subject: str, version: int, left: list[int]) -> RegisteredSchema | None:
        """Fetch a version with all that it refers to; ``left`` counts down the references that it may have."""
        known = self._known.get((subject, version))
        if known is not None:
            return known
        found = self._ask(subject, lambda: self._client.get_version(subject, version, True))
        if found is None:  # deleted for good since its version was listed
            return None
        schema = found.schema
        kind, text = schema.schema_type or AVRO, schema.schema_str or ""
        if kind == PROTOBUF:
            cast(Any, self._client).clear_caches()  # the client's cache does not tell the formats apart
            compiled = self._ask(
                subject, lambda: self._client.get_version(subject, version, True, "serialized")
            )
            text = text if compiled is None else compiled.schema.schema_str or ""
        known = RegisteredSchema(found.schema_id, version, kind, text, subject)
        if schema.references:
            known = self._with_references(known, schema.references, left)
        self._known[subject, version] = known
        return known

    def _with_references(
        self, schema: RegisteredSchema, references: Sequence[Any], left: list[int]
    ) -> RegisteredSchema:
        found: list[tuple[str, RegisteredSchema]] = []
        for each in references:
            left[0] -= 1
            if left[0] < 0:
                return replace(schema, fault=f"it refers to more than {_MAX_REFERENCES} schemas")
            one = self._schema(each.subject, each.version, left)
            if one is None:
                what = f"version {each.version} of subject {each.subject}"
                return replace(schema, fault=f"it refers to {what}, which the registry lacks")
            if one.fault:
                return replace(schema, fault=one.fault)
            found.append((each.name or "", one))
        return replace(schema, references=tuple(found))

    def copy(self, number: int, target: Registry, subject: str) -> int | None:
        """Register a schema in another registry, with all that it refers to; return its id there.

        Args:
            number: the schema's id.
            target: the other registry.
            subject: the subject there. What the schema refers to keeps its subjects.

        Returns:
            None if this registry lacks the id.

        Raises:
            RegistryError: one of them does not answer, or the other one refuses the schema.
        """
        found = self._ask(f"of schema {number}", lambda: self._client.get_schema(number))
        return (
            None if found is None else target._register(subject, self._moved(found, target, _MAX_REFERENCES))
        )

    def _moved(self, schema: Any, target: Registry, levels: int) -> Any:
        """Return a schema whose references lead to versions of the other registry."""
        from confluent_kafka.schema_registry import Schema, SchemaReference

        if levels < 0:
            raise RegistryError(
                f"{self._settings.url}: a schema refers to others over {_MAX_REFERENCES} levels"
            )
        references = []
        for each in schema.references or ():
            found = self._ask(
                each.subject, partial(self._client.get_version, each.subject, each.version, True)
            )
            if found is None:
                raise RegistryError(
                    f"{self._settings.url}, subject {each.subject} lacks version {each.version}"
                )
            moved = self._moved(found.schema, target, levels - 1)
            target._register(each.subject, moved)
            there = target._ask(each.subject, partial(target._client.lookup_schema, each.subject, moved))
            references.append(SchemaReference(each.name, each.subject, there.version))
        return Schema(schema.schema_str, schema.schema_type, references)

    def _register(self, subject: str, schema: Any) -> int:
        number = self._ask(subject, lambda: self._client.register_schema(subject, schema))
        if number is None:
            raise RegistryError(
                f"schema registry {self._settings.url}, subject {subject}: it cannot be registered"
            )
        return int(number)

    def _ask(self, subject: str, question: Callable[[], Any]) -> Any:
        """Ask the registry; return None for what it does not have."""
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        where = f"schema registry {self._settings.url}, subject {subject}"
        try:
            return question()
        except SchemaRegistryError as error:
            if error.http_status_code == _NOT_FOUND:
                return None
            raise RegistryError(f"{where}: HTTP {error.http_status_code}: {error.error_message}") from None
        except Exception as error:  # of the HTTP library, whose name depends on the release
            raise RegistryError(f"{where} does not answer: {type(error).__name__}: {error}") from None


__all__ = [
    "AVRO",
    "JSON",
    "PROTOBUF",
    "RegisteredSchema",
    "Registry",
    "RegistryError",
    "RegistrySettings",
    "load_settings",
]
