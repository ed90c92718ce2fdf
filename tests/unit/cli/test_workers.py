"""Workers: what each has for itself, and when one that has ended is started again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest import mock

import pytest

from pixy.cli.pid_file import PidFile
from pixy.cli.processes.child import Child
from pixy.cli.workers.pauses import FIRST, LONGEST, STEADY, Pauses
from pixy.cli.workers.place import adapted, shared_addresses
from pixy.cli.workers.supervisor import Supervisor, _Worker
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


async def test_a_replacement_that_is_asked_for_during_one_follows_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "pixy")
    supervisor = Supervisor(load_text("server: {workers: 2}"), [], PidFile(""))
    gate, replaced = asyncio.Event(), []

    async def replace(_self: Supervisor, number: int, _old: object) -> None:
        replaced.append(number)
        await gate.wait()

    monkeypatch.setattr(Supervisor, "_replace", replace)
    supervisor._replace_all()
    assert replaced == [] and "replaces no workers: they are about to serve" in caplog.text
    supervisor._serving = True
    for _ in range(3):
        supervisor._replace_all()
        await asyncio.sleep(0)
    assert replaced == [1] and "once more after that" in caplog.text
    gate.set()
    while supervisor._replacing is not None:
        await asyncio.sleep(0)
    assert replaced == [1, 2, 1, 2]


async def test_a_worker_that_has_ended_leaves_no_sockets(tmp_path: Path) -> None:
    supervisor = Supervisor(load_text("server: {workers: 2}"), [], PidFile(""))
    supervisor._folder, supervisor._stopping = str(tmp_path), True
    supervisor._over = asyncio.get_running_loop().create_future()
    process = mock.Mock(pid=7, returncode=-9, wait=mock.AsyncMock(return_value=-9))
    worker = _Worker(1, Child(process, mock.Mock(hear=mock.AsyncMock(return_value=None))))
    supervisor._workers.append(worker)
    for name in ("1-7.sock", "1-7.sock.admin", "2-8.sock"):
        (tmp_path / name).touch()
    await supervisor._attend(worker)
    assert [each.name for each in tmp_path.iterdir()] == ["2-8.sock"]


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
