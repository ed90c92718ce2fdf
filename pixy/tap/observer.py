"""Build a picture of the cluster from events, and return snapshots of it. No IO, no clock."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, Final

from pixy.tap import described, events
from pixy.tap.apis import CAPTURED_REQUESTS
from pixy.tap.classic import ClassicGroups
from pixy.tap.config import TapConfig
from pixy.tap.connections import Connection, Connections
from pixy.tap.described import Described
from pixy.tap.findings import Findings
from pixy.tap.group_view import describe
from pixy.tap.heartbeats import ConsumerGroups
from pixy.tap.inventory import Inventory
from pixy.tap.latency import Latency, api_name
from pixy.tap.lenient import decode_response
from pixy.tap.offsets import Offsets
from pixy.tap.record_traffic import RecordTraffic
from pixy.tap.registry import Peer, Registry
from pixy.tap.sampling import Sampling
from pixy.tap.sequences import Sequences
from pixy.tap.shares import ShareGroups
from pixy.tap.streams import StreamsGroups
from pixy.tap.topics import Topics
from pixy.tap.traffic import Traffic, errors_in
from pixy.wire import frames, schema
from pixy.wire.exceptions import WireError

Body = dict[str, Any]
Output = Callable[[dict[str, Any]], None]

LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, JOIN, HEARTBEAT = 2, 3, 8, 9, 11, 12
LEAVE, SYNC, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS, INIT_PRODUCER, END_TXN = 13, 14, 18, 19, 20, 22, 26
TXN_OFFSET_COMMIT, DELETE_GROUPS, OFFSET_DELETE, GROUP_HEARTBEAT, DESCRIBE_TOPICS = 28, 42, 47, 68, 75
SHARE_HEARTBEAT, STREAMS_HEARTBEAT = 76, 88
UNSUPPORTED_VERSION: Final = 35


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
        self.shares = ShareGroups(self.registry)
        self.streams = StreamsGroups(self.registry)
        self.described = Described(self.registry)
        self.latency = Latency()
        self.sampling = Sampling()
        self.traffic = Traffic(self.topics, self.sampling)
        self.findings = Findings(self.registry, self.traffic)
        self.offsets = Offsets(self.registry, self.classic)
        self.inventory = Inventory(config.bounds.software)
        self.sequences = Sequences(config.bounds.partitions)
        self.connections = Connections(config.bounds, self.topics)
        records = RecordTraffic(
            self.connections,
            self.topics,
            self.traffic,
            self.offsets,
            self.shares,
            self.sequences,
            self._emit,
        )
        self.counts: Counter[str] = Counter()
        self.requests: Counter[int] = Counter()
        self.seconds: defaultdict[int, float] = defaultdict(float)
        self._of_member: dict[int, Callable[[float, Peer, Body, Body], None]] = {
            SYNC: self.classic.synced,
            HEARTBEAT: self.classic.heartbeat,
            LEAVE: self.classic.left,
            GROUP_HEARTBEAT: self.heartbeats.heartbeat,
            SHARE_HEARTBEAT: self.shares.heartbeat,
            STREAMS_HEARTBEAT: self.streams.heartbeat,
        }
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            events.Opened: self._opened,
            events.Closed: self._closed,
            events.RequestCaptured: self._request,
            events.ResponseCaptured: self._response,
            events.ProduceSeen: records.produced,
            events.FetchRequestSeen: records.fetch_requested,
            events.FetchResponseSeen: records.fetched,
            events.ProduceAnswered: records.produce_answered,
            events.ShareAnswered: records.share_answered,
            events.SlowSeen: self._slow,
            events.CommitsVerified: self._commits_verified,
            events.EndsVerified: self._ends_verified,
            events.VerifyFailed: self._verify_failed,
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
        self.findings.tick(at, self._emit)

    def _emit(self, event: str, at: float, **fields: Any) -> None:
        if self._output is not None:
            self._output({"time": round(at, 3), "event": event, **fields})

    # -- connections -------------------------------------------------------------------------------

    def _opened(self, event: events.Opened) -> None:
        connection = self.connections.get(event.connection, event.at)
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
        connection = self.connections.end(event.connection)
        self.registry.disconnected(event.connection, event.at)
        fields: dict[str, Any] = {}
        if connection is not None:
            self._count_in(connection)
            fields = {"client": connection.peer.client, "client_id": connection.peer.client_id}
        if event.unreached:
            self.findings.unreached(event.unreached, event.reason, event.at)
        self._emit("connection.closed", event.at, connection=event.connection, **fields, reason=event.reason)

    def _opaque(self, event: events.Opaque) -> None:
        self.connections.get(event.connection, event.at).opaque = event.reason
        self._emit("opaque", event.at, connection=event.connection, reason=event.reason)

    def _tally(self, event: events.Tally) -> None:
        connection = self.connections.get(event.connection, event.at)
        connection.counts.update(event.counts)
        self.counts.update(event.counts)
        self.sampling.add(event.requests, event.sampled)
        known = schema.keys()
        for (key, _), count in event.requests.items():
            self.requests[key if key in known else -1] += count
        for key, seconds in event.seconds.items():
            self.seconds[key if key in known else -1] += seconds
        if event.queues:
            self.latency.add_queues(event.queues, event.queue_seconds, event.held)
        if event.latency:
            self.latency.add(event.latency, event.seconds, connection.peer.broker, connection.peer.client_id)
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
        connection = self.connections.get(event.connection, event.at)
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
        connection = self.connections.get(event.connection, event.at)
        asked = connection.pending.pop(event.number)
        _, body, _ = decode_response(event.frame, event.key, event.version)
        peer = connection.peer
        self.traffic.answered(
            event.key, body.get("ThrottleTimeMs", 0), errors_in(body), peer.client_id, event.at
        )
        if event.key in {METADATA, CREATE_TOPICS, DESCRIBE_TOPICS}:
            self.offsets.forget_topics(self.topics.learn(body["Topics"]))
        elif event.key == DELETE_TOPICS:
            self._topics_deleted(body)
        elif event.key == DELETE_GROUPS:
            for each in body["Results"]:
                if not each["ErrorCode"]:
                    self.registry.deleted(each["GroupId"], event.at)
        elif event.key in described.KEYS:
            self.described.described(event.at, None if asked is None else asked[0], event.key, body)
        elif event.key == API_VERSIONS:
            if body["ErrorCode"] == UNSUPPORTED_VERSION:
                self.counts["api_versions_fallbacks"] += 1
        elif event.key in CAPTURED_REQUESTS:
            if asked is not None:
                self._pair(event.at, peer, event.key, asked, body)
            else:
                self.counts["unpaired"] += 1

    def _topics_deleted(self, body: Body) -> None:
        for each in body["Responses"]:
            topic = each.get("Name") or self.topics.resolve(each.get("TopicId") or "")
            if not each["ErrorCode"] and isinstance(topic, str) and topic:
                self.topics.forget(topic)
                self.offsets.forget_topics([topic])

    def _pair(self, at: float, peer: Peer, key: int, asked: tuple[float, Body], body: Body) -> None:
        asked_at, request = asked
        if key == JOIN:
            self.classic.joined(at, peer, request, body, asked_at)
        elif key == OFFSET_COMMIT:
            self.offsets.committed(at, asked_at, peer, request, body)
        elif key == LIST_OFFSETS:
            self.offsets.listed(at, asked_at, peer, request, body)
        elif key == OFFSET_FETCH:
            self.offsets.fetched(at, asked_at, request, body)
        elif key == TXN_OFFSET_COMMIT:
            self.offsets.committed_in_transaction(request, body)
        elif key == END_TXN:
            self.offsets.ended_transaction(at, request, body)
        elif key == INIT_PRODUCER:
            self.offsets.transactions.begin(request, body)
        elif key == OFFSET_DELETE:
            self.offsets.deleted(request, body)
        else:
            self._of_member[key](at, peer, request, body)

    def _slow(self, event: events.SlowSeen) -> None:
        peer = self.connections.get(event.connection, event.at).peer
        fields = {
            "api": api_name(event.key),
            "version": event.version,
            "seconds": round(event.seconds, 3),
            "tap_seconds": round(event.queued, 3),
            "client_id": peer.client_id or event.client_id,
            "client": peer.client,
            "broker": peer.broker,
        }
        self.traffic.late({"time": round(event.at, 3), **fields})
        self._emit("slow", event.at, **fields)

    # -- the tap's own questions (--verify) ----------------------------------------------------------

    def _commits_verified(self, event: events.CommitsVerified) -> None:
        wrong = self.offsets.verified(event.at, event.asked, event.group, event.offsets)
        self.counts["verified"] += 1
        self.counts["corrected_commits"] += wrong

    def _ends_verified(self, event: events.EndsVerified) -> None:
        self.counts["corrected_ends"] += self.offsets.ends_verified(event.at, event.asked, event.ends)

    def _verify_failed(self, event: events.VerifyFailed) -> None:
        self.counts["verify_failed"] += 1
        self._emit("verify.failed", event.at, about=event.about, error=event.error)

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
            "findings": [
                each
                for each in self.findings.to_json(now)
                if group is None or each["where"].get("group") == group
            ],
        }

    def usage(self) -> list[dict[str, Any]]:
        """List topics with their readers and writers, by name."""
        self.connections.settle_all()
        return self.topics.usage()

    def totals(self) -> dict[str, Any]:
        """Return all counters, as ``counts`` of a snapshot."""
        forgotten = {
            **self.registry.forgotten(),
            **self.topics.forgotten(),
            "software": self.inventory.forgotten,
            "sequences": self.sequences.forgotten,
            "connections": self.connections.forgotten,
            "latencies": self.latency.forgotten,
            "traffic": self.traffic.forgotten,
            "transactions": self.offsets.transactions.forgotten,
        }
        return {
            **self.counts,
            "sampling": self.sampling.to_json(),
            "open_connections": len(self.connections),
            "batches": self.sequences.batches,
            "sequence_gaps": self.sequences.gaps,
            "sequence_repeats": self.sequences.repeats,
            "forgotten": {kind: count for kind, count in forgotten.items() if count},
        }
