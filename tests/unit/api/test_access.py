"""No bypass: every route and RPC of every listener, with no, wrong, expired and insufficient credentials.

The listeners and the guard are real; behind the guard stands a client that does nothing but tell that a call has
reached it. So a call that is refused has not reached the engine, and one that is allowed has.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import aiohttp
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from pixy.api.handlers import Handlers
from pixy.api.openapi.document import load, resolve
from pixy.api.rest.router import ROUTES
from pixy.api.restv1.app import make_routes
from pixy.auth.audit import AuditLog
from pixy.auth.keys import make_key
from pixy.auth.limits import Limiter
from pixy.auth.principal import Caller, Principal, current
from pixy.auth.rules import Rules
from pixy.cli.serve import listeners
from pixy.config import App, Kafka, Proxy
from pixy.config.security import Audit, Limit, Rule
from pixy.engine.client import ClusterClient
from pixy.engine.cluster_admin import ClusterAdmin
from pixy.engine.engine import Engine
from pixy.engine.guarded import GuardedCluster
from pixy.engine.guarded_admin import GuardedAdmin
from pixy.engine.guarded_instances import GuardedInstances
from pixy.engine.instances.client import InstanceClient
from pixy.errors import Unauthenticated, Unavailable, UnknownInstance
from pixy.kafka.sandbox import Sandbox
from pixy.proto import kafkapixy_pb2 as pb
from pixy.proto.kafkapixy_pb2_grpc import KafkaPixyStub
from tests.contract import check_answer, operation_of
from tests.support import Answer, eventually

pytestmark = pytest.mark.filterwarnings("error::aiohttp.web_exceptions.NotAppKeyWarning")

T, G = "orders", "billing"
REACHED = 503

Need = tuple[str, str | None, str | None]
"""A verb, a topic and a group."""


@dataclass
class Row:
    """A request and the rights that it needs."""

    needs: Sequence[Need]
    body: Any = None
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    status: int = REACHED
    """Of an allowed request; other than 503 where the engine is not asked."""


NOTHING = ("admin", None, None)
"""A right on topics and groups that no request is about: some rule lets the caller into the cluster."""
PRODUCE, CONSUME, ACK = ("produce", T, None), ("consume", T, G), ("ack", T, G)
DESCRIBE, DESCRIBE_GROUP, ADMIN = ("describe", T, None), ("describe", T, G), ("admin", T, G)
JOIN, COMMIT = ("consume", None, G), ("ack", None, G)

RPCS: dict[str, tuple[Any, Sequence[Need]]] = {
    "Produce": (pb.ProdRq(topic=T, message=b"x"), [PRODUCE]),
    "ConsumeNAck": (pb.ConsNAckRq(topic=T, group=G, auto_ack=True), [CONSUME, ACK]),
    "Ack": (pb.AckRq(topic=T, group=G), [ACK]),
    "GetOffsets": (pb.GetOffsetsRq(topic=T, group=G), [DESCRIBE_GROUP]),
    "SetOffsets": (pb.SetOffsetsRq(topic=T, group=G), [ADMIN]),
    "ListTopics": (pb.ListTopicRq(), [("describe", None, None)]),
    "ListConsumers": (pb.ListConsumersRq(topic=T, group=G), [DESCRIBE_GROUP]),
    "GetTopicMetadata": (pb.GetTopicMetadataRq(topic=T), [DESCRIBE]),
    "ProduceMany": (pb.ProdManyRq(topic=T, records=[pb.Record(value=b"x")]), [PRODUCE]),
    "Fetch": (pb.FetchRq(topic=T), [("consume", T, None)]),
    "FindOffsets": (pb.FindOffsetsRq(topic=T, time=-1), [DESCRIBE]),
    "CreateTopic": (pb.CreateTopicRq(topic=T), [("admin", T, None)]),
    "AlterTopic": (pb.AlterTopicRq(topic=T, partitions=9), [("admin", T, None)]),
    "DeleteTopic": (pb.DeleteTopicRq(topic=T), [("admin", T, None)]),
    "ListGroups": (pb.ListGroupsRq(), [("describe", None, None)]),
    "DescribeGroup": (pb.DescribeGroupRq(group=G), [("describe", None, G)]),
    "DeleteGroup": (pb.DeleteGroupRq(group=G), [("admin", None, G)]),
}

PIXY: dict[tuple[str, str], Row] = {
    ("POST", "messages"): Row([PRODUCE], "x", "sync", {"Content-Type": "text/plain"}),
    ("GET", "messages"): Row([CONSUME, ACK], query=f"group={G}"),
    ("POST", "acks"): Row([ACK], query=f"group={G}&partition=0&offset=0"),
    ("GET", "offsets"): Row([DESCRIBE_GROUP], query=f"group={G}"),
    ("POST", "offsets"): Row([ADMIN], [], f"group={G}"),
    ("GET", "consumers"): Row([DESCRIBE_GROUP], query=f"group={G}"),
    ("GET", "{topic}"): Row([DESCRIBE]),
    ("GET", "topics"): Row([("describe", None, None)]),
    ("PUT", "{topic}"): Row([("admin", T, None)], {}),
    ("PATCH", "{topic}"): Row([("admin", T, None)], {"partitions": 9}),
    ("DELETE", "{topic}"): Row([("admin", T, None)]),
    ("GET", "positions"): Row([DESCRIBE], query="time=end"),
    ("GET", "groups"): Row([("describe", None, None)]),
    ("GET", "{group}"): Row([("describe", None, G)]),
    ("DELETE", "{group}"): Row([("admin", None, G)]),
}
"""Kafka-Pixy's own REST API, without ``_ping``, which is public, and ``_status``, which has a test of its own."""

