"""Workers: what each has for itself, and when one that has ended is started again."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from unittest import mock

import pytest

from pixy.cli.pid_file import PidFile
from pixy.cli.processes.child import Child
from pixy.cli.workers.pauses import FIRST, LONGEST, STEADY, Pauses
from pixy.cli.workers.place import adapted, shared_addresses
from pixy.cli.workers.supervisor import Supervisor, _Worker
from pixy.config import load_text, validate
from pixy.config.kinds import Workers
from pixy.config.notes import worker_notes
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


def test_clients_of_a_replaced_worker_have_as_long_as_their_connections_last() -> None:
    """By default no call is cut off, and no worker waits for ever."""
    app = load_text("server: {workers: 2}\nproxies: {default: {}}")
    connections = app.connections
    assert app.moving_time > 1.1 * connections.grpc_max_age + connections.grpc_max_age_grace
    assert app.moving_time < 2 * connections.grpc_max_age and not worker_notes(app)
    app.grpc_addr = ""
    assert connections.idle_timeout < app.moving_time < 2 * connections.idle_timeout
    for text in ("{group_instance_id: a}", "{membership: zookeeper}"):
        two = load_text(f"server: {{workers: 2}}\nproxies: {{default: {{consumer: {text}}}}}")
        assert two.moving_time == 30.0, "two members with one name"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "server: {workers: 2, restart_timeout: 30s}",
            "grpc_max_age is 1h, and .* clients 30s for moving on",
        ),
        (
            "server: {workers: 2}\nconnections: {grpc_max_age: 0s}",
            r"grpc_max_age is 0s \(any age\), and .*10m5s",
        ),
        ("server: {workers: 2, restart_timeout: 6m}\nconnections: {grpc_max_age: 5m}", ""),
        ("server: {restart_timeout: 30s}", ""),
        ("server: {workers: 2, restart_timeout: 30s}\ngrpc_addr: ''", ""),
    ],
)
def test_config_check_says_when_replacing_workers_fails_calls(text: str, said: str) -> None:
    notes = worker_notes(load_text(f"{text}\nproxies: {{default: {{}}}}"))
    assert len(notes) == bool(said) and all(re.search(said, note) for note in notes), notes


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "tcp_addr: /tmp/rest.sock",
            "server.workers needs tcp_addr as host:port: unix_addr is the one unix socket",
        ),
        ("rest: {addr: /tmp/rest.sock}", "server.workers needs rest.addr as host:port"),
    ],
)
def test_workers_share_one_unix_socket(text: str, problem: str) -> None:
    app = load_text(f"server: {{workers: 2}}\nproxies: {{default: {{}}}}\n{text}")
    with pytest.raises(ConfigError, match=problem):
        validate(app)
    app.server.workers = Workers("1")
    validate(app)


async def test_a_worker_that_has_crashed_is_not_started_beside_the_one_that_replaces_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    supervisor = Supervisor(load_text("server: {workers: 2}"), [], PidFile(""))
    started: list[int] = []

    async def start(_self: Supervisor, number: int, **_options: bool) -> None:
        started.append(number)

    monkeypatch.setattr(Supervisor, "_start", start)
    supervisor._workers.append(_Worker(1, Child(mock.Mock(pid=7), mock.Mock())))
    await supervisor._start_again(1, 0.0)
    await supervisor._start_again(2, 0.0)
    assert started == [2]


async def test_no_more_than_two_generations_of_workers_end_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = Supervisor(load_text("server: {workers: 2}"), [], PidFile(""))
    supervisor._serving = True
    ends: list[asyncio.Future[None]] = []

    def add(number: int) -> None:
        worker = _Worker(number, Child(mock.Mock(pid=len(ends)), mock.Mock()))
        ends.append(asyncio.get_running_loop().create_future())
        worker.ended = asyncio.ensure_future(asyncio.shield(ends[-1]))  # type: ignore[arg-type]
        worker.ended.add_done_callback(lambda _ended: supervisor._workers.remove(worker))
        supervisor._workers.append(worker)

    async def replace(_self: Supervisor, number: int, old: list[_Worker]) -> None:
        for each in old:
            each.retiring = True
        add(number)

    monkeypatch.setattr(Supervisor, "_replace", replace)
    for number in (1, 2):
        add(number)
    for count in (4, 6):
        supervisor._replace_all()
        assert supervisor._replacing is not None
        await supervisor._replacing
        assert len(supervisor._workers) == count
    supervisor._replace_all()
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(supervisor._workers) == 6, "the first ones still serve their connections"
    for end in ends[:3]:
        end.set_result(None)
    while supervisor._replacing is not None:
        await asyncio.sleep(0)
    assert len(ends) == 8
