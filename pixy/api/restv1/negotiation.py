"""Find the API version and embedded format of a request from Accept and Content-Type. Pure.

Media types look like ``application/vnd.kafka[.{format}].{v1|v2}+json``. The types that a client sends are
read leniently; the type of the answer is exactly one that the client accepts.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final, Literal

from pixy.api.restv1 import errors
from pixy.api.restv1.errors import ApiError

Api = Literal["v1", "v2"]
Format = Literal["binary", "json"]
Answers = Literal["plain", "records"]
"""``records``: the answer embeds keys and values, and its type names their format."""

MOST: Final = 1_000
"""Characters of Accept or Content-Type. What is read is remembered, so it must be short; clients send some 200 at most."""
FORMATS: tuple[Format, ...] = ("binary", "json")
SCHEMA_FORMATS = frozenset({"avro", "jsonschema", "protobuf"})
_PREFIX = "application/vnd.kafka"
_JSON = "application/json"
_OCTETS = "application/octet-stream"
_GENERIC = f"{_PREFIX}+json"


@dataclass(frozen=True, slots=True)
class Negotiated:
    """The versions and formats of a request and its answer."""

    api: Api
    request_format: Format
    """The format of the records in the body."""
    response_format: Format | None
    """The format of the records in the answer; None if the client does not say."""
    content_type: str
    """Of the answer. For an answer with records see :meth:`records_type`."""
    explicit: bool = False
    """True if Accept names that type."""
    request_api: Api = "v1"
    """The version of the body if its type names one; else that of the answer."""

    def records_type(self, embedded: Format) -> str:
        """Return the Content-Type of an answer with records in this format."""
        return self.content_type if self.explicit else media_type(self.api, embedded)


@dataclass(frozen=True, slots=True)
class MediaType:
    """The parts of a media type, in lower case, without parameters."""

    full: str
    kafka: bool = False
    format: str = ""
    version: str = ""


def media_type(api: Api, embedded: str = "") -> str:
    """Build a media type: ``application/vnd.kafka.v2+json`` or ``application/vnd.kafka.json.v2+json``.

    Args:
        api: the version.
        embedded: the format of embedded records; empty: the type names none.
    """
    return f"{_PREFIX}.{embedded}.{api}+json" if embedded else f"{_PREFIX}.{api}+json"


def parse(text: str) -> MediaType:
    """Parse one media type; its parameters are dropped, and what is beyond :data:`MOST` characters."""
    return _parse(text[:MOST])


@functools.lru_cache(maxsize=512)
def _parse(text: str) -> MediaType:
    full = text.partition(";")[0].strip().lower()
    if not full.startswith(_PREFIX) or not full.endswith("+json"):
        return MediaType(full)
    parts = full[len(_PREFIX) : -len("+json")].split(".")
    match parts:
        case [""]:
            return MediaType(full, True)
        case ["", version] if version[:1] == "v" and version[1:].isdecimal():
            return MediaType(full, True, "", version)
        case ["", format, version]:
            return MediaType(full, True, format, version)
    return MediaType(full)


def parse_accept(text: str) -> tuple[MediaType, ...]:
    """Return the types that a client accepts, best first, without those of q=0 (RFC 9110, section 12.5.1).

    None, if there are more than :data:`MOST` characters.
    """
    return _parse_accept(text) if len(text) <= MOST else ()


@functools.lru_cache(maxsize=512)
def _parse_accept(text: str) -> tuple[MediaType, ...]:
    weighted: list[tuple[float, float, int, MediaType]] = []
    for at, element in enumerate(text.split(",")):
        name, _, parameters = element.partition(";")
        if name.strip():
            quality = _quality(parameters)
            if quality > 0:
                kind = parse(name)
                weighted.append((-quality, -_preference(kind), at, kind))
    return tuple(kind for *_, kind in sorted(weighted, key=lambda each: each[:3]))


def _preference(kind: MediaType) -> float:
    """Return the v1 proxy's weights, which decide between types of equal quality."""
    if kind.kafka:
        return 0.9 if kind.version else 0.8
    return 0.5 if kind.full == _JSON else 0.1


