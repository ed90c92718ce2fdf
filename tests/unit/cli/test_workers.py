"""Workers: what each has for itself, and when one that has ended is started again."""

from __future__ import annotations

import pytest

from pixy.cli.workers.pauses import FIRST, LONGEST, STEADY, Pauses
from pixy.cli.workers.place import adapted, shared_addresses
from pixy.config import load_text, validate
from pixy.errors import ConfigError

CONFIG = """\
grpc_addr: 127.0.0.1:0
tcp_addr: 127.0.0.1:19092
rest: {addr: /tmp/rest.sock}
proxies: {default: {client_id: pixy, consumer: {group_instance_id: fixed}}}
"""


def test_a_worker_has_names_of_its_own_and_the_addresses_of_all() -> None:
    app = load_text(CONFIG)
    assert shared_addresses(app) == {"grpc_addr": "127.0.0.1:0", "tcp_addr": "127.0.0.1:19092"}
    adapted(app, 2, {"grpc_addr": "127.0.0.1:4711", "tcp_addr": "127.0.0.1:19092"})
    assert (app.grpc_addr, app.tcp_addr, app.rest.addr) == (
        "127.0.0.1:4711",
        "127.0.0.1:19092",
        "/tmp/rest.sock",
    )
    proxy = app.proxies["default"]
    assert (proxy.client_id, proxy.consumer.group_instance_id) == ("pixy-2", "fixed-2")


def test_pauses_grow_until_a_worker_has_served_for_a_while() -> None:
    pauses = Pauses(9)
    found = [pauses.ended(1.0) for _ in range(9)]
    assert found[:3] == [FIRST, 2 * FIRST, 4 * FIRST]
    assert found[-1] == LONGEST
    assert pauses.ended(STEADY) == FIRST
    assert pauses.ends == 1


def test_a_worker_that_ends_too_often_is_not_started_again() -> None:
    pauses = Pauses(2)
    assert [pauses.ended(0.0) for _ in range(3)] == [FIRST, 2 * FIRST, None]


@pytest.mark.parametrize("value", ["0", "-1", "65", "two", "1.5"])
def test_the_number_of_workers_is_checked(value: str) -> None:
    with pytest.raises(ConfigError, match=r"server\.workers must be auto or a number from 1 to 64"):
        load_text(f"server: {{workers: {value}}}")


def test_auto_is_one_worker_for_each_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(6)))
    assert load_text("server: {workers: auto}").server.processes == 6
    assert load_text("server: {workers: 3}").server.processes == 3
    assert load_text("").server.processes == 1


def test_envoy_hosts_one_process() -> None:
    app = load_text("server: {front: envoy, workers: 2}\nproxies: {default: {}}")
    with pytest.raises(ConfigError, match=r"server\.workers needs server\.front: portable"):
        validate(app)
