"""Give replayed records the schema ids of another registry: those in front of keys and values."""

from __future__ import annotations

import struct
from typing import Final

from pixy.kafka.schema_registry import Registry
from pixy.pipeline.errors import PipelineError
from pixy.pipeline.lake.record_reader import Record

_FRAME: Final = struct.Struct(">bI")
"""A zero byte and the id, as Confluent's serializers write them."""
_PARTS: Final = ("key", "value")


class SchemaIds:
    """Replaces ids, and registers the schemas in the other registry when it first meets them.

    Args:
        source: the registry whose ids the records have.
        target: the other one.
        topic: in the lake. Only keys and values whose subject, ``<topic>-key`` or ``<topic>-value``, the source has are changed.
        to: the topic to write to, for the subjects in the other registry.

    Raises:
        PipelineError: the source has neither subject.
        RegistryError: a registry does not answer.
    """

    def __init__(self, source: Registry, target: Registry, topic: str, to: str) -> None:
        self._source = source
        self._target = target
        self._to = to
        self._ids: dict[tuple[str, int], int] = {}
        self._parts = [part for part in _PARTS if source.versions(f"{topic}-{part}")]
        if not self._parts:
            raise PipelineError(
                f"the registry of --schemas-from has neither subject {topic}-key nor {topic}-value: there are no ids to replace"
            )

    def change(self, partition: int, records: list[Record]) -> list[Record]:
        """Return records with the ids of the other registry; data without an id stays as it is.

        Raises:
            PipelineError: the source lacks an id; the text names the record.
            RegistryError: a registry does not answer, or the other one refuses a schema.
        """
        keys, values = "key" in self._parts, "value" in self._parts
        return [
            (
                offset,
                timestamp,
                self._moved("key", key, partition, offset) if keys else key,
                self._moved("value", value, partition, offset) if values else value,
                headers,
            )
            for offset, timestamp, key, value, headers in records
        ]

    def _moved(self, part: str, data: bytes | None, partition: int, offset: int) -> bytes | None:
        if data is None or len(data) < _FRAME.size or data[0]:
            return data
        _, number = _FRAME.unpack_from(data)
        found = self._ids.get((part, number))
        if found is None:
            new = self._source.copy(number, self._target, f"{self._to}-{part}")
            if new is None:
                raise PipelineError(
                    f"the {part} of offset {offset} of partition {partition} has schema id {number}, which the registry of "
                    "--schemas-from lacks"
                )
            found = self._ids[part, number] = new
        return _FRAME.pack(0, found) + data[_FRAME.size :]


__all__ = ["SchemaIds"]
