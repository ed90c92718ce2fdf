"""How typed columns grow: fields are added, none changes its type or goes. Pure."""

from __future__ import annotations

import pyarrow as pa


class Incompatible(ValueError):
    """A field has another type than its column; the text names both."""


def merge(old: pa.DataType, new: pa.DataType, path: str = "") -> pa.DataType:
    """Return a type that holds values of both types.

    Fields of structs are added at the end, and columns of fields that ``new`` lacks stay. So each earlier file is one
    of the new type, with nulls in the added fields.

    Args:
        old: the column's type.
        new: the type of the values that come.
        path: the field's name, for the error.

    Raises:
        Incompatible: they have no common type.
    """
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        return _merge_structs(old, new, path)
    if pa.types.is_list(old) and pa.types.is_list(new):
        return pa.list_(merge(old.value_type, new.value_type, path))
    if pa.types.is_map(old) and pa.types.is_map(new):
        return pa.map_(pa.string(), merge(old.item_type, new.item_type, path))
    if old != new:
        raise Incompatible(f"{path} is {new}, its column is {old}")
    return old


def _merge_structs(old: pa.StructType, new: pa.StructType, path: str) -> pa.StructType:
    fields = {field.name: field.type for field in old}
    spelled = {name.lower(): name for name in fields}
    for field in new:
        where = f"{path}.{field.name}" if path else field.name
        known = spelled.get(field.name.lower())
        if known is None:
            fields[field.name] = field.type
            spelled[field.name.lower()] = field.name
        elif known != field.name:
            raise Incompatible(f"{where} is spelled otherwise than its column {known}")
        else:
            fields[known] = merge(fields[known], field.type, where)
    return pa.struct(list(fields.items()))


__all__ = ["Incompatible", "merge"]
