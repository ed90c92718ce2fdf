"""A stage for crafted traffic: clients whose frames pass through conversations into an observer, in virtual time."""

from __future__ import annotations

from typing import Any

from pixy.tap import events
from pixy.tap.config import Bounds, TapConfig
from pixy.tap.conversation import Conversation, Rewrite
from pixy.tap.observer import Observer
from pixy.wire import frames
from pixy.wire.consumer_protocol import encode_assignment, encode_subscription

Body = dict[str, Any]


def forward(stream: Any, data: bytes, step: int = 0) -> bytes:
    """Feed ``data`` to a stream in chunks of ``step`` bytes (0: at once); return a copy of what it forwards."""
    step = step or len(data) or 1
    out = bytearray()
    for at in range(0, len(data), step):
        for part in stream.feed(memoryview(bytearray(data[at : at + step]))):
            out += part
    return bytes(out)


class Client:
    """A client with one connection."""

    def __init__(
        self,
        stage: Stage,
        number: int,
        client_id: str,
        software: tuple[str, str] | None,
        rewrite: Rewrite | None,
    ) -> None:
        self.stage, self.number, self.client_id = stage, number, client_id
        self.conversation = Conversation(number, stage, lambda: stage.now, stage.config.bounds, rewrite)
        self.correlation_id = 0
        self.waiting: dict[int, tuple[str, int]] = {}
        stage.put(events.Opened(number, stage.now, f"10.0.0.{number}:5000{number}", "kafka:9092"))
        if software is not None:
            self.call(
                "ApiVersions",
                3,
                {"ClientSoftwareName": software[0], "ClientSoftwareVersion": software[1]},
                {},
            )

    def ask(self, api: str, version: int, body: Body, step: int = 0) -> int:
        """Send a request and return its correlation id."""
        self.correlation_id += 1
        frame = frames.encode_request(api, version, self.correlation_id, self.client_id, body)
        assert forward(self.conversation.to_broker, frame, step) == frame
        self.waiting[self.correlation_id] = (api, version)
        return self.correlation_id

    def answer(self, correlation_id: int, body: Body, step: int = 0) -> None:
        """Send the broker's response to a request."""
        api, version = self.waiting.pop(correlation_id)
        frame = frames.encode_response(api, version, correlation_id, body)
        assert forward(self.conversation.to_client, frame, step) == frame

    def call(self, api: str, version: int, request: Body, response: Body) -> None:
        """Send a request and its response."""
        self.answer(self.ask(api, version, request), response)

    def close(self, reason: str = "closed") -> None:
        self.tally()
        self.stage.put(events.Closed(self.number, self.stage.now, reason))

    def tally(self) -> None:
        found = self.conversation.tally()
        if found is not None:
            self.stage.put(found)


class Stage:
    """An observer, its clock, and the sink of its clients' events."""

    def __init__(self, **bounds: int) -> None:
        self.config = TapConfig((("kafka", 9092),), bounds=Bounds(**bounds))
        self.now = 1_000_000.0
        self.events: list[Body] = []
        self.observer = Observer(self.config, self.events.append)
        self.taken: list[events.Event] = []
        self.room = True

    def put(self, event: events.Event) -> None:
        self.taken.append(event)
        self.observer.take(event)

    def reserve(self, size: int) -> bool:
        return self.room

    def unreserve(self, size: int) -> None:
        assert size >= 0

    def client(
        self, client_id: str = "app", software: tuple[str, str] | None = None, rewrite: Rewrite | None = None
    ) -> Client:
        return Client(
            self,
            len([e for e in self.taken if isinstance(e, events.Opened)]) + 1,
            client_id,
            software,
            rewrite,
        )

    def wait(self, seconds: float) -> None:
        """Advance the clock and tick the observer."""
        self.now += seconds
        self.observer.tick(self.now)

    def topic(self, client: Client, name: str, partitions: int, topic_id: Any = None) -> None:
        """Send a Metadata response that describes a topic."""
        body: Body = {"Name": name, "Partitions": [{"PartitionIndex": i} for i in range(partitions)]}
        if topic_id is not None:
            body["TopicId"] = topic_id
        client.call("Metadata", 12, {"Topics": []}, {"Topics": [body]})

    def group(self, name: str = "g") -> Body:
        found = self.observer.snapshot(self.now, name)["groups"]
        return found[0] if found else {}

    def told(self, event: str) -> list[Body]:
        return [each for each in self.events if each["event"] == event]

    def timeline(self, name: str = "g") -> list[Body]:
        return self.observer.registry.timeline.to_json(self.now, name)


