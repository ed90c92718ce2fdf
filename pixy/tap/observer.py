"""Build a picture of the cluster from events, and return snapshots of it. No IO, no clock."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from pixy.tap import events
from pixy.tap.classic import ClassicGroups
from pixy.tap.config import TapConfig
from pixy.tap.group_view import describe
from pixy.tap.heartbeats import ConsumerGroups
from pixy.tap.inventory import Inventory
from pixy.tap.lenient import decode_response
from pixy.tap.lru import LruDict
from pixy.tap.offsets import Offsets
from pixy.tap.partial_decoders import Topic
from pixy.tap.registry import Peer, Registry
from pixy.tap.sequences import Sequences
from pixy.tap.topics import Topics
from pixy.wire import frames, schema
from pixy.wire.exceptions import WireError

Body = dict[str, Any]
Output = Callable[[dict[str, Any]], None]

LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, JOIN, HEARTBEAT, LEAVE, SYNC = 2, 3, 8, 9, 11, 12, 13, 14
API_VERSIONS, CREATE_TOPICS, GROUP_HEARTBEAT, DESCRIBE_TOPICS = 18, 19, 68, 75
UNSUPPORTED_VERSION: Final = 35
_SESSION_PARTITIONS: Final = 10_000


@dataclass(slots=True)
class Connection:
    """An open connection."""

    peer: Peer
    opened: float
    pending: LruDict[int, tuple[float, Body]]
    """Requests that wait for their response: number to (time, body)."""
    counts: Counter[str] = field(default_factory=Counter)
    opaque: str = ""
    fetching: LruDict[tuple[Topic, int], int] = field(default_factory=lambda: LruDict(_SESSION_PARTITIONS))
    """The fetch session (KIP-227): partition to the offset that the client requested last."""
    counted: bool = False
    """Whether the inventory has counted it."""


class Observer:
    """Call :meth:`take` with each event, :meth:`tick` about once a second, and :meth:`snapshot` to read the state.

    Args:
        config: limits and the session timeout.
        output: receives each event for people as JSON; None for none.
    """

    def __init__(self, config: TapConfig, output: Output | None = None) -> None:
        self.config = config
        self._output = output
        self.topics = Topics(config.bounds)
        self.registry = Registry(config, self.topics, self._emit)
        self.classic = ClassicGroups(self.registry)
        self.heartbeats = ConsumerGroups(self.registry)
        self.offsets = Offsets(self.registry, self.classic)
        self.inventory = Inventory(config.bounds.software)
        self.sequences = Sequences(config.bounds.partitions)
        self.connections: LruDict[int, Connection] = LruDict(config.bounds.connections * 2)
        self.counts: Counter[str] = Counter()
        self.requests: Counter[int] = Counter()
        self.seconds: defaultdict[int, float] = defaultdict(float)
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            events.Opened: self._opened,
            events.Closed: self._closed,
            events.RequestCaptured: self._request,
            events.ResponseCaptured: self._response,
            events.ProduceSeen: self._produced,
            events.FetchRequestSeen: self._fetch_request,
            events.FetchResponseSeen: self._fetched,
            events.Opaque: self._opaque,
            events.Tally: self._tally,
            events.EventsLost: self._lost,
        }

    def take(self, event: events.Event) -> None:
        """Process one event. Never raises: errors are counted."""
        try:
            self._handlers[type(event)](event)
        except WireError:
            self.counts["undecodable"] += 1
        except Exception as error:  # a defect must not stop the observer
            self.counts["defects"] += 1
            self._emit("defect", event.at, detail=repr(error))

    def tick(self, at: float) -> None:
        """Time out members and update anomalies.

        Args:
            at: the current time in seconds since the epoch.
        """
        self.registry.tick(at)

    def _emit(self, event: str, at: float, **fields: Any) -> None:
        if self._output is not None:
            self._output({"time": round(at, 3), "event": event, **fields})

    def _connection(self, number: int, at: float) -> Connection:
        limit = self.config.bounds.in_flight
        return self.connections.get_or_create(number, lambda: Connection(Peer(number), at, LruDict(limit)))

    # -- connections -------------------------------------------------------------------------------

    def _opened(self, event: events.Opened) -> None:
        connection = self._connection(event.connection, event.at)
        connection.peer.client, connection.peer.broker = event.client, event.broker
        self.counts["connections"] += 1
        self._emit(
            "connection.opened",
            event.at,
            connection=event.connection,
            client=event.client,
            broker=event.broker,
        )

    def _closed(self, event: events.Closed) -> None:
        connection = self.connections.pop(event.connection)
        self.registry.disconnected(event.connection, event.at)
        fields: dict[str, Any] = {}
        if connection is not None:
            self._count_in(connection)
            fields = {"client": connection.peer.client, "client_id": connection.peer.client_id}
        self._emit("connection.closed", event.at, connection=event.connection, **fields, reason=event.reason)

    def _opaque(self, event: events.Opaque) -> None:
        self._connection(event.connection, event.at).opaque = event.reason
        self._emit("opaque", event.at, connection=event.connection, reason=event.reason)

    def _tally(self, event: events.Tally) -> None:
        connection = self._connection(event.connection, event.at)
        connection.counts.update(event.counts)
        self.counts.update(event.counts)
        known = schema.keys()
        for (key, _), count in event.requests.items():
            self.requests[key if key in known else -1] += count
        for key, seconds in event.seconds.items():
            self.seconds[key if key in known else -1] += seconds
        if event.requests:
            self._count_in(connection)
            self.inventory.sent(connection.peer.software, connection.peer.client_id, dict(event.requests))

    def _count_in(self, connection: Connection) -> None:
        if not connection.counted:
            connection.counted = True
            self.inventory.connected(connection.peer.software)

    def _lost(self, event: events.EventsLost) -> None:
        self.counts["lost_events"] += event.events
        self.sequences.clear()
        for number in [each for each in self.connections if each not in event.open]:
            self._closed(events.Closed(number, event.at, "closed while the tap was behind"))
        self._emit("lost", event.at, events=event.events)

    # -- frames ------------------------------------------------------------------------------------

    def _request(self, event: events.RequestCaptured) -> None:
        connection = self._connection(event.connection, event.at)
        peer = connection.peer
        request = frames.decode_request(event.frame)
        if request.header.client_id:
            peer.client_id = request.header.client_id
        connection.pending[event.number] = (event.at, request.body)
        if event.key == JOIN:
            self.classic.join_requested(event.at, peer, event.version, request.body)
        elif event.key == API_VERSIONS and event.version >= 3:
            name, version = request.body["ClientSoftwareName"], request.body["ClientSoftwareVersion"]
            if name and peer.software == ("unknown", ""):
                peer.software = (name[:100], version[:100])
                self._emit(
                    "client",
                    event.at,
                    connection=event.connection,
                    client=peer.client,
                    client_id=peer.client_id,
                    software=name[:100],
                    version=version[:100],
                )

    def _response(self, event: events.ResponseCaptured) -> None:
        connection = self._connection(event.connection, event.at)
        asked = connection.pending.pop(event.number)
        _, body, _ = decode_response(event.frame, event.key, event.version)
        if event.key in {METADATA, CREATE_TOPICS, DESCRIBE_TOPICS}:
            self.topics.learn(body["Topics"])
        elif event.key == API_VERSIONS:
            if body["ErrorCode"] == UNSUPPORTED_VERSION:
                self.counts["api_versions_fallbacks"] += 1
        elif asked is not None:
            self._pair(event.at, connection.peer, event.key, asked, body)
        else:
            self.counts["unpaired"] += 1

    def _pair(self, at: float, peer: Peer, key: int, asked: tuple[float, Body], body: Body) -> None:
        asked_at, request = asked
        if key == JOIN:
            self.classic.joined(at, peer, request, body, asked_at)
        elif key == SYNC:
            self.classic.synced(at, peer, request, body)
        elif key == HEARTBEAT:
            self.classic.heartbeat(at, peer, request, body)
        elif key == LEAVE:
            self.classic.left(at, peer, request, body)
        elif key == GROUP_HEARTBEAT:
            self.heartbeats.heartbeat(at, peer, request, body)
        elif key == OFFSET_COMMIT:
            self.offsets.committed(at, peer, request, body)
        elif key == OFFSET_FETCH:
            self.offsets.fetched(at, request, body)
        elif key == LIST_OFFSETS:
            self.offsets.listed(request, body)

    # -- Produce and Fetch -------------------------------------------------------------------------

    def _produced(self, event: events.ProduceSeen) -> None:
        peer = self._connection(event.connection, event.at).peer
        peer.client_id = event.client_id or peer.client_id
        for topic in event.summary.topics:
            self.topics.used(topic, event.client_id, event.at, written=True)
        if not event.summary.complete:
            self.sequences.clear()
        for batch in event.summary.batches:
            gap = self.sequences.check(batch)
            if gap is not None:
                self._emit(
                    "sequence.gap",
                    event.at,
                    topic=self.topics.show(gap.topic),
                    partition=gap.partition,
                    producer_id=gap.producer_id,
                    epoch=gap.epoch,
                    expected=gap.expected,
                    found=gap.found,
                    client_id=event.client_id,
                )

    def _fetch_request(self, event: events.FetchRequestSeen) -> None:
        connection = self._connection(event.connection, event.at)
        connection.peer.client_id = event.client_id or connection.peer.client_id
        request = event.summary
        if request.replica:
            return
        if request.epoch <= 0:  # a full fetch begins a session (0) or is outside of any (-1)
            connection.fetching.clear()
        for topic, partition, offset in request.wanted:
            connection.fetching[topic, partition] = offset
        for each in request.forgotten:
            connection.fetching.pop(each)
        for topic in {topic for topic, _, _ in request.wanted}:
            self.topics.used(topic, event.client_id, event.at, written=False)

    def _fetched(self, event: events.FetchResponseSeen) -> None:
        for topic, partition, end in event.summary.ends:
            self.topics.set_end(topic, partition, end)

    # -- views -------------------------------------------------------------------------------------

    def snapshot(self, now: float, group: str | None = None) -> dict[str, Any]:
        """Describe all groups and the counters as JSON.

        Args:
            now: the current time in seconds since the epoch.
            group: describe this group only.
        """
        groups = [each for each in self.registry.groups.values() if group is None or each.id == group]
        return {
            "time": round(now, 3),
            "groups": [describe(each, self.topics, now) for each in sorted(groups, key=lambda each: each.id)],
            "counts": self.totals(),
        }

    def totals(self) -> dict[str, Any]:
        """Return all counters, as ``counts`` of a snapshot."""
        forgotten = {
            **self.registry.forgotten(),
            **self.topics.forgotten(),
            "software": self.inventory.forgotten,
            "sequences": self.sequences.forgotten,
            "connections": self.connections.forgotten,
        }
        return {
            **self.counts,
            "open_connections": len(self.connections),
            "batches": self.sequences.batches,
            "sequence_gaps": self.sequences.gaps,
            "sequence_repeats": self.sequences.repeats,
            "forgotten": {kind: count for kind, count in forgotten.items() if count},
        }

    def describe_connections(self, now: float) -> list[dict[str, Any]]:
        """Describe the open connections, oldest first."""
        return [
            {
                "connection": number,
                "client": each.peer.client,
                "broker": each.peer.broker,
                "client_id": each.peer.client_id,
                "software": each.peer.software_text,
                "opaque": each.opaque or None,
                "seconds": round(now - each.opened, 3),
                "counts": dict(each.counts),
                "fetching": self._fetching(each),
            }
            for number, each in sorted(self.connections.items(), key=lambda entry: entry[0])
        ]

    def _fetching(self, connection: Connection) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for (topic, partition), offset in connection.fetching.items():
            found.setdefault(self.topics.show(topic), {})[str(partition)] = offset
        return found
