"""Proofs of forwarded requests: worth nothing for another request, peer, time or a second use."""

from __future__ import annotations

import base64
import itertools
import json

import pytest

from pixy.auth import hops as module
from pixy.auth.hops import LIFETIME, Hops
from pixy.auth.principal import Principal
from pixy.errors import Unauthenticated

SECRET = "s" * 32
ALICE = Principal("jwt:alice", frozenset({"ops", "dev"}))


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def node(name: str, clock: Clock, secret: str = SECRET, peers: str = "abc") -> Hops:
    return Hops(secret, name, peers, clock)


def refused(hops: Hops, proof: str, method: str = "GET", target: str = "/x?y") -> None:
    with pytest.raises(Unauthenticated):
        hops.verify(proof, method, target)


def test_a_peer_learns_who_calls_through_which_node(clock: Clock) -> None:
    b = node("b", clock)
    for principal in (ALICE, Principal("cert:a\u202eb"), None):
        proof = node("a", clock).sign("b", "POST", "/x?y", principal, b"body")
        found = b.verify(proof, "POST", "/x?y")
        assert (found.node, found.principal) == ("a", principal)
        found.check_body(b"body")
        with pytest.raises(Unauthenticated):
            found.check_body(b"other")


def test_a_proof_counts_once(clock: Clock) -> None:
    b, proof = node("b", clock), node("a", clock).sign("b", "GET", "/x?y", ALICE, b"")
    b.verify(proof, "GET", "/x?y")
    refused(b, proof)
    clock.now += LIFETIME
    refused(b, proof)


def test_a_proof_is_for_one_request_peer_and_time(clock: Clock) -> None:
    a, b = node("a", clock), node("b", clock)

    def proof() -> str:
        return a.sign("b", "GET", "/x?y", ALICE, b"")

    refused(b, proof(), method="POST")
    refused(b, proof(), target="/x?z")
    refused(node("c", clock), proof())
    refused(node("b", clock, peers="bc"), proof())
    refused(node("b", clock, secret="t" * 32), proof())
    refused(a, a.sign("a", "GET", "/x?y", ALICE, b""))
    early, late = proof(), proof()
    clock.now += LIFETIME
    b.verify(early, "GET", "/x?y")
    clock.now += 0.001
    refused(b, late)
    ahead = proof()
    clock.now -= LIFETIME + 0.001
    refused(b, ahead)


def test_a_changed_proof_is_none(clock: Clock) -> None:
    a, b = node("a", clock), node("b", clock)
    payload, _, mac = a.sign("b", "GET", "/x?y", ALICE, b"").partition(".")
    document = json.loads(base64.urlsafe_b64decode(payload))
    forged = base64.urlsafe_b64encode(json.dumps({**document, "who": "jwt:root"}).encode()).decode()
    for proof in (
        "",
        ".",
        "x",
        payload,
        f"{payload}.",
        f".{mac}",
        f"{forged}.{mac}",
        f"{payload}.{mac}x",
        "\udcff.x",
    ):
        refused(b, proof)
    refused(b, "x" * 100_000)
    b.verify(f"{payload}.{mac}", "GET", "/x?y")


def test_nonces_are_forgotten_when_they_cannot_count_any_more_and_never_earlier(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_NONCES", 10)
    b, numbers = node("b", clock), itertools.count()
    a = Hops(SECRET, "a", "ab", clock, lambda: str(next(numbers)))
    for _ in range(10):
        b.verify(a.sign("b", "GET", "/x?y", ALICE, b""), "GET", "/x?y")
    refused(b, a.sign("b", "GET", "/x?y", ALICE, b""))
    clock.now += LIFETIME
    refused(b, a.sign("b", "GET", "/x?y", ALICE, b""))
    clock.now += 0.001
    b.verify(a.sign("b", "GET", "/x?y", ALICE, b""), "GET", "/x?y")
    assert len(b._seen) == 1