def _quality(parameters: str) -> float:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                return float(value.strip())
            except ValueError:
                return 0.0
    return 1.0


def speaks_kafka(accept: str | None, content_type: str | None) -> bool:
    """Return whether a header names ``vnd.kafka``: on a path that both APIs have, the request is for this one.

    Args:
        accept: the Accept header.
        content_type: the Content-Type header.
    """
    return bool(accept and _PREFIX in accept.lower()) or bool(
        content_type and _PREFIX in content_type.lower()
    )


def negotiate(
    accept: str | None,
    content_type: str | None,
    answers: Answers = "plain",
    only: Api | None = None,
    *,
    has_body: bool = False,
) -> Negotiated:
    """Find the versions and formats of a request and its answer.

    Args:
        accept: the Accept header.
        content_type: the Content-Type header.
        answers: the content of the answer.
        only: the version of an endpoint that exists in one version only.
        has_body: whether Content-Type must be a type of this API; without a body it is a mere hint.

    Raises:
        ApiError: 415, the body's type is not one of this API; 406, the client accepts no type of it, or its Accept is
            too long.
    """
    if accept is not None and len(accept) > MOST:
        raise ApiError(
            errors.NOT_ACCEPTABLE,
            f"HTTP 406 Not Acceptable: the header Accept is longer than {MOST} characters",
        )
    if content_type is not None:
        content_type = content_type[:MOST]
    return _negotiate(accept, content_type, answers, only, has_body)


@functools.lru_cache(maxsize=1024)
def _negotiate(
    accept: str | None, content_type: str | None, answers: Answers, only: Api | None, has_body: bool
) -> Negotiated:
    sent = parse(content_type) if content_type and content_type.strip() else None
    if has_body and sent is not None:
        _check_sent(sent)
    hint: Api | None = only or _version(sent)
    api, asked = _choose(accept, hint, answers)
    sent_api = _version(sent) or api
    request_format: Format = "json" if sent is not None and sent.format == "json" else "binary"
    if asked is None:
        default = media_type(api, "binary" if answers == "records" else "")
        return Negotiated(api, request_format, None, default, False, sent_api)
    return Negotiated(api, request_format, _format(asked.format), asked.full, True, sent_api)


def _check_sent(sent: MediaType) -> None:
    if sent.kafka and sent.format in SCHEMA_FORMATS:
        raise ApiError(
            errors.UNSUPPORTED_MEDIA_TYPE,
            f"HTTP 415 Unsupported Media Type: {sent.full} needs a schema registry, which this "
            "proxy has not; binary and json are supported",
        )
    known = sent.kafka and sent.version in ("", "v1", "v2") and sent.format in ("", *FORMATS)
    if not known and sent.full not in (_JSON, _OCTETS):
        raise ApiError(
            errors.UNSUPPORTED_MEDIA_TYPE,
            f"HTTP 415 Unsupported Media Type: {sent.full}; send application/vnd.kafka.binary.v2+json, "
            "application/vnd.kafka.json.v2+json or their v1 forms",
        )


def _version(sent: MediaType | None) -> Api | None:
    if sent is None or not sent.kafka:
        return None
    return "v2" if sent.version == "v2" else "v1" if sent.version == "v1" else None


def _format(text: str) -> Format | None:
    return "json" if text == "json" else "binary" if text == "binary" else None


def _choose(accept: str | None, hint: Api | None, answers: Answers) -> tuple[Api, MediaType | None]:
    """Return the version, and the type of the answer (None: the version's default)."""
    if not accept or not accept.strip():
        return hint or "v1", None
    for kind in parse_accept(accept):
        if kind.full in ("*/*", "application/*"):
            return hint or "v1", None
        if kind.full in (_JSON, _GENERIC):
            return hint or "v1", kind
        if kind.kafka and kind.version in ("v1", "v2") and kind.format in ("", *FORMATS):
            return ("v2" if kind.version == "v2" else "v1"), kind
    raise ApiError(
        errors.NOT_ACCEPTABLE,
        f"HTTP 406 Not Acceptable: {accept.strip()}; this is answered with "
        f"{media_type(hint or 'v2', 'binary' if answers == 'records' else '')}",
    )
