"""The owner of a consumer instance."""

from __future__ import annotations

import collections

import pytest

from pixy.api.restv1.peers import Peers
from pixy.config import load_text, validate
from pixy.config.model import Rest
from pixy.engine.instances.registry import generated_name, node_of
from pixy.errors import ConfigError

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
