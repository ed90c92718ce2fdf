"""Messages for the tests' models of Kafka."""

from __future__ import annotations

TOPIC = "t"


class Record:
    """The part of confluent-kafka's message that the engine needs."""

    def __init__(
        self, partition: int, offset: int, size: int = 10, topic: str = TOPIC, life: int = 0
    ) -> None:
        self._partition, self._offset, self._size, self._topic = partition, offset, size, topic
        self.life = life
        """The id of the topic that it was read from: another one when the topic is made again."""

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"v"

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000 + self._offset

    def __len__(self) -> int:
        return self._size

    @property
    def at(self) -> tuple[int, int]:
        return self._partition, self._offset
