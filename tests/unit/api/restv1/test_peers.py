"""The owner of a consumer instance."""

from __future__ import annotations

import collections
import errno
import socket
import ssl
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from pixy.api.restv1 import consumers
from pixy.api.restv1.peers import Peers, _reason
from pixy.auth.principal import Caller, Principal
from pixy.config import load_text, validate
from pixy.config.model import App, Proxy, Rest
from pixy.config.security import Rule
from pixy.engine.guard import Guard
from pixy.engine.guarded_instances import GuardedInstances
from pixy.engine.instances.registry import generated_name, node_of
from pixy.errors import ConfigError, Forbidden

NODES = {name: f"http://{name}.example:19092/" for name in ("a", "b-1", "c.x")}


def peers(node: str) -> Peers:
    return Peers(Rest(node_id=node, peers=NODES))


def test_all_daemons_agree_on_the_owner_and_share_the_work() -> None:
    owned: collections.Counter[str] = collections.Counter()
    for at in range(3000):
        answers = {node: peers(node).owner("g", f"i{at}") or node for node in NODES}
        assert len(set(answers.values())) == 1, answers
        owned[answers["a"]] += 1
    assert min(owned.values()) > 850, owned


def test_few_names_move_when_a_node_is_added() -> None:
    fewer = Peers(Rest(node_id="a", peers={"b-1": "http://b"}))
    moved = [
        at
        for at in range(1000)
        if (peers("a").owner("g", f"i{at}") or "a") not in (fewer.owner("g", f"i{at}") or "a", "c.x")
    ]
    assert moved == []


@pytest.mark.parametrize("node", ["a", "b-1", "c.x", ""])
def test_a_generated_name_contains_its_node(node: str) -> None:
    name = generated_name(node)
    assert node_of(name) == (node or None)
    if node:
        assert peers("a").owner("g", name) == (None if node == "a" else node)


@pytest.mark.parametrize(
    "name",
    [
        "rest-consumer-",
        "rest-consumer-a",
        "x",
        "rest-consumer-a-not-a-uuid",
        "a" * 36,
        f"other-a-{'0' * 36}",
    ],
)
def test_other_names_contain_no_node(name: str) -> None:
    assert node_of(name) is None


def test_letter_case_does_not_matter() -> None:
    assert all(
        peers("a").owner("g", f"Instance{at}") == peers("a").owner("g", f"instance{at}") for at in range(50)
    )


def test_a_daemon_without_peers_owns_every_instance() -> None:
    assert Peers(Rest()).owner("g", "rest-consumer-b-" + "0" * 36) is None
    assert Peers(Rest(node_id="a")).owner("g", "x") is None
    assert peers("a").owner("g", None) is None


@pytest.mark.parametrize(
    ("rest", "problem"),
    [
        ("{peers: {a: 'http://a'}}", "rest.node_id must be set where rest.peers are"),
        ("{node_id: 'a b'}", "rest.node_id 'a b' must match"),
        ("{node_id: a, peers: {b: 'b:80'}}", "rest.peers.b 'b:80' must be a base URL"),
        ("{advertised_url: 'https://'}", "rest.advertised_url 'https://' must be a base URL"),
        ("{peer_requests: proxy}", "rest.peer_requests must be one of forward, redirect"),
        ("{commit_status: 201}", "rest.commit_status must be one of 200, 204"),
    ],
)
def test_bad_peer_settings(rest: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem.replace("(", r"\(")):
        validate(load_text(f"rest: {rest}\nproxies: {{default: {{}}}}\n"))


async def _nothing_forwarded(*_args: Any, **_named: Any) -> None:
    raise Reached


class Reached(Exception):
    """The owner was asked."""


def call_of(principal: str, name: str) -> Any:
    """A request about an instance of another daemon; ``reader`` may consume in the group, and nobody else anything."""
    app = App(proxies={"c": Proxy()})
    app.auth.enabled = app.auth.anonymous = True
    app.rules = [
        Rule(["key:reader"], ["consume"], topics=["*"], groups=["g"]),
        Rule(["key:other"], ["*"], topics=["*"], groups=["x"]),
    ]
    caller = Caller(Principal(principal))
    instances = GuardedInstances(SimpleNamespace(), Guard(app), caller, "c")  # type: ignore[arg-type]
    found = peers("a")
    found.forward = _nothing_forwarded  # type: ignore[method-assign, assignment]

    async def body() -> bytes:
        return b'{"name": "%s"}' % name.encode()

    return SimpleNamespace(
        params={"group": "g", "instance": name},
        peers=found,
        request=None,
        body=body,
        cluster=SimpleNamespace(instances=instances, proxy=Proxy()),
    )


@pytest.mark.parametrize(
    "handler",
    [
        consumers._create,
        consumers._of_instance(consumers._records),
        consumers._of_instance(consumers._commit),
    ],
)
async def test_rules_are_asked_before_the_owner(handler: Any) -> None:
    name = next(f"n{at}" for at in range(100) if peers("a").owner("g", f"n{at}"))
    with pytest.raises(Forbidden, match="key:other may not consume as group g"):
        await handler(call_of("key:other", name))
    with pytest.raises(Reached):
        await handler(call_of("key:reader", name))


async def test_an_instance_may_be_deleted_by_its_owner_whatever_the_rules_are_by_now() -> None:
    name = next(f"n{at}" for at in range(100) if peers("a").owner("g", f"n{at}"))
    with pytest.raises(Reached):
        await consumers._of_instance(consumers._delete, own=True)(call_of("key:other", name))


KEY: Any = SimpleNamespace(host="10.0.0.7", port=19092, ssl=True)


def _caused(error: ssl.SSLError) -> Exception:
    """What aiohttp raises when TLS fails behind the handshake: the client's certificate is looked at there."""
    found = aiohttp.ClientOSError(*error.args)
    found.__cause__ = error
    return found


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('10.0.0.7', 19092)"),
            "Connection refused",
        ),
        (TimeoutError("10.0.0.7"), "it does not answer in time"),
        (aiohttp.ServerDisconnectedError("10.0.0.7"), "the connection has failed"),
        (
            aiohttp.ClientConnectorDNSError(KEY, socket.gaierror(socket.EAI_NONAME, "Name not known")),
            "its name cannot be resolved",
        ),
        (
            aiohttp.ClientConnectorSSLError(KEY, ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER]")),
            "TLS with it has failed",
        ),
        (
            aiohttp.ClientConnectorCertificateError(KEY, ssl.SSLCertVerificationError(1, "self-signed")),
            "its TLS certificate is not valid",
        ),
        (_caused(ssl.SSLError(1, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED]")), "TLS with it has failed"),
        (
            aiohttp.ClientConnectorError(KEY, OSError(errno.EHOSTUNREACH, "Connect call failed")),
            "No route to host",
        ),
    ],
)
def test_a_client_does_not_hear_the_address_of_a_peer(error: Exception, text: str) -> None:
    assert _reason(error) == text
