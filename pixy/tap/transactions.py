"""Offsets committed in transactions: they count when the transaction is committed, not before."""

from __future__ import annotations

from typing import Any, Final

from pixy.tap.groups import Partition
from pixy.tap.lru import LruDict

_TRANSACTIONS: Final = 10_000
_PARTITIONS: Final = 10_000
"""Offsets that wait in one transaction."""

Body = dict[str, Any]


class _Waiting:
    """The offsets of one transaction."""

    def __init__(self, producer: tuple[int, int]) -> None:
        self.producer = producer
        self.offsets: LruDict[tuple[str, Partition], int] = LruDict(_PARTITIONS)


class Transactions:
    """The offsets that wait for the end of their transaction (KIP-98, KIP-447).

    A transaction belongs to a transactional id, producer id and epoch: an EndTxn of another epoch, whose producer is fenced or
    repeats a request (KIP-890), does not end it.
    """

    def __init__(self) -> None:
        self._waiting: LruDict[str, _Waiting] = LruDict(_TRANSACTIONS)

    @property
    def forgotten(self) -> int:
        """Number of transactions evicted at the limit: their offsets stay as they were, and age."""
        return self._waiting.forgotten

    def add(self, request: Body, body: Body) -> None:
        """Keep the offsets of a TxnOffsetCommit that the coordinator has accepted.

        Args:
            request: the request.
            body: the response.
        """
        failed = {
            (topic["Name"], partition["PartitionIndex"])
            for topic in body["Topics"]
            for partition in topic["Partitions"]
            if partition["ErrorCode"]
        }
        accepted = {
            (request["GroupId"], key): partition["CommittedOffset"]
            for topic in request["Topics"]
            for partition in topic["Partitions"]
            if (key := (topic["Name"], partition["PartitionIndex"])) not in failed
        }
        if not accepted:
            return
        waiting, producer = self._waiting.get(request["TransactionalId"]), _producer(request)
        if waiting is None or waiting.producer != producer:  # that of an earlier epoch has been aborted
            waiting = self._waiting[request["TransactionalId"]] = _Waiting(producer)
        for place, offset in accepted.items():
            waiting.offsets[place] = offset

    def end(self, request: Body, body: Body) -> list[tuple[str, Partition, int]]:
        """End a transaction.

        Args:
            request: the EndTxn request.
            body: its response.

        Returns:
            Group, partition and offset of each offset that is committed now.
        """
        if body["ErrorCode"]:
            return []
        waiting = self._waiting.get(request["TransactionalId"])
        if waiting is None or waiting.producer != _producer(request):
            return []
        self._waiting.pop(request["TransactionalId"])
        if not request["Committed"]:
            return []
        return [(group, partition, offset) for (group, partition), offset in waiting.offsets.items()]

    def begin(self, request: Body, body: Body) -> None:
        """Drop what waits in a transaction that InitProducerId has aborted.

        Args:
            request: the request.
            body: the response.
        """
        if not body["ErrorCode"] and request["TransactionalId"] is not None:
            self._waiting.pop(request["TransactionalId"])


def _producer(request: Body) -> tuple[int, int]:
    return request["ProducerId"], request["ProducerEpoch"]


__all__ = ["Transactions"]
