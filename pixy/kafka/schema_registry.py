"""A schema registry (Confluent's API): its settings, the schemas of a subject, and values decoded by them.

Only the driver of a job talks to the registry. It takes the schemas of a subject along to the tasks, which so need
neither its address nor its credentials, and never wait for it: see :class:`Decoder`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from pixy.config.durations import parse_duration
from pixy.config.environment import read_value_file
from pixy.errors import ConfigError, PixyError

_KEYS: Final = {"url", "ca", "username", "password_file", "timeout", "max_schemas"}
_MAX_FILE: Final = 1 << 20
_RETRIES: Final = 2
_RETRY_WAIT_MS: Final = 500
_NOT_FOUND: Final = 404
AVRO: Final = "AVRO"


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
        text: the schema.
        references: the schema refers to other subjects.
    """

    id: int
    version: int
    kind: str
    text: str
    references: bool = False


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
            raise ConfigError(
                f"a schema registry needs the extra: pip install 'kafka-pixy[decode]' ({error})"
            ) from None
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

    def schemas(self, subject: str) -> list[RegisteredSchema]:
        """Return the versions of a subject, oldest first; none if the registry lacks the subject.

        Raises:
            RegistryError: the registry does not answer, or there are more than ``max_schemas``.
        """
        found = self._ask(subject, lambda: self._client.get_versions(subject))
        if found is None:
            return []
        versions = sorted(found)
        if len(versions) > self._settings.max_schemas:
            raise RegistryError(
                f"subject {subject} has {len(versions)} schemas, max_schemas allows {self._settings.max_schemas}"
            )
        schemas = [self._schema(subject, version) for version in versions]
        return [each for each in schemas if each is not None]

    def _schema(self, subject: str, version: int) -> RegisteredSchema | None:
        known = self._known.get((subject, version))
        if known is None:
            found = self._ask(subject, lambda: self._client.get_version(subject, version))
            if found is None:  # deleted since its version was listed
                return None
            schema = found.schema
            known = RegisteredSchema(
                found.schema_id,
                version,
                schema.schema_type or AVRO,
                schema.schema_str or "",
                bool(schema.references),
            )
            self._known[subject, version] = known
        return known

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


class UnknownSchema(Exception):
    """A record has the id of a schema that the decoder was not given."""


class Decoder:
    """Decode Avro values that begin with the id of their schema, without a connection to the registry.

    Args:
        schemas: what the decoder knows; other ids raise UnknownSchema.
    """

    def __init__(self, schemas: Sequence[RegisteredSchema]) -> None:
        import fastavro.read
        from confluent_kafka.schema_registry import Schema
        from confluent_kafka.schema_registry.avro import AvroDeserializer

        # A UUID stays the text that it is in Avro: Arrow and Spark have no such type.
        fastavro.read.LOGICAL_READERS["string-uuid"] = lambda data, *_: data
        known = _Known({each.id: Schema(each.text, AVRO) for each in schemas})
        self._deserialize: Any = AvroDeserializer(known, conf={"subject.name.strategy.type": "TOPIC"})

    def decode(self, data: bytes) -> Any:
        """Decode a value by the schema that it was written with.

        Raises:
            UnknownSchema: the decoder does not know the schema's id.
            Exception: the bytes are not framed, or not of the schema.
        """
        return self._deserialize(data)


class _Known:
    """Stands for the registry's client in a task: schemas by id."""

    def __init__(self, schemas: Mapping[int, Any]) -> None:
        self._schemas = schemas

    def config(self) -> dict[str, Any]:
        return {}

    def get_schema(self, schema_id: int, *_: Any) -> Any:
        try:
            return self._schemas[schema_id]
        except KeyError:
            raise UnknownSchema(schema_id) from None

    def get_schema_by_guid(self, guid: str, *_: Any) -> Any:
        raise UnknownSchema(guid)


__all__ = [
    "AVRO",
    "Decoder",
    "RegisteredSchema",
    "Registry",
    "RegistryError",
    "RegistrySettings",
    "UnknownSchema",
    "load_settings",
]