JSON = {"Content-Type": "application/vnd.kafka.v2+json", "Accept": "application/vnd.kafka.v2+json"}
BINARY = {"Content-Type": "application/vnd.kafka.binary.v2+json"}
_AT = [{"topic": T, "partition": 0, "offset": 1}]
_OF = {"partitions": [{"topic": T, "partition": 0}]}
INSTANCE = "/consumers/{group}/instances/{instance}"
SHORT = "/consumers/{group}/{instance}"
V1: dict[tuple[str, str], Row] = {
    ("GET", "/"): Row([], status=200),
    ("POST", "/"): Row([], status=200),
    ("GET", "/openapi.json"): Row([], status=200),
    ("GET", "/docs"): Row([], status=200),
    ("GET", "/docs/viewer.js"): Row([], status=200),
    ("GET", "/brokers"): Row([("describe", None, None)]),
    ("GET", "/topics"): Row([("describe", None, None)]),
    ("GET", "/topics/{topic}"): Row([DESCRIBE]),
    ("POST", "/topics/{topic}"): Row([PRODUCE], {"records": [{"value": "eA=="}]}, headers=BINARY),
    ("GET", "/topics/{topic}/partitions"): Row([DESCRIBE]),
    ("GET", "/topics/{topic}/partitions/{partition}"): Row([DESCRIBE]),
    ("POST", "/topics/{topic}/partitions/{partition}"): Row(
        [PRODUCE], {"records": [{"value": "eA=="}]}, headers=BINARY
    ),
    ("GET", "/topics/{topic}/partitions/{partition}/offsets"): Row([DESCRIBE]),
    ("GET", "/topics/{topic}/partitions/{partition}/messages"): Row([("consume", T, None)], query="offset=0"),
    ("GET", "/topics/{topic}/partitions/{partition}/records"): Row([("consume", T, None)], query="offset=0"),
    ("GET", "/consume/{topic}/partitions/{partition}"): Row([("consume", T, None)], query="offset=0"),
    ("POST", "/consumers/{group}"): Row([JOIN, COMMIT], {}),
    ("GET", f"{INSTANCE}/topics/{{topic}}"): Row([CONSUME]),
    ("GET", f"{SHORT}/{{topic}}"): Row([CONSUME]),
    ("GET", f"{SHORT}/offsets"): Row([("consume", "offsets", G)]),
    ("DELETE", INSTANCE): Row([]),
    ("DELETE", SHORT): Row([]),
    ("POST", f"{INSTANCE}/offsets"): Row([ACK], {"offsets": _AT}),
    ("POST", f"{SHORT}/offsets"): Row([COMMIT]),
    ("GET", f"{INSTANCE}/records"): Row([JOIN]),
    ("GET", f"{INSTANCE}/offsets"): Row([DESCRIBE_GROUP], _OF),
    ("POST", f"{INSTANCE}/subscription"): Row([CONSUME], {"topics": [T]}),
    ("GET", f"{INSTANCE}/subscription"): Row([]),
    ("DELETE", f"{INSTANCE}/subscription"): Row([]),
    ("POST", f"{INSTANCE}/assignments"): Row([CONSUME], _OF),
    ("GET", f"{INSTANCE}/assignments"): Row([]),
    ("POST", f"{INSTANCE}/positions"): Row([CONSUME], {"offsets": _AT}),
    ("POST", f"{INSTANCE}/positions/beginning"): Row([CONSUME], _OF),
    ("POST", f"{INSTANCE}/positions/end"): Row([CONSUME], _OF),
}
PUBLIC = {("GET", "/healthy"), ("GET", "/ready")}


