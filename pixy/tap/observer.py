"""What a cluster's traffic says, put together: takes events, answers with snapshots. No IO, no clock."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from pixy.tap import events
from pixy.tap.classic import ClassicGroups
from pixy.tap.config import TapConfig
from pixy.tap.heartbeats import ConsumerGroups
from pixy.tap.inventory import Inventory
from pixy.tap.lenient import decode_response
from pixy.tap.lru import LruDict
from pixy.tap.offsets import Offsets
from pixy.tap.partial_decoders import Topic
from pixy.tap.registry import Peer, Registry, describe
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
    """A connection that is open."""

    peer: Peer
    opened: float
    asked: LruDict[int, tuple[float, Body]]
    """Requests that wait for their answer, by number: when they came, body."""
    counts: Counter[str] = field(default_factory=Counter)
    opaque: str = ""
    fetching: LruDict[tuple[Topic, int], int] = field(default_factory=lambda: LruDict(_SESSION_PARTITIONS))
    """Where the fetch session is: partition to the offset that was asked for last (KIP-227)."""
    counted: bool = False
    """Whether it is in the inventory."""


class Observer:
    """Call :meth:`take` with each event, :meth:`tick` now and then, and :meth:`snapshot` when somebody asks."""

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
        self._takers: dict[type[Any], Callable[[Any], None]] = {
            events.Opened: self._opened,
            events.Closed: self._closed,
            events.RequestCaptured: self._asked,
            events.ResponseCaptured: self._answered,
            events.ProduceSeen: self._produced,
            events.FetchRequestSeen: self._fetch_asked,
            events.FetchResponseSeen: self._fetched,
            events.Opaque: self._opaque,
            events.Tally: self._tally,
            events.EventsLost: self._lost,
        }

    def take(self, event: events.Event) -> None:
        """Take in one event; never raises."""
        try:
            self._takers[type(event)](event)
        except WireError:
            self.counts["undecodable"] += 1
        except Exception as error:  # a defect here must not end the watching
            self.counts["defects"] += 1
            self._emit("defect", event.at, detail=repr(error))

    def tick(self, at: float) -> None:
        """Time has passed."""
        self.registry.tick(at)

    def _emit(self, event: str, at: float, **fields: Any) -> None:
        if self._output is not None:
            self._output({"time": round(at, 3), "event": event, **fields})

    def _connection(self, number: int, at: float) -> Connection:
        limit = self.config.bounds.in_flight
        return self.connections.get_or_create(number, lambda: Connection(Peer(number), at, LruDict(limit)))

    # -- connections ------------------------------------------------------------------------------

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
            self._closed(events.Closed(number, event.at, "closed; the tap was behind"))
        self._emit("lost", event.at, events=event.events)

    # -- frames -----------------------------------------------------------------------------------

    def _asked(self, event: events.RequestCaptured) -> None:
        connection = self._connection(event.connection, event.at)
        peer = connection.peer
        request = frames.decode_request(event.frame)
        if request.header.client_id:
            peer.client_id = request.header.client_id
        connection.asked[event.number] = (event.at, request.body)
        if event.key == JOIN:
            self.classic.join_asked(event.at, peer, event.version, request.body)
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

    def _answered(self, event: events.ResponseCaptured) -> None:
        connection = self._connection(event.connection, event.at)
        asked = connection.asked.pop(event.number)
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
            self.classic.join_answered(at, peer, request, body, asked_at)
        elif key == SYNC:
            self.classic.sync_answered(at, peer, request, body)
        elif key == HEARTBEAT:
            self.classic.heartbeat_answered(at, peer, request, body)
        elif key == LEAVE:
            self.classic.leave_answered(at, peer, request, body)
        elif key == GROUP_HEARTBEAT:
            self.heartbeats.answered(at, peer, request, body)
        elif key == OFFSET_COMMIT:
            self.offsets.committed(at, peer, request, body)
        elif key == OFFSET_FETCH:
            self.offsets.fetched(at, request, body)
        elif key == LIST_OFFSETS:
            self.offsets.listed(request, body)

    # -- records' heads ---------------------------------------------------------------------------

    def _produced(self, event: events.ProduceSeen) -> None:
        peer = self._connection(event.connection, event.at).peer
        peer.client_id = event.client_id or peer.client_id
        for topic in event.summary.topics:
            self.topics.used(topic, event.client_id, event.at, written=True)
        if not event.summary.complete:
            self.sequences.clear()
        for batch in event.summary.batches:
            gap = self.sequences.see(batch)
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

    def _fetch_asked(self, event: events.FetchRequestSeen) -> None:
        connection = self._connection(event.connection, event.at)
        connection.peer.client_id = event.client_id or connection.peer.client_id
        ask = event.summary
        if ask.replica:
            return
        if ask.epoch <= 0:  # a full fetch: it begins a session, or is none (-1)
            connection.fetching.clear()
        for topic, partition, offset in ask.wanted:
            connection.fetching[topic, partition] = offset
        for each in ask.forgotten:
            connection.fetching.pop(each)
        for topic in {topic for topic, _, _ in ask.wanted}:
            self.topics.used(topic, event.client_id, event.at, written=False)

    def _fetched(self, event: events.FetchResponseSeen) -> None:
        for topic, partition, end in event.summary.ends:
            self.topics.set_end(topic, partition, end)

    # -- answers ----------------------------------------------------------------------------------

    def snapshot(self, now: float, group: str | None = None) -> dict[str, Any]:
        """All that is known, or of one group, as JSON: the same for every view."""
        groups = [each for each in self.registry.groups.values() if group is None or each.id == group]
        return {
            "time": round(now, 3),
            "groups": [describe(each, self.topics, now) for each in sorted(groups, key=lambda each: each.id)],
            "counts": self.totals(),
        }

    def totals(self) -> dict[str, Any]:
        """Counters."""
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
        """Open connections, the oldest first."""
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
