"""Which Kafka identity a caller has, how many are open, and when one is closed."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest

from pixy.auth.principal import ANONYMOUS, Caller, Principal, current
from pixy.config.kinds import KafkaVersion
from pixy.config.model import App, Kafka, Net, Proxy, Sasl
from pixy.config.security import Identities as Config, Identity, Rule
from pixy.engine.client import ClusterClient
from pixy.engine.cluster_messages import GetAdmin
from pixy.engine.engine import Engine
from pixy.engine.identities import Identities, proxy_as
from pixy.errors import ConfigError, Forbidden, Limited
from pixy.kafka.sandbox import Sandbox

SHOP, BILLING, OPS = Principal("key:shop"), Principal("key:billing"), Principal("jwt:ops")


class Ref:
    """A cluster's actor."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[Any] = []

    async def ask(self, request: Any, *, block: bool) -> Any:
        self.asked.append(request)
        return self


class World:
    """Identities whose actors are :class:`Ref`, with a clock that a test moves."""

    def __init__(self, **config: Any) -> None:
        users = {
            "shop": Identity(["key:shop", "group:shops"], "kafka-shop", "s"),
            "rest": Identity(["key:*"], "", "r"),
        }
        self.proxy = Proxy(client_id="kp", identities=Config(users, **config))
        self.now = 0.0
        self.started: list[tuple[str, Proxy]] = []
        self.busy: set[str] = set()
        self.closed: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.identities = Identities(
            "main",
            self.proxy,
            {"shops": ["cert:shop-*"]},
            self.start,
            self.idle,
            self.close,
            lambda: False,
            lambda: self.now,
        )

    async def start(self, name: str, proxy: Proxy) -> Any:
        self.started.append((name, proxy))
        return Ref(name)

    async def idle(self, ref: Any) -> bool:
        await self.gate.wait()
        return ref.name not in self.busy

    async def close(self, ref: Any) -> None:
        await self.gate.wait()
        self.closed.append(ref.name)

    async def use(self, principal: Principal) -> ClusterClient:
        """Use an identity, so that its actor is started."""
        client = self.identities.client(principal)
        assert client is not None
        await client._refs._cluster.ask(GetAdmin(), block=False)
        return client


def test_an_identity_has_its_own_credentials_and_names() -> None:
    proxy = Proxy(client_id="kp", net=Net(sasl=Sasl(enable=True, user="pixy", password="p")))
    proxy.consumer.group_instance_id = "one"
    proxy.identities = Config({"shop": Identity(["*"], "kafka-shop", "s"), "plain": Identity(["*"], "", "t")})
    shop, plain = proxy_as(proxy, "shop"), proxy_as(proxy, "plain")
    assert (shop.net.sasl.user, shop.net.sasl.password) == ("kafka-shop", "s")
    assert (plain.net.sasl.user, plain.net.sasl.password) == ("plain", "t")
    assert (shop.client_id, shop.consumer.group_instance_id) == ("kp.shop", "one.shop")
    assert (proxy.net.sasl.user, proxy.client_id, proxy.consumer.group_instance_id) == ("pixy", "kp", "one")


async def test_the_first_element_that_names_the_caller_counts() -> None:
    world = World()
    shop, billing = await world.use(SHOP), await world.use(BILLING)
    assert shop is not billing
    assert await world.use(Principal("cert:shop-1")) is shop and await world.use(SHOP) is shop
    assert [(name, made.net.sasl.user) for name, made in world.started] == [
        ("shop", "kafka-shop"),
        ("rest", "rest"),
    ]
    assert world.identities.client(OPS) is None and world.identities.client(ANONYMOUS) is None


async def test_other_groups_count_from_now_on() -> None:
    world = World()
    shop = await world.use(SHOP)
    use = world.identities.regroup({"shops": ["jwt:ops"]})
    assert world.identities.client(OPS) is None, "not before they are used"
    use()
    assert world.identities.client(OPS) is shop and world.identities.client(Principal("cert:shop-1")) is None
    with pytest.raises(ConfigError, match=r"identities.users.shop: bad pattern 'a\*b'"):
        world.identities.regroup({"shops": ["a*b"]})
    assert world.identities.client(OPS) is shop


async def test_a_reload_reads_who_has_an_identity_again() -> None:
    app = App(proxies={"main": Proxy()})
    app.auth.enabled = app.auth.anonymous = True
    app.auth.groups = {"shops": ["key:shop"]}
    app.rules = [Rule(["*"], ["*"], topics=["*"], groups=["*"])]
    app.proxies["main"].identities = Config({"shop": Identity(["group:shops"], "", "p")}, "refuse")
    engine, after = Engine(app), copy.deepcopy(app)
    identities = engine._identities["main"]
    assert identities.client(SHOP) is not None
    after.auth.groups = {"shops": ["jwt:ops"]}
    engine.reload_rules(after)
    assert identities.client(OPS) is not None
    with pytest.raises(Forbidden):
        identities.client(SHOP)
    for wrong in ({"shops": ["a*b"]}, {"shops": ["key:shop"]}):
        again = copy.deepcopy(after)
        again.auth.groups = wrong
        again.rules = [] if "key:shop" in wrong["shops"] else again.rules
        with pytest.raises(ConfigError):
            engine.reload_rules(again)
        assert identities.client(OPS) is not None, "all stays as it was"