class Reached(Unavailable):
    """A call has come through."""


class Behind:
    """Stands in for a ClusterClient or an InstanceClient: every call that reaches it fails with :class:`Reached`."""

    def __init__(self, proxy: Proxy | None = None) -> None:
        self.proxy = proxy
        self.reached: list[str] = []
        self.instances: Any = None if proxy is None else Behind()
        self.admin: Any = None if proxy is None else Behind()

    def __getattr__(self, name: str) -> Any:
        async def reached(*_args: Any, **_named: Any) -> Any:
            if name == "find":
                return None
            self.reached.append(name)
            raise Reached(f"reached {name}")

        return reached


class Guarded:
    """A daemon with ``auth`` on, and its clients."""

    def __init__(self, engine: Engine, keys: dict[str, str], socket: Path) -> None:
        self.engine = engine
        self.keys = keys
        self.socket = socket
        self.behind: dict[str, Behind] = {}

    def stand_behind(self) -> None:
        for name, proxy in self.engine.config.proxies.items():
            self.behind[name] = Behind(proxy)
            self.engine._clusters[name] = self.behind[name]  # type: ignore[assignment]

    def allow(self, *rules: Rule) -> None:
        assert self.engine.guard is not None
        self.engine.guard.rules = Rules(rules, {})

    def reached(self) -> list[str]:
        found: list[str] = []
        for behind in self.behind.values():
            for part in (behind, behind.instances, behind.admin):
                found += part.reached
                part.reached.clear()
        return found


@pytest.fixture(scope="module")
def keys() -> dict[str, tuple[str, str]]:
    """A key for each case, with its line of the file."""
    made = {"right": make_key("app"), "expired": make_key("old", expires=1_000_000.0)}
    return {case: (key, stored.line()) for case, (key, stored) in made.items()}


@pytest.fixture
async def daemon(tmp_path: Path, keys: dict[str, tuple[str, str]]) -> AsyncIterator[Guarded]:
    file, socket = tmp_path / "keys", tmp_path / "s"
    file.write_text("\n".join(line for _, line in keys.values()))
    sandbox = Sandbox()
    config = App(
        grpc_addr="127.0.0.1:0",
        tcp_addr="127.0.0.1:0",
        unix_addr=str(socket),
        proxies={name: Proxy(kafka=Kafka(seed_peers=sandbox.seed_peers)) for name in ("main", "other")},
    )
    config.rest.addr = "127.0.0.1:0"
    config.auth.enabled = True
    config.auth.keys_file = str(file)
    engine = Engine(config)
    await engine.start(listeners(engine, config))
    before = dict(engine._clusters)
    found = Guarded(engine, {case: key for case, (key, _) in keys.items()} | {"wrong": "kp_nobody"}, socket)
    found.stand_behind()
    try:
        yield found
    finally:
        engine._clusters.update(before)
        await engine.stop()
        del sandbox


# -- which rights ---------------------------------------------------------------------------------


def rule(need: Need, **changed: list[str]) -> Rule:
    verb, topic, group = need
    made = Rule(
        who=["key:app"], verbs=[verb], clusters=["main"], topics=[topic or "any"], groups=[group or "any"]
    )
    for name, value in changed.items():
        setattr(made, name, value)
    return made


def lacking(needs: Sequence[Need]) -> Iterator[tuple[str, list[Rule]]]:
    """Sets of rules each of which lacks one thing that is needed."""
    for at, need in enumerate(needs):
        others = [rule(each) for each in (*needs[:at], *needs[at + 1 :])]
        verb, topic, group = need
        yield f"no {verb}", [*others, rule(need, verbs=["admin" if verb != "admin" else "describe"])]
        yield "another principal", [*others, rule(need, who=["key:else"])]
        yield "another cluster", [*others, rule(need, clusters=["other"])]
        if topic is not None:
            yield "another topic", [*others, rule(need, topics=[topic + "x", "o"])]
        if group is not None:
            yield "another group", [*others, rule(need, groups=[group + "x", "b"])]


