"""What Produce, Fetch and ShareFetch tell: ends, readers and writers, bytes, errors, gaps in sequence numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pixy.tap import events
from pixy.tap.apis import FETCH, PRODUCE
from pixy.tap.connections import Connections
from pixy.tap.offsets import Offsets
from pixy.tap.partial_decoders import ProduceSummary, Topic
from pixy.tap.sequences import Sequences
from pixy.tap.shares import ShareGroups
from pixy.tap.topics import Topics
from pixy.tap.traffic import Traffic


class RecordTraffic:
    """Takes the events of requests that carry records and of their responses.

    Args:
        connections: the open connections.
        topics: learns who reads and writes.
        traffic: counts bytes, errors and throttle times.
        offsets: learns ends.
        shares: learns what members of share groups acquire.
        sequences: finds gaps.
        emit: tells people, as :meth:`pixy.tap.observer.Observer` does.
    """

    def __init__(
        self,
        connections: Connections,
        topics: Topics,
        traffic: Traffic,
        offsets: Offsets,
        shares: ShareGroups,
        sequences: Sequences,
        emit: Callable[..., Any],
    ) -> None:
        self._connections, self._topics, self._traffic = connections, topics, traffic
        self._offsets, self._shares, self._emit = offsets, shares, emit
        self.sequences = sequences

    def produced(self, event: events.ProduceSeen) -> None:
        """Take a Produce request: gaps in its sequence numbers, and what it writes if it has no response."""
        connection = self._connections.get(event.connection, event.at)
        peer = connection.peer
        peer.client_id = event.client_id or peer.client_id
        if event.summary.acks:
            connection.pending[event.number] = (event.at, event.summary)
        else:
            self._offsets.written_unanswered(event.at, event.summary)
            self._wrote(event.summary, {}, event.client_id, event.at)
        if not event.summary.complete:
            self.sequences.clear()
        for batch in event.summary.batches:
            gap = self.sequences.check(batch)
            if gap is not None:
                self._emit(
                    "sequence.gap",
                    event.at,
                    topic=self._topics.show(gap.topic),
                    partition=gap.partition,
                    producer_id=gap.producer_id,
                    epoch=gap.epoch,
                    expected=gap.expected,
                    found=gap.found,
                    client_id=event.client_id,
                )

    def fetch_requested(self, event: events.FetchRequestSeen) -> None:
        """Take a Fetch request: what its session reads."""
        connection = self._connections.get(event.connection, event.at)
        connection.peer.client_id = event.client_id or connection.peer.client_id
        request = event.summary
        if request.replica:
            return
        if request.epoch <= 0:  # a full fetch begins a session (0) or is outside of any (-1)
            self._connections.settle_reading(connection)
            connection.fetching.clear()
            connection.reading.clear()
        for topic, partition, offset in request.wanted:
            connection.fetching[topic, partition] = offset
            connection.reading[topic] = None
        for each in request.forgotten:
            connection.fetching.pop(each)
        if request.forgotten:
            self._connections.settle_reading(connection)
            connection.reading = dict.fromkeys(topic for topic, _ in connection.fetching)
        connection.reader, connection.fetched_at = event.client_id, event.at
        for topic in {topic for topic, _, _ in request.wanted}:
            self._topics.used(topic, event.client_id, event.at, written=False)

    def fetched(self, event: events.FetchResponseSeen) -> None:
        """Take a Fetch response: ends, bytes and errors."""
        peer = self._connections.get(event.connection, event.at).peer
        summary = event.summary
        self._offsets.read(event.at, event.asked, peer, summary)
        for topic, size in summary.sizes:
            self._traffic.talked(topic, peer.client_id, size, written=False)
        if summary.throttle or summary.error or summary.errors:
            found: list[tuple[Topic, int]] = [("", summary.error)]
            found += [(topic, code) for topic, _, code in summary.errors]
            self._traffic.answered(FETCH, summary.throttle, found, peer.client_id, event.at)

    def produce_answered(self, event: events.ProduceAnswered) -> None:
        """Take a Produce response: ends, bytes and errors."""
        connection = self._connections.get(event.connection, event.at)
        peer, summary = connection.peer, event.summary
        asked = connection.pending.pop(event.number)
        if asked is not None:
            self._offsets.written(event.at, event.asked, peer, asked[1], summary)
            errors = {
                (self._topics.resolve(topic), number): code for topic, number, code, _ in summary.partitions
            }
            self._wrote(asked[1], errors, peer.client_id, event.at)
        found = [(topic, code) for topic, _, code, _ in summary.partitions]
        self._traffic.answered(PRODUCE, summary.throttle, found, peer.client_id, event.at)

    def _wrote(
        self, request: ProduceSummary, errors: dict[tuple[Topic, int], int], client_id: str, at: float
    ) -> None:
        """Count what a Produce request has written, and apart from that what the broker has refused."""
        for topic, partition, size in request.sizes:
            if errors.get((self._topics.resolve(topic), partition)):
                self._traffic.refused(topic, client_id, size)
            else:
                self._traffic.talked(topic, client_id, size, written=True)
                self._topics.used(topic, client_id, at, written=True)

    def share_answered(self, event: events.ShareAnswered) -> None:
        """Take a ShareFetch or ShareAcknowledge response."""
        connection = self._connections.get(event.connection, event.at)
        peer, summary = connection.peer, event.summary
        asked = connection.pending.pop(event.number)
        if asked is not None:
            self._shares.answered(event.at, peer, asked[1], summary)
        for topic, size in summary.sizes:
            self._topics.used(topic, peer.client_id, event.at, written=False)
            self._traffic.talked(topic, peer.client_id, size, written=False)
        found: list[tuple[Topic, int]] = [("", summary.error)]
        found += [(topic, code) for topic, _, code in summary.errors]
        self._traffic.answered(event.key, summary.throttle, found, peer.client_id, event.at)


__all__ = ["RecordTraffic"]
