"""The options of a new consumer instance; clients send numbers and flags as JSON or as text. Pure."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from pixy.api.restv1 import bodies, errors
from pixy.api.restv1.errors import ApiError
from pixy.api.restv1.negotiation import FORMATS, SCHEMA_FORMATS
from pixy.config.model import Instances
from pixy.engine.instances.messages import InstanceSpec
from pixy.engine.instances.registry import check_name

_RESETS = {
    "earliest": "earliest",
    "smallest": "earliest",
    "latest": "latest",
    "largest": "latest",
}
_ALIASES = {"fetch.min.bytes": "responseMinBytes", "consumer.request.timeout.ms": "requestWaitMs"}
"""Other names that Confluent's proxy takes."""
_ISOLATION = ("read_committed", "read_uncommitted")
_MAX_MIN_BYTES = 10_000_000
_MAX_INT = 2**31 - 1

_LONGEST = 1_000
"""Bytes of a value that is no text. A longer one is not decoded: it may be millions of empty lists."""
_NAMES = (
    "name",
    "id",
    "format",
    "auto.offset.reset",
    "isolation.level",
    "auto.commit.enable",
    "enable.auto.commit",
    "max.poll.records",
    *_ALIASES,
    *_ALIASES.values(),
)
_FIELDS = {f"option_{number}": name for number, name in enumerate(_NAMES)}
_any = msgspec.json.Decoder(Any)
_Options = msgspec.defstruct("_Options", [(field, Raw, Raw()) for field in _FIELDS], rename=_FIELDS)
_decoder = msgspec.json.Decoder(_Options)


class _Long:
    """A value that is not decoded."""

    def __init__(self, raw: bytes) -> None:
        self.begin = raw[:80].decode("utf-8", "replace")


def parse_options(body: bytes, conf: Instances) -> tuple[str | None, InstanceSpec]:
    """Return the name (None: to be generated) and the spec of an instance.

    Unknown options are ignored: clients send those of other servers.

    Args:
        body: the request's JSON.
        conf: the defaults.

    Raises:
        ApiError: 422 with 40001, 42204 (reset) or 422 (format); the text names the option.
    """
    found = bodies.parse(b"{}" if bodies.is_empty(body) else body, _decoder)
    sent = ((name, bytes(getattr(found, field))) for field, name in _FIELDS.items())
    options = {name: _value(raw) for name, raw in sent if raw}
    name = _text(options, "name") or _text(options, "id") or None
    if name is not None:
        check_name(name)
    for option, alias in _ALIASES.items():
        options.setdefault(option, options.get(alias))
    min_bytes = _number(options, "fetch.min.bytes", -1, -1, _MAX_MIN_BYTES)
    wait = _number(options, "consumer.request.timeout.ms", round(conf.read_timeout * 1000), 0, _MAX_INT)
    most = _number(options, "max.poll.records", _MAX_INT, 1, _MAX_INT)
    return name, InstanceSpec(
        format=_format(options),
        reset=_reset(options),
        auto_commit=_flag(options, ("auto.commit.enable", "enable.auto.commit"), conf.auto_commit),
        min_bytes=max(1, min_bytes),
        wait=wait / 1000,
        max_records=most,
        isolation=_isolation(options),
    )


def _value(raw: bytes) -> Any:
    if len(raw) > _LONGEST and not raw.startswith(b'"'):
        return _Long(raw)
    return bodies.parse(raw, _any)


def _text(options: dict[str, Any], name: str) -> str:
    value = options.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ApiError(errors.INVALID, f"{name}: {_shown(value)} is not text")
    return value


def _format(options: dict[str, Any]) -> str:
    value = (_text(options, "format") or "binary").lower()
    if value in FORMATS:
        return value
    hint = " (needs a schema registry, which this proxy has not)" if value in SCHEMA_FORMATS else ""
    raise ApiError(errors.INVALID, f"Invalid format type: {value}{hint}")


def _reset(options: dict[str, Any]) -> str:
    value = (_text(options, "auto.offset.reset") or "latest").lower()
    if value not in _RESETS:
        raise ApiError(
            errors.INVALID_CONSUMER_CONFIG,
            f"Invalid value {value[:80]} for configuration auto.offset.reset: must be one of {', '.join(_RESETS)}",
        )
    return _RESETS[value]


def _isolation(options: dict[str, Any]) -> str:
    value = (_text(options, "isolation.level") or _ISOLATION[0]).lower()
    if value not in _ISOLATION:
        raise _constraint("isolation.level", value, f"must be one of {', '.join(_ISOLATION)}")
    return value


def _flag(options: dict[str, Any], names: tuple[str, ...], default: bool) -> bool:
    for name in names:
        value = options.get(name)
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if value not in (None, ""):
            raise _constraint(name, value, "must be true or false")
    return default


def _number(options: dict[str, Any], name: str, default: int, least: int, most: int) -> int:
    value = options.get(name)
    if value is None or value == "":
        return default
    number: int | None = value if isinstance(value, int) and not isinstance(value, bool) else None
    if isinstance(value, str) and len(value) <= 19:
        digits = value.removeprefix("-")
        number = int(value) if digits.isascii() and digits.isdecimal() else None
    if number is None or not least <= number <= most:
        raise _constraint(name, value, f"must be a number from {least} to {most}")
    return number


def _constraint(name: str, value: Any, problem: str) -> ApiError:
    return ApiError(
        errors.INVALID_CONSUMER_CONSTRAINT,
        f"Invalid value {_shown(value)} for configuration {name}: {problem}",
    )


def _shown(value: Any) -> str:
    if isinstance(value, _Long):
        return value.begin
    return msgspec.json.encode(value).decode()[:80] if not isinstance(value, str) else value[:80]