def subscription(*topics: str) -> bytes:
    return encode_subscription(1, {"Topics": list(topics), "OwnedPartitions": []})


def assignment(**partitions: list[int]) -> bytes:
    return encode_assignment(
        1, {"AssignedPartitions": [{"Topic": t, "Partitions": p} for t, p in partitions.items()]}
    )


class Joiner:
    """A classic member that behaves as clients do."""

    def __init__(
        self, client: Client, group: str = "g", join: int = 5, sync: int = 3, **request: Any
    ) -> None:
        self.client, self.group, self.join_version, self.sync_version = client, group, join, sync
        self.member_id = ""
        self.generation = -1
        self.request = (
            {
                "GroupId": group,
                "SessionTimeoutMs": 10_000,
                "ProtocolType": "consumer",
                "Protocols": [{"Name": "range", "Metadata": subscription("t")}],
            }
            | ({"RebalanceTimeoutMs": 60_000} if join >= 1 else {})
            | request
        )

    def first(self, member_id: str) -> None:
        """Send the first JoinGroup, in which the coordinator tells the member its id."""
        self.client.call(
            "JoinGroup",
            self.join_version,
            {**self.request, "MemberId": ""},
            {
                "ErrorCode": 79,
                "ProtocolName": "",
                "Leader": "",
                "MemberId": member_id,
                "Members": [],
            },
        )
        self.member_id = member_id

    def ask_join(self) -> int:
        return self.client.ask("JoinGroup", self.join_version, {**self.request, "MemberId": self.member_id})

    def joined(
        self,
        asked: int,
        generation: int,
        member_id: str,
        leader: str,
        members: list[str] | None = None,
        **more: Any,
    ) -> None:
        self.member_id, self.generation = member_id, generation
        self.client.answer(
            asked,
            {
                "GenerationId": generation,
                "ProtocolName": self.request["Protocols"][0]["Name"],
                "Leader": leader,
                "MemberId": member_id,
                "Members": [{"MemberId": each, "Metadata": subscription("t")} for each in members or []],
                **more,
            },
        )

    def ask_sync(self, assignments: dict[str, bytes] | None = None, **more: Any) -> int:
        return self.client.ask(
            "SyncGroup",
            self.sync_version,
            {
                "GroupId": self.group,
                "GenerationId": self.generation,
                "MemberId": self.member_id,
                "Assignments": [{"MemberId": m, "Assignment": a} for m, a in (assignments or {}).items()],
                **more,
            },
        )

    def synced(self, asked: int, given: bytes, **more: Any) -> None:
        self.client.answer(asked, {"Assignment": given, **more})

    def heartbeat(self, error: int = 0) -> None:
        self.client.call(
            "Heartbeat",
            3,
            {
                "GroupId": self.group,
                "GenerationId": self.generation,
                "MemberId": self.member_id,
            },
            {"ErrorCode": error},
        )

    def leave(self, **more: Any) -> None:
        self.client.call(
            "LeaveGroup",
            5 if more else 4,
            {
                "GroupId": self.group,
                "Members": [{"MemberId": self.member_id, **more}],
            },
            {"Members": [{"MemberId": self.member_id, "GroupInstanceId": None}]},
        )


def settle(generation: int, given: dict[Joiner, tuple[str, bytes]]) -> None:
    """Make all members join and sync; the first one leads."""
    leader = next(iter(given))
    asked = {member: member.ask_join() for member in given}
    ids = {member: member_id for member, (member_id, _) in given.items()}
    for member, number in asked.items():
        members = list(ids.values()) if member is leader else []
        member.joined(number, generation, ids[member], ids[leader], members)
    plan = dict(given.values())
    synced = {member: member.ask_sync(plan if member is leader else None) for member in given}
    for member, number in synced.items():
        member.synced(number, given[member][1])