# -- REST -----------------------------------------------------------------------------------------


@dataclass
class Rest:
    """One listener."""

    base: str
    connector: Any


def rest_requests(listener: str) -> list[tuple[str, str, str, Row]]:
    """Name, method, path and row of every request that a listener takes."""
    fill = {"topic": T, "group": G, "instance": "i", "partition": "0"}
    found = []
    if listener != "rest-v1":
        for (method, kind), row in PIXY.items():
            named = {"{topic}": f"/topics/{T}", "{group}": f"/groups/{G}"}
            path = named.get(kind, f"/{kind}" if kind in ("topics", "groups") else f"/topics/{T}/{kind}")
            found.append((f"{method} {kind}", method, path, row))
            found.append((f"{method} {kind} of main", method, "/clusters/main" + path, row))
    prefixes = [""] if listener == "rest-v1" else ["/rest"]
    for prefix in prefixes:
        for (method, template), row in V1.items():
            path = prefix + template.format(**fill)
            headers = (
                {**JSON, **row.headers}
                if template not in ("/docs", "/docs/viewer.js", "/openapi.json")
                else {}
            )
            sent = Row(row.needs, row.body, row.query, headers, row.status)
            found.append((f"{method} {prefix}{template}", method, path, sent))
    return found


async def ask(
    http: aiohttp.ClientSession, base: str, method: str, path: str, row: Row, key: str | None
) -> Answer:
    headers = dict(row.headers)
    if key is not None:
        headers["X-API-Key"] = key
    data = row.body if row.body is None or isinstance(row.body, str) else json.dumps(row.body)
    url = base + path + ("?" + row.query if row.query else "")
    async with http.request(method, url, data=data, headers=headers, allow_redirects=False) as answer:
        return Answer(answer.status, await answer.read(), answer.headers)


def check_documented(method: str, path: str, answer: Answer) -> None:
    """Fail unless the OpenAPI document has the answer of a refusal, with its headers."""
    path = path.removeprefix("/rest") or "/"
    check_answer(method, path, answer.status, answer.headers["Content-Type"], answer.json)
    documented = resolve(load(), operation_of(method, path)["responses"][str(answer.status)])
    sent = {"WWW-Authenticate", "Retry-After"} & set(answer.headers)
    assert sent <= set(documented.get("headers", ())), (method, path, answer.status)


def test_the_tables_name_every_route_and_rpc() -> None:
    assert set(RPCS) | {"GetStatus"} == set(Handlers(Mock()).methods())
    assert set(PIXY) | {("GET", "_ping"), ("GET", "_status")} == set(ROUTES)
    assert set(V1) | PUBLIC == {(route.method, route.template) for route in make_routes()}


