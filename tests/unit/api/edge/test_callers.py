"""Whose share a request counts against."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import HttpVersion11
from multidict import CIMultiDict
from yarl import URL

from pixy.api.edge.budget import Budget
from pixy.api.edge.callers import caller_of_call, caller_of_request
from pixy.api.edge.connections import Slot
from pixy.api.edge.http_request import HttpRequest
from pixy.api.edge.proxies import HOP_HEADER, TrustedProxies
from pixy.api.rest.identity import address_of
from pixy.auth.principal import ANONYMOUS, Caller, Principal, current
from pixy.config.model import App, Rest
from pixy.errors import OverBudget


@pytest.mark.parametrize(
    ("peer", "caller"),
    [
        ("ipv4:10.0.0.1:55", "10.0.0.1"),
        ("ipv6:%5B2001:db8::9%5D:55", "2001:db8::/64"),
        ("ipv6:[::ffff:10.0.0.1]:5", "10.0.0.1"),
        ("unix:", "unix"),
    ],
)
def test_a_call_counts_for_its_address_or_its_principal(peer: str, caller: str) -> None:
    assert caller_of_call(peer) == caller
    for principal, expected in ((Principal("key:a"), "key:a"), (ANONYMOUS, caller)):
        token = current.set(Caller(principal))
        try:
            assert caller_of_call(peer) == expected
        finally:
            current.reset(token)


@pytest.mark.parametrize(
    ("sent", "caller"),
    [
        ([], "10.0.0.1"),
        (["10.9.9.9"], "10.9.9.9"),
        (["10.6.6.6, 10.9.9.9"], "10.9.9.9"),
        (["10.6.6.6", "10.9.9.9"], "10.9.9.9"),
        (["10.6.6.6", "10.5.5.5 , 2001:db8::9"], "2001:db8::/64"),
        (["10.9.9.9:51544"], "10.9.9.9"),
        (["[2001:db8::9]:443"], "2001:db8::/64"),
        (["[2001:db8::9]"], "2001:db8::/64"),
        (["2001:db8::9:443"], "2001:db8::/64"),
        (["10.9.9.9,"], "10.0.0.1"),
        ([""], "10.0.0.1"),
        (["somebody"], "10.0.0.1"),
        (["10.9.9.9:x"], "10.0.0.1"),
    ],
)
def test_the_last_address_of_the_last_line_is_the_one_that_the_proxy_has_added(
    sent: list[str], caller: str
) -> None:
    headers = CIMultiDict(("X-Forwarded-For", each) for each in sent)
    request = cast(Any, SimpleNamespace(headers=headers))
    for trusted, expected in ((True, caller), (False, "10.0.0.1")):
        proxies = cast(Any, SimpleNamespace(any=True, trusts=lambda _request, trusted=trusted: trusted))
        assert caller_of_request(request, proxies, "10.0.0.1") == expected


def request_from(peer: object, slot: Slot | None = None, **headers: str) -> HttpRequest:
    message = SimpleNamespace(
        headers=CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()}),
        method="GET",
        path="/topics",
        url=URL("/topics"),
        version=HttpVersion11,
    )
    protocol = SimpleNamespace(peername=peer, sockname=None, ssl_context=None, slot=slot, transport=None)
    nothing = cast(Any, None)
    return HttpRequest(cast(Any, message), nothing, cast(Any, protocol), nothing, nothing, nothing)


@pytest.mark.parametrize(
    ("peer", "trusted"),
    [
        (("10.0.0.7", 5), True),
        (("::ffff:10.0.0.7", 5, 0, 0), True),
        (("192.0.2.1", 5), False),
        ("", False),
        (None, False),
        ("10.0.0.7", False),  # a client of the unix socket that has bound its own to this path
        ("/run/app.sock", False),
        (b"\0abstract", False),
    ],
)
def test_a_client_of_the_unix_socket_does_not_choose_its_address(peer: object, trusted: bool) -> None:
    app = App(trusted_proxies=["10.0.0.0/8"])
    proxies = TrustedProxies(app)
    request = request_from(peer, X_Forwarded_For="10.9.9.9")
    assert proxies.trusts(request) is trusted
    assert caller_of_request(request, proxies, "uid 5") == ("10.9.9.9" if trusted else "uid 5")
    if not isinstance(peer, tuple):
        assert TrustedProxies(App(trusted_proxies=["unix"])).trusts(request), (
            "where it is trusted, by any name"
        )


async def test_a_client_of_the_unix_socket_is_no_peer_by_its_name() -> None:
    proxies = TrustedProxies(App(rest=Rest(node_id="a", peers={"b": "http://10.0.0.7"})))
    proxies._addresses, proxies._looked_up = {"b": frozenset({"10.0.0.7"})}, float("inf")
    sent = {HOP_HEADER.replace("-", "_"): "b"}
    assert proxies.trusts(request_from(("10.0.0.7", 5), **sent))
    assert not proxies.trusts(request_from("10.0.0.7", **sent))


def test_one_request_may_use_the_whole_budget_several_of_a_caller_may_not() -> None:
    budget = Budget(1000, "key")
    with budget.share("a") as first:
        first.take(500)
        first.take(500)
    assert budget.held == 0
    with budget.share("a") as first, budget.share("a") as second, budget.share("b") as other:
        first.take(500)
        second.take(250)
        with pytest.raises(OverBudget, match="`key`"):
            second.take(1)
        other.take(250)
        with pytest.raises(OverBudget):
            other.take(1)
    assert budget.held == 0 and budget._callers == {}


def test_however_many_callers_take_all_they_can_the_next_one_finds_room() -> None:
    budget = Budget(64 * 1024)
    for caller in "abc":
        with pytest.raises(OverBudget):
            while True:
                budget.share(caller).take(1024)
    budget.share("d").take(100)
    for caller in "abcd":
        budget.share(caller).keep(64 * 1024)
    budget.share("e").take(1)


def test_a_request_of_a_connection_that_was_reset_has_its_address() -> None:
    slot = Slot("10.0.0.7", lambda _caller: None)
    slot.peer = "10.0.0.7:5"
    request = request_from(None, slot=slot, X_Forwarded_For="10.6.6.6")
    assert address_of(request) == "10.0.0.7:5"
    assert request.remote == "10.0.0.7"
    assert not TrustedProxies(App(trusted_proxies=["unix"])).trusts(request)
    slot.peer = "unix"
    request = request_from(None, slot=slot, X_Forwarded_For="10.6.6.6")
    assert address_of(request) == "unix"
    assert TrustedProxies(App(trusted_proxies=["unix"])).trusts(request)
