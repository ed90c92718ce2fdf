"""What the guard leaves of answers, and to whom a consumer instance belongs."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import pytest

from actors import ActorSystem
from pixy.auth.limits import Limiter
from pixy.auth.principal import Caller, Principal
from pixy.auth.rules import Access, Rules
from pixy.config.model import App, Proxy
from pixy.config.security import Limit, Rule
from pixy.engine.admin_messages import GroupView
from pixy.engine.guard import Guard
from pixy.engine.guarded import GuardedCluster
from pixy.engine.instances.client import InstanceClient
from pixy.engine.instances.messages import (
    DeleteInstance,
    GetSubscription,
    InstanceRequest,
    InstanceSpec,
    ReadRecords,
    SubscribeTo,
)
from pixy.engine.instances.registry import Instances
from pixy.errors import Forbidden, InstanceExists, Limited, UnknownInstance
from pixy.kafka.group_members import GroupMember, ListedGroup
from tests.support import eventually
from tests.unit.engine.records import Record

ALICE, BOB = Caller(Principal("jwt:alice")), Caller(Principal("jwt:bob"))
READ = ReadRecords(max_bytes=1000, most=100)


def guard(*rules: Rule) -> Guard:
    app = App(proxies={"c": Proxy()})
    app.auth.anonymous = True
    made = Guard(app)
    made.rules = Rules(rules, {})
    return made


def guarded(client: Any, made: Guard, caller: Caller = ALICE) -> GuardedCluster:
    for name in ("instances", "admin"):
        if not hasattr(client, name):
            setattr(client, name, None)
    return GuardedCluster(client, made, caller, "c")


async def value(found: Any) -> Any:
    return found


async def test_nobody_changes_the_topic_of_the_audit_log() -> None:
    """Whatever the rules say. Reading it, and offsets of groups that do, are theirs to decide."""
    app = App(proxies={"c": Proxy(), "other": Proxy()})
    app.auth.anonymous, app.audit.topic = True, "audit"
    made = Guard(app)
    for verb in ("produce", "admin"):
        with pytest.raises(Forbidden, match="only the daemon itself writes to its audit log, topic audit"):
            made.begin(ALICE, Access(verb, "c", "audit"))
    for access in (
        Access("produce", "c", "audited"),
        Access("produce", "other", "audit"),
        Access("consume", "c", "audit", "g"),
        Access("admin", "c", "audit", "g"),
    ):
        with made.begin(ALICE, access):
            pass
    assert made.limiter.active == 0


SEES = Rule(["jwt:alice"], ["describe"], topics=["a*"], groups=["g*"])


async def test_lists_are_cut_to_what_the_caller_may_see() -> None:
    infos = [SimpleNamespace(name=name) for name in ("a1", "a2", "b")]
    client = SimpleNamespace(
        topics=lambda **_: value(infos),
        consumers=lambda *_: value({"g1": {}, "h": {}}),
        admin=SimpleNamespace(
            groups=lambda: value([ListedGroup(name, "Stable", "classic") for name in ("g1", "h", "g2")]),
            group=lambda _group: value(
                GroupView(
                    "g1",
                    "Stable",
                    (GroupMember("c", "m", (("a1", 0), ("b", 1), ("a2", 2))),),
                    {"a1": [], "b": []},
                )
            ),
        ),
    )
    cluster = guarded(client, guard(SEES))
    topics = await cluster.topics(with_partitions=False, with_config=False)
    assert [info.name for info in topics] == ["a1", "a2"]
    assert set(await cluster.consumers("a1")) == {"g1"}
    assert [each.name for each in await cluster.admin.groups()] == ["g1", "g2"]
    view = await cluster.admin.group("g1")
    assert view.members[0].assigned == (("a1", 0), ("a2", 2)) and set(view.offsets) == {"a1"}


class Reader:
    """An instance whose subscription a test can look at, and whose reads return what it says."""

    def __init__(self, *topics: str) -> None:
        self.asked: list[InstanceRequest[Any]] = []
        self.given_back = False
        self.records = [Record(0, at, topic=topic) for at, topic in enumerate(topics)]

    async def find(self, *_args: Any, **_named: Any) -> None: ...

    async def ask(self, _group: str, _name: str, request: InstanceRequest[Any], *, owner: str) -> None:
        self.asked.append(request)

    async def read(self, *_args: Any, **_named: Any) -> Any:
        return self

    def give_back(self) -> None:
        self.given_back = True


READS = Rule(["jwt:alice"], ["consume"], topics=["a*"], groups=["g"])


async def test_a_pattern_finds_what_the_rules_allow_at_each_look() -> None:
    reader, made = Reader(), guard(READS)
    instances = guarded(SimpleNamespace(instances=reader), made).instances
    await instances.ask("g", "i", SubscribeTo(pattern=".*"))
    [request] = reader.asked
    assert isinstance(request, SubscribeTo) and request.allowed is not None
    assert [topic for topic in ("a1", "b", "a2") if request.allowed(topic)] == ["a1", "a2"]
    made.rules = Rules([Rule(["jwt:alice"], ["consume"], topics=["b"], groups=["g"])], {})
    assert [topic for topic in ("a1", "b", "a2") if request.allowed(topic)] == ["b"]


async def test_records_of_a_topic_that_the_caller_may_no_longer_consume_go_back() -> None:
    reader, made = Reader("a1", "a2"), guard(READS)
    instances = guarded(SimpleNamespace(instances=reader), made).instances
    assert await instances.read("g", "i", READ) is reader and not reader.given_back  # type: ignore[comparison-overlap]
    made.rules = Rules([Rule(["jwt:alice"], ["consume"], topics=["a1"], groups=["g"])], {})
    with pytest.raises(Forbidden, match="topic a2"):
        await instances.read("g", "i", READ)
    assert reader.given_back
    assert made.limiter.active == 0


async def test_a_request_that_nobody_has_thought_of_is_refused() -> None:
    class New(InstanceRequest[None]):
        __slots__ = ()

    with pytest.raises(Forbidden):
        await guarded(SimpleNamespace(instances=Reader()), guard()).instances.ask("g", "i", New())


async def test_an_instance_belongs_to_its_creator() -> None:
    system = ActorSystem("test")
    registry = system.spawn(Instances, Proxy(), "", lambda *_: None, None)  # type: ignore[arg-type]
    client = InstanceClient(lambda: value(registry))
    made = guard()
    alice, bob = (guarded(SimpleNamespace(instances=client), made, who).instances for who in (ALICE, BOB))
    try:
        assert await alice.create("g", "One", InstanceSpec()) == "One"
        assert await alice.ask("g", "One", GetSubscription()) == []
        assert await alice.ask("g", "one", GetSubscription()) == [], "letter case does not matter (KIP-80)"
        for name in ("One", "one"):
            for operation in (
                bob.find("g", name),
                bob.ask("g", name, GetSubscription()),
                bob.read("g", name, READ),
            ):
                with pytest.raises(UnknownInstance):
                    await operation
            with pytest.raises(UnknownInstance):
                await client.find("g", name)
        with pytest.raises(InstanceExists):
            await bob.create("g", "One", InstanceSpec())
    finally:
        await system.stop()


async def test_the_instances_of_a_principal_are_counted_over_all_clusters() -> None:
    system, made = ActorSystem("test"), guard()
    made.limiter = Limiter([Limit(["jwt:alice"], instances=2), Limit(["jwt:bob"], instances=1)], {}, 1000)
    registries = [
        system.spawn(Instances, Proxy(), "", lambda *_: None, None)  # type: ignore[arg-type]
        for _ in range(2)
    ]
    one, two = (
        SimpleNamespace(instances=InstanceClient(functools.partial(value, each))) for each in registries
    )

    async def create(cluster: Any, caller: Caller = ALICE, name: str | None = None) -> str:
        return await guarded(cluster, made, caller).instances.create("g", name, InstanceSpec())

    try:
        await create(one, name="first")
        await create(two)
        for cluster in (one, two):
            with pytest.raises(Limited, match="jwt:alice may have 2 consumer instances"):
                await create(cluster)
        await create(two, BOB)
        with pytest.raises(Limited, match="jwt:bob may have 1 consumer instances"):
            await create(one, BOB)

        await guarded(one, made).instances.ask("g", "first", DeleteInstance())
        await create(two)
        with pytest.raises(Limited):
            await create(one)

        await registries[1].stop(block=False)
        await eventually(lambda: value(made.owned.count("jwt:alice")), lambda count: count == 0)
        await create(one, name="instances that ended with their registry count no more")
    finally:
        await system.stop()