def test_the_guard_has_every_operation_and_no_more() -> None:
    def operations(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")} - {"proxy", "instances", "admin"}

    # Workers hand acks on to each other when the guard has let them pass.
    assert operations(GuardedCluster) | {"ack_here"} == operations(ClusterClient)
    assert operations(GuardedAdmin) == operations(ClusterAdmin)
    # Nobody but the daemon itself counts instances.
    assert operations(GuardedInstances) | {"count"} == operations(InstanceClient)


@pytest.mark.parametrize("listener", ["rest", "rest-v1", "rest-unix"])
async def test_rest(daemon: Guarded, listener: str) -> None:
    if listener == "rest-unix":
        connector: Any = aiohttp.UnixConnector(str(daemon.socket))
        base = "http://localhost"
    else:
        connector, base = aiohttp.TCPConnector(), f"http://{daemon.engine.addresses[listener]}"
    async with aiohttp.ClientSession(connector=connector) as http:
        for name, method, path, row in rest_requests(listener):
            daemon.allow(*(rule(need) for need in row.needs), rule(NOTHING))
            for case in (None, "wrong", "expired"):
                answer = await ask(http, base, method, path, row, daemon.keys[case] if case else None)
                assert answer.status == 401, (name, case, answer)
                assert answer.headers["WWW-Authenticate"] == "Bearer"
                check_documented(method, path, answer)
            assert daemon.reached() == [], name
            for why, rules in lacking(row.needs):
                daemon.allow(*rules)
                answer = await ask(http, base, method, path, row, daemon.keys["right"])
                assert answer.status == 403, (name, why, answer)
                check_documented(method, path, answer)
                assert daemon.reached() == [], (name, why)
            daemon.allow(*(rule(need) for need in row.needs), rule(NOTHING))
            answer = await ask(http, base, method, path, row, daemon.keys["right"])
            assert answer.status == row.status, (name, answer)
            assert len(daemon.reached()) == (row.status == REACHED), name


async def test_an_answer_429_of_every_endpoint_is_documented(daemon: Guarded) -> None:
    assert daemon.engine.guard is not None
    async with aiohttp.ClientSession() as http:
        base, seen = f"http://{daemon.engine.addresses['rest']}", 0
        for _, method, path, row in rest_requests("rest"):
            daemon.engine.guard.limiter = Limiter(
                [Limit(["*"], requests_per_second=0.1)], {}, 100, lambda: 0.0
            )
            for _ in range(2):
                answer = await ask(http, base, method, path, row, daemon.keys["right"])
            if row.status == REACHED:
                assert (answer.status, answer.headers["Retry-After"]) == (429, "10"), (method, path)
                check_documented(method, path, answer)
                seen += 1
        assert seen > 50
        host = Row([], headers={"Host": "elsewhere.example"})
        for path in ("/_ping", "/healthy", "/ready", "/openapi.json"):
            answer = await ask(http, base, "GET", path, host, None)
            assert answer.status == 403
            check_documented("GET", path, answer)


async def test_rest_probes_and_unknown_paths(daemon: Guarded) -> None:
    async with aiohttp.ClientSession() as http:
        for listener in ("rest", "rest-v1"):
            base = f"http://{daemon.engine.addresses[listener]}"
            for path in ("/healthy", "/ready"):
                assert (await ask(http, base, "GET", path, Row([]), None)).status == 200
            for path in (
                "/nope",
                "/clusters/x/topics",
                "/consumers",
                "/metrics",
                "//topics",
                "/topics/../topics",
            ):
                assert (await ask(http, base, "GET", path, Row([]), None)).status == 401, path
                assert (await ask(http, base, "PATCH", path, Row([]), None)).status == 401, path
        assert (await ask(http, base.replace("v1", ""), "GET", "/healthy", Row([]), None)).status == 200
        base = f"http://{daemon.engine.addresses['rest']}"
        assert (await ask(http, base, "GET", "/_ping", Row([]), None)).body == b"pong"


async def test_one_connection_does_not_inherit_the_caller_of_an_earlier_request(daemon: Guarded) -> None:
    base = f"http://{daemon.engine.addresses['rest']}"
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as http:
        for _ in range(2):
            right = await ask(http, base, "GET", f"/topics/{T}", Row([]), daemon.keys["right"])
            assert right.status == REACHED
            assert (await ask(http, base, "GET", "/_ping", Row([]), None)).status == 200
            assert (await ask(http, base, "GET", f"/topics/{T}", Row([]), None)).status == 401


async def test_the_status_needs_a_caller_and_shows_the_clusters_that_he_may_use(daemon: Guarded) -> None:
    base = f"http://{daemon.engine.addresses['rest']}"
    daemon.allow(rule(DESCRIBE))
    right = (("x-api-key", daemon.keys["right"]),)
    async with aiohttp.ClientSession() as http:
        assert (await ask(http, base, "GET", "/_status", Row([]), None)).status == 401
        answer = await ask(http, base, "GET", "/_status", Row([]), daemon.keys["right"])
    assert answer.status == 200 and set(answer.json["clusters"]) == {"main"}
    async with grpc.aio.insecure_channel(daemon.engine.addresses["grpc"]) as channel:
        assert (await call(channel, "GetStatus", pb.GetStatusRq()))[0] is grpc.StatusCode.UNAUTHENTICATED
        assert (await call(channel, "GetStatus", pb.GetStatusRq(), *right))[0] is grpc.StatusCode.OK
        status = await KafkaPixyStub(channel).GetStatus(pb.GetStatusRq(), metadata=right)
    assert [each.cluster for each in status.clusters] == ["main"]


async def test_a_refusal_does_not_tell_whether_a_topic_or_cluster_exists(daemon: Guarded) -> None:
    base = f"http://{daemon.engine.addresses['rest']}"
    daemon.allow(rule(DESCRIBE))
    async with aiohttp.ClientSession() as http:
        texts = set()
        for path in (
            "/topics/there",
            "/topics/nowhere",
            "/clusters/other/topics/there",
            "/clusters/none/topics/there",
        ):
            answer = await ask(http, base, "GET", path, Row([]), daemon.keys["right"])
            assert answer.status == 403
            texts.add(answer.error.replace("nowhere", "there").replace("none", "other"))
    assert texts == {
        "key:app may not describe topic there in cluster main",
        "key:app may not use cluster other",
    }
    assert daemon.reached() == []


# -- gRPC -----------------------------------------------------------------------------------------


async def call(channel: Any, method: str, request: Any, *metadata: tuple[str, str]) -> tuple[Any, str]:
    rpc = channel.unary_unary(
        f"/KafkaPixy/{method}",
        request_serializer=type(request).SerializeToString,
        response_deserializer=bytes,
    )
    try:
        await rpc(request, metadata=metadata)
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    return grpc.StatusCode.OK, ""


async def test_grpc(daemon: Guarded) -> None:
    codes = grpc.StatusCode
    async with grpc.aio.insecure_channel(daemon.engine.addresses["grpc"]) as channel:
        for name, (request, needs) in RPCS.items():
            daemon.allow(*map(rule, needs))
            wrong: list[tuple[tuple[str, str], ...]] = [(), (("x-api-key", "kp_nobody"),)]
            wrong += [(("authorization", "Bearer kp_nobody"),), (("x-api-key", daemon.keys["expired"]),)]
            right = ("authorization", f"bearer {daemon.keys['right']}")
            wrong += [(right, right), (right, ("x-api-key", daemon.keys["right"]))]
            for metadata in wrong:
                assert (await call(channel, name, request, *metadata))[0] is codes.UNAUTHENTICATED, name
            for why, rules in lacking(needs):
                daemon.allow(*rules)
                assert (await call(channel, name, request, right))[0] is codes.PERMISSION_DENIED, (name, why)
            assert daemon.reached() == [], name
            daemon.allow(*map(rule, needs))
            assert (await call(channel, name, request, right))[0] is codes.UNAVAILABLE, name
            assert len(daemon.reached()) == 1, name


async def test_grpc_health_and_reflection(daemon: Guarded) -> None:
    async with grpc.aio.insecure_channel(daemon.engine.addresses["grpc"]) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        assert (await health.Check(health_pb2.HealthCheckRequest())).status == 1
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        wanted = reflection_pb2.ServerReflectionRequest(list_services="")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await reflection.ServerReflectionInfo(iter([wanted])).read()
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        known = (("x-api-key", daemon.keys["right"]),)
        answer = await reflection.ServerReflectionInfo(iter([wanted]), metadata=known).read()
        assert "KafkaPixy" in {each.name for each in answer.list_services_response.service}


async def test_without_a_caller_in_the_context_the_engine_refuses(daemon: Guarded) -> None:
    """Whatever a transport forgets."""
    current.set(None)
    with pytest.raises(Unauthenticated):
        daemon.engine.cluster()
    current.set(Caller(Principal("key:app")))
    with pytest.raises(Reached):
        await daemon.engine.cluster().topic(T, with_partitions=False)
    current.set(None)
    await asyncio.sleep(0)


async def test_limits_are_the_same_on_every_api_and_say_when_to_try_again(daemon: Guarded) -> None:
    assert daemon.engine.guard is not None
    base, right = f"http://{daemon.engine.addresses['rest']}", ("x-api-key", daemon.keys["right"])
    daemon.allow(rule(DESCRIBE))
    now = 0.0

    def limit(**most: float) -> None:
        assert daemon.engine.guard is not None
        daemon.engine.guard.limiter = Limiter([Limit(["key:app"], **most)], {}, 100, lambda: now)  # type: ignore[arg-type]

    async with (
        aiohttp.ClientSession() as http,
        grpc.aio.insecure_channel(daemon.engine.addresses["grpc"]) as channel,
    ):
        for path in (f"/topics/{T}", f"/rest/topics/{T}", "/topics/none"):
            limit(requests_per_second=0.25)
            for status in (403 if path == "/topics/none" else REACHED, 429, 429):
                answer = await ask(http, base, "GET", path, Row([], headers=JSON), right[1])
                assert answer.status == status, path
            assert answer.headers["Retry-After"] == "4"
            now += 4
            assert (await ask(http, base, "GET", path, Row([], headers=JSON), right[1])).status != 429
        limit(requests_per_second=0.25)
        request = pb.GetTopicMetadataRq(topic=T)
        assert (await call(channel, "GetTopicMetadata", request, right))[0] is grpc.StatusCode.UNAVAILABLE
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await KafkaPixyStub(channel).GetTopicMetadata(request, metadata=(right,))
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert dict(refused.value.trailing_metadata() or ()) == {"retry-after": "4"}
        # An instance that there is not is looked up in vain as often as the limit allows.
        limit(requests_per_second=0.25)
        daemon.behind["main"].instances = Missing()
        for status in (404, 429):
            path = f"/consumers/{G}/instances/nobody"
            assert (await ask(http, base, "DELETE", path, Row([], headers=JSON), right[1])).status == status


async def test_topics_and_groups_that_are_made_count_by_every_api(daemon: Guarded) -> None:
    assert daemon.engine.guard is not None
    right = daemon.keys["right"]
    daemon.allow(Rule(["key:app"], ["*"], topics=["*"], groups=["*"]))

    def limit() -> None:
        assert daemon.engine.guard is not None
        limits = [Limit(["*"], groups=2, new_topics_per_minute=2)]
        daemon.engine.guard.limiter = Limiter(limits, {}, 100, lambda: 0.0)

    async with (
        aiohttp.ClientSession() as http,
        grpc.aio.insecure_channel(daemon.engine.addresses["grpc"]) as channel,
    ):
        base = f"http://{daemon.engine.addresses['rest']}"
        for method, path, row in (
            ("PUT", "/topics/{}", Row([], {})),
            ("PUT", "/clusters/main/topics/{}", Row([], {})),
            ("POST", f"/topics/{T}/offsets?group={{}}", Row([], [])),
        ):
            limit()
            answers = [await ask(http, base, method, path.format(f"n{n}"), row, right) for n in range(3)]
            assert [each.status for each in answers] == [REACHED, REACHED, 429], path
            assert answers[2].headers["Retry-After"] in ("30", "60")
        credential = ("x-api-key", right)
        for name, request in (
            ("CreateTopic", lambda n: pb.CreateTopicRq(topic=f"n{n}")),
            ("SetOffsets", lambda n: pb.SetOffsetsRq(topic=T, group=f"n{n}")),
        ):
            limit()
            codes = [(await call(channel, name, request(n), credential))[0] for n in range(3)]
            assert codes[1:] == [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED], name
        limit()
        for n in range(4):
            request = pb.CreateTopicRq(topic=f"n{n}", validate_only=True)
            code = (await call(channel, "CreateTopic", request, credential))[0]
            assert code is grpc.StatusCode.UNAVAILABLE, "what is only validated makes no topic"


async def test_bytes_count_in_both_directions(daemon: Guarded) -> None:
    assert daemon.engine.guard is not None
    base = f"http://{daemon.engine.addresses['rest']}"
    daemon.allow(rule(PRODUCE))
    row = PIXY["POST", "messages"]
    async with aiohttp.ClientSession() as http:
        daemon.engine.guard.limiter = Limiter([Limit(["*"], bytes_per_second=100)], {}, 100, lambda: 0.0)
        big = Row(row.needs, "x" * 1000, row.query, row.headers)
        for status in (REACHED, 429):
            assert (
                await ask(http, base, "POST", f"/topics/{T}/messages", big, daemon.keys["right"])
            ).status == status


class Missing(Behind):
    """There are no instances."""

    async def find(self, *_args: Any, **_named: Any) -> Any:
        raise UnknownInstance


async def test_what_is_over_is_not_counted_any_more(daemon: Guarded) -> None:
    assert daemon.engine.guard is not None
    base = f"http://{daemon.engine.addresses['rest']}"
    limiter = daemon.engine.guard.limiter
    async with aiohttp.ClientSession() as http:
        for _, method, path, row in rest_requests("rest"):
            daemon.allow(*map(rule, row.needs))
            await ask(http, base, method, path, row, daemon.keys["right"])
            daemon.allow(rule(NOTHING))
            await ask(http, base, method, path, row, daemon.keys["right"])
    assert limiter.active == 0
    assert {(use.active, use.polls) for use in limiter._uses.values()} == {(0, 0)}


class Slow(Behind):
    """Deletes topics, once it may."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()
        self.may = asyncio.Event()

    async def delete_topic(self, _topic: str) -> None:
        self.begun.set()
        await self.may.wait()


@pytest.mark.parametrize("api", ["rest", "grpc"])
async def test_a_deletion_whose_client_has_gone_is_recorded_with_its_result(
    daemon: Guarded, tmp_path: Path, api: str
) -> None:
    guard, path, slow = daemon.engine.guard, tmp_path / "audit", Slow()
    assert guard is not None
    guard.audit = AuditLog(Audit(str(path)))
    guard.audit.start()
    daemon.allow(rule(("admin", T, None)))
    daemon.behind["main"].admin = slow
    key = daemon.keys["right"]
    if api == "rest":
        _, writer = await asyncio.open_connection(*daemon.engine.addresses["rest"].rsplit(":", 1))
        writer.write(f"DELETE /topics/{T} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {key}\r\n\r\n".encode())
        await slow.begun.wait()
        writer.transport.abort()
    else:
        async with grpc.aio.insecure_channel(daemon.engine.addresses["grpc"]) as channel:
            stub = KafkaPixyStub(channel)
            asked = stub.DeleteTopic(pb.DeleteTopicRq(topic=T), metadata=(("x-api-key", key),))
            await slow.begun.wait()
            asked.cancel()

    async def held() -> int:
        return guard.unanswered.held

    await eventually(held)
    slow.may.set()
    await eventually(held, lambda found: not found)
    guard.audit.stop()
    (line,) = [json.loads(each) for each in path.read_text().splitlines()]
    assert (line["verb"], line["topic"], line["result"], line["answered"]) == ("admin", T, "ok", False)
    assert line["address"].startswith("127.0.0.1:" if api == "rest" else "ipv4:127.0.0.1:")


async def test_each_refusal_and_each_operation_leaves_a_line(daemon: Guarded, tmp_path: Path) -> None:
    guard, path = daemon.engine.guard, tmp_path / "audit"
    assert guard is not None
    guard.audit = AuditLog(Audit(str(path), verbs=["produce"]))
    guard.audit.start()
    daemon.allow(rule(PRODUCE), rule(DESCRIBE))
    right = ("x-api-key", daemon.keys["right"])
    base = f"http://{daemon.engine.addresses['rest']}"
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    async with aiohttp.ClientSession() as http:
        sent = PIXY["POST", "messages"]
        row = Row(sent.needs, sent.body, sent.query, {**sent.headers, **trace})
        await ask(http, base, "POST", f"/topics/{T}/messages", row, right[1])
        await ask(http, base, "POST", "/topics/none/messages", row, right[1])
        await ask(http, base, "GET", f"/topics/{T}", Row([]), right[1])
        await ask(http, base, "GET", "/clusters/other/topics", Row([]), right[1])
        await ask(http, base, "GET", "/topics", Row([]), "kp_wrong")
    async with grpc.aio.insecure_channel(daemon.engine.addresses["grpc"]) as channel:
        await call(channel, "SetOffsets", pb.SetOffsetsRq(topic=T, group=G), right)
        await call(channel, "ListTopics", pb.ListTopicRq(), right, right)
    guard.audit.stop()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["result"], line.get("verb"), line.get("topic"), line.get("reason")) for line in lines] == [
        ("Reached", "produce", T, None),
        ("Forbidden", "produce", "none", None),
        ("Forbidden", "describe", None, None),
        ("Unauthenticated", None, None, "unknown_key"),
        ("Forbidden", "admin", T, None),
        ("Unauthenticated", None, None, "ambiguous"),
    ]
    assert lines[0]["trace"] == trace["traceparent"] and lines[0]["principal"] == "key:app"
    assert all(line["address"] for line in lines)


async def test_the_kernel_names_the_user_behind_a_unix_socket(daemon: Guarded) -> None:
    """And nobody's word counts for it on TCP."""
    assert daemon.engine.guard is not None
    daemon.engine.guard.authenticator.sees_uids = True
    daemon.allow(Rule([f"uid:{os.getuid()}"], ["describe"], topics=[T]), rule(NOTHING))
    row = Row([])
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(daemon.socket))) as http:
        assert (await ask(http, "http://localhost", "GET", f"/topics/{T}", row, None)).status == REACHED
        assert (await ask(http, "http://localhost", "GET", "/topics/none", row, None)).status == 403
        assert (await ask(http, "http://localhost", "GET", f"/topics/{T}", row, "kp_wrong")).status == 401
        other = await ask(http, "http://localhost", "GET", f"/topics/{T}", row, daemon.keys["right"])
        assert other.status == 403, "a key counts before the user"
    async with aiohttp.ClientSession() as http:
        base = f"http://{daemon.engine.addresses['rest']}"
        assert (await ask(http, base, "GET", f"/topics/{T}", row, None)).status == 401
