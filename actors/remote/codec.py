"""Codecs: messages to bytes and back. The choice is the program's, because it is one of trust."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any, Protocol

from actors._core.error_text import str_of
from actors._core.interruption import of_program
from actors._errors import ActorError


class BadPayload(ActorError):
    """A message or reply that the codec cannot write or read, or that is too large for the transport.

    An object's own code may raise anything then, also ``SystemExit``, which must not end the reader of the stream.
    """


class Codec(Protocol):
    """Turns messages into bytes and back; raises :class:`BadPayload`."""

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a message or reply."""

    def decode(self, data: bytes) -> Any:
        """Return the message or reply."""


def codec_of(value: Any) -> None:
    """Refuse what is no codec, also a codec's class.

    Args:
        value: the codec.

    Raises:
        TypeError: it is none.
    """
    if isinstance(value, type) or not (hasattr(value, "encode") and hasattr(value, "decode")):
        raise TypeError(f"a codec is an object such as PickleCodec(), not {value!r}")


class PickleCodec:
    """Anything that can be pickled. **Whoever can publish can run code here**: for a network that you trust."""

    def encode(self, value: Any) -> bytes:
        """See :class:`Codec`."""
        try:
            return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        except BaseException as error:
            if of_program(error):
                raise
            raise BadPayload(f"{type(value).__name__} cannot be pickled: {str_of(error)}") from error

    def decode(self, data: bytes) -> Any:
        """See :class:`Codec`."""
        try:
            return pickle.loads(data)  # noqa: S301 - what the class is for
        except BaseException as error:
            if of_program(error):
                raise
            raise BadPayload(f"{len(data)} bytes cannot be unpickled: {str_of(error)}") from error


class TypedCodec:
    """Dataclasses that both sides name, and plain values (numbers, text, bytes, lists, dicts), as msgpack.

    What arrives is checked against the annotations of the class. Nothing but these classes is ever made.

    Args:
        types: the dataclasses; a class's name stands for it, so names are unique.

    Raises:
        ValueError: two classes have one name, or one is no dataclass.
        ModuleNotFoundError: msgspec is not installed (extra ``nats``).
    """

    def __init__(self, *types: type) -> None:
        try:
            import msgspec
        except ModuleNotFoundError:
            raise ModuleNotFoundError("TypedCodec needs msgspec: pip install msgspec") from None
        self._msgspec = msgspec
        self._types: dict[str, type] = {}
        for each in types:
            if not dataclasses.is_dataclass(each) or each.__name__ in self._types:
                raise ValueError(f"{each!r} is no dataclass, or there are two of that name")
            self._types[each.__name__] = each

    def encode(self, value: Any) -> bytes:
        """See :class:`Codec`."""
        name = type(value).__name__
        if self._types.get(name) is not type(value):
            if dataclasses.is_dataclass(value):
                raise BadPayload(f"{name} is none of the codec's types: {', '.join(self._types) or 'none'}")
            name = ""
        try:
            return self._msgspec.msgpack.encode([name, value])
        except BaseException as error:
            if of_program(error):
                raise
            raise BadPayload(f"{type(value).__name__} cannot be encoded: {str_of(error)}") from error

    def decode(self, data: bytes) -> Any:
        """See :class:`Codec`."""
        try:
            name, value = self._msgspec.msgpack.decode(data, type=tuple[str, Any])
            if not name:
                return value
            if name not in self._types:
                raise ValueError(f"{name} is none of the codec's types")
            return self._msgspec.convert(value, self._types[name])
        except BaseException as error:
            if of_program(error):
                raise
            raise BadPayload(f"{len(data)} bytes cannot be decoded: {str_of(error)}") from error
