"""What the columns of Avro, Protobuf and JSON have in common: structs whose fields may be left out. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

SINGLE: Final = "value"
"""Name of the one field of a schema that is no record."""
MAX_DEPTH: Final = 32
"""Levels of a column; what is deeper is left out."""
MAX_FIELDS: Final = 5_000
"""Fields of a schema, at all levels: a type that is used in many places counts in each."""
_NOT_IN_NAMES: Final = frozenset(" ,;{}()\n\t=")
TIMESTAMP: Final = pa.timestamp("us", tz="UTC")


class NoColumn(ValueError):
    """A schema or a field has no column; the text says why."""


@dataclass(slots=True)
class Outline:
    """What is known of the columns of a schema so far.

    Attributes:
        left_out: ``field: reason`` for each field without a column.
        fields: number of fields, at all levels.
    """

    left_out: list[str] = field(default_factory=list)
    fields: int = 0


class StructBuilder:
    """Collects the fields of a struct.

    Args:
        path: of the struct, with a dot at its end; empty for the column itself.
        outline: counts the fields, and gets those without a column.
    """

    def __init__(self, path: str, outline: Outline) -> None:
        self._path = path
        self._outline = outline
        self._fields: dict[str, pa.Field] = {}

    def add(self, name: str, make: Callable[[], pa.DataType]) -> None:
        """Add a field, or say why it has no column.

        Args:
            name: of the field.
            make: returns its type, or raises NoColumn.
        """
        if name.lower() in self._fields:
            reason = "Spark does not tell its name from that of another field"
            self._outline.left_out.append(f"{self._path}{name}: {reason}")
            return
        self._outline.fields += 1
        try:
            if not name or _NOT_IN_NAMES.intersection(name):
                raise NoColumn("tables of Delta have no such name")
            if self._outline.fields > MAX_FIELDS:
                raise NoColumn(f"more than {MAX_FIELDS} fields")
            self._fields[name.lower()] = pa.field(name, make())
        except NoColumn as error:
            self._outline.left_out.append(f"{self._path}{name}: {error}")

    def build(self) -> pa.StructType:
        """Return the struct. Raises NoColumn if it has no field."""
        if not self._fields:
            raise NoColumn("a record without fields that have columns")
        return pa.struct(list(self._fields.values()))


__all__ = ["MAX_DEPTH", "SINGLE", "TIMESTAMP", "NoColumn", "Outline", "StructBuilder"]
