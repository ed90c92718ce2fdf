"""Offsets committed in transactions: they count when the transaction is committed, not before."""

from __future__ import annotations

from typing import Any, Final

from pixy.tap.groups import Partition
from pixy.tap.lru import LruDict

_TRANSACTIONS: Final = 10_000
_PARTITIONS: Final = 10_000
"""Offsets that wait in one transaction."""

Body = dict[str, Any]
Waiting = LruDict[tuple[str, Partition], int]


class Transactions:
    """The offsets that wait for the end of their transaction, by transactional id (KIP-98, KIP-447)."""

    def __init__(self) -> None:
        self._waiting: LruDict[str, Waiting] = LruDict(_TRANSACTIONS)

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
        waiting = self._waiting.get_or_create(request["TransactionalId"], lambda: LruDict(_PARTITIONS))
        for topic in request["Topics"]:
            for partition in topic["Partitions"]:
                key = (topic["Name"], partition["PartitionIndex"])
                if key not in failed:
                    waiting[request["GroupId"], key] = partition["CommittedOffset"]

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
        waiting = self._waiting.pop(request["TransactionalId"])
        if waiting is None or not request["Committed"]:
            return []
        return [(group, partition, offset) for (group, partition), offset in waiting.items()]

    def begin(self, request: Body, body: Body) -> None:
        """Drop what waits in a transaction that InitProducerId has aborted.

        Args:
            request: the request.
            body: the response.
        """
        if not body["ErrorCode"] and request["TransactionalId"] is not None:
            self._waiting.pop(request["TransactionalId"])


__all__ = ["Transactions"]