async def test_callers_without_an_identity_may_be_refused() -> None:
    world = World(others="refuse")
    await world.use(SHOP)
    with pytest.raises(Forbidden, match="jwt:ops has no Kafka identity in cluster main"):
        world.identities.client(OPS)


async def test_one_actor_is_started_however_many_ask_at_once() -> None:
    world = World()
    await asyncio.gather(*(world.use(SHOP) for _ in range(10)))
    assert len(world.started) == 1


async def test_a_client_that_goes_away_does_not_end_the_start() -> None:
    world, begun, gate = World(), list[str](), asyncio.Event()

    async def start(name: str, _proxy: Proxy) -> Any:
        begun.append(name)
        await gate.wait()
        return Ref(name)

    world.identities._start = start
    first = asyncio.create_task(world.use(SHOP))
    while not begun:
        await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    gate.set()
    await world.use(SHOP)
    assert first.cancelled() and begun == ["shop"], "another start would leave an actor that nobody knows"


async def test_one_more_than_the_bound_is_refused_until_another_is_closed() -> None:
    world = World(max=1, idle_timeout=60.0)
    await world.use(SHOP)
    world.now = 59.0
    for _ in range(2):
        with pytest.raises(Limited, match=r"identities\.max"):
            world.identities.client(BILLING)
        assert world.identities._looking is not None
        await world.identities._looking
        assert world.closed == []
    world.now = 60.0
    world.busy.add("shop")
    await world.identities.close_idle()
    with pytest.raises(Limited):
        world.identities.client(BILLING)
    await asyncio.sleep(0)
    world.busy.clear()
    world.gate.clear()
    closing = asyncio.create_task(world.identities.close_idle())
    await asyncio.sleep(0)
    with pytest.raises(Limited):  # its clients are still there
        world.identities.client(BILLING)
    world.gate.set()
    await closing
    assert world.closed == ["shop"]
    await world.use(BILLING)


async def test_a_request_in_the_last_moment_keeps_its_identity() -> None:
    world = World(idle_timeout=60.0)
    before = await world.use(SHOP)
    world.now = 60.0
    world.gate.clear()
    closing = asyncio.create_task(world.identities.close_idle())
    await asyncio.sleep(0)  # it asks whether the identity is idle
    assert world.identities.client(SHOP) is before
    world.gate.set()
    await closing
    assert world.closed == [] and world.identities.client(SHOP) is before


def test_a_wrong_pattern_is_told() -> None:
    proxy = Proxy(identities=Config({"x": Identity(["a*b"], "", "p")}))
    with pytest.raises(ConfigError, match=r"proxies.main.identities.users.x: bad pattern 'a\*b'"):
        Identities("main", proxy, {}, None, None, None, lambda: False)  # type: ignore[arg-type]


@pytest.mark.slow
async def test_an_identity_is_closed_when_it_has_nothing_to_do_and_opened_again() -> None:
    sandbox = Sandbox()
    app = App(proxies={"main": Proxy(kafka=Kafka(seed_peers=sandbox.seed_peers))})
    app.auth.enabled = app.auth.anonymous = True
    app.proxies["main"].identities = Config({"shop": Identity(["key:shop"], "", "p")})
    engine = Engine(app)
    await engine.start()
    identities, now = engine._identities["main"], 0.0
    identities._clock = lambda: now

    def clusters() -> set[str]:
        return {path.split("/")[2] for path in engine.system.paths() if path.startswith("/service/")}

    try:
        current.set(Caller(SHOP))
        for _ in range(2):
            await engine.cluster().brokers()
            assert clusters() == {"main", "main@shop"}
            now += 600.0
            await identities.close_idle()
            assert clusters() == {"main"}
        await engine.cluster().produce("orders", b"m")
        now += 600.0
        await identities.close_idle()
        assert clusters() == {"main", "main@shop"}, "it has a producer"
        current.set(Caller(OPS))
        await engine.cluster().brokers()
    finally:
        assert (await engine.stop()).clean
        current.set(None)
        del sandbox


async def test_whatever_fails_at_the_start_leaves_no_actor() -> None:
    """An embedded engine must not keep Kafka clients that nobody can stop."""
    sandbox = Sandbox()
    app = App(
        proxies={"main": Proxy(kafka=Kafka(seed_peers=sandbox.seed_peers, version=KafkaVersion("latest")))}
    )
    engine = Engine(app)
    with pytest.raises(ValueError, match="latest"):
        await engine.start()
    assert engine.system.paths() == []
