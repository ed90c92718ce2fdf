"""The program as a user runs it: start, stop, exit codes, security, client commands, examples."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.cluster import Certificates, Cluster, free_port
from tests.support import ROOT, Program, make_config, serving


def wait_until(check, within: float = 100.0):  # type: ignore[no-untyped-def]
    """Ask until it is so. The bound is for what never comes: on a machine with much to do a daemon starts in half a minute."""
    deadline = time.monotonic() + within
    while not (found := check()):
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.05)
    return found


def http(port: int, path: str, data: bytes | None = None) -> tuple[int, bytes]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", data, headers={"Content-Type": "text/plain"}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def alive(port: int) -> bool:
    try:
        return http(port, "/_ping")[0] == 200
    except OSError:
        return False


class Running:
    """A daemon process on free ports that answers requests."""

    def __init__(self, kafka: Cluster, *args: str) -> None:
        self.grpc, self.tcp = free_port(), free_port()
        self.program = Program(
            f"--kafkaPeers={kafka.bootstrap()[0]}",
            f"-grpcAddr=127.0.0.1:{self.grpc}",
            "-tcpAddr",
            f"127.0.0.1:{self.tcp}",
            *args,
        )

    def __enter__(self) -> Running:
        try:
            wait_until(self._serves)
        except BaseException:
            self.program.__exit__()
            raise
        return self

    def _serves(self) -> bool:
        assert self.program.process.poll() is None, self.program.wait()
        return alive(self.tcp)

    def __exit__(self, *exc: object) -> None:
        self.program.__exit__(*exc)

    def signal(self, number: int) -> None:
        self.program.process.send_signal(number)

    def cli(self, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pixy.cli.main", *args, "--server", f"127.0.0.1:{self.grpc}"],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=60,
            check=False,
        )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT])
def test_a_signal_drains_and_exits_with_0(kafka: Cluster, name: str, tmp_path: Path, number: int) -> None:
    kafka.create_topic(name)
    pid_file, unix = tmp_path / "pid", tmp_path / "s"
    with Running(kafka, f"--pidFile={pid_file}", f"--unixAddr={unix}") as daemon:
        wait_until(pid_file.exists)  # it is written once the ports are bound
        assert int(pid_file.read_text()) == daemon.program.process.pid
        assert unix.stat().st_mode & 0o777 == 0o660
        for number_ in range(50):
            assert http(daemon.tcp, f"/topics/{name}/messages", b"%d" % number_) == (200, b"{}")
        daemon.signal(number)
        code, output = daemon.program.wait()
    assert code == 0, output
    assert not pid_file.exists() and not unix.exists()
    with Running(kafka) as daemon:
        _, body = http(daemon.tcp, f"/topics/{name}/offsets?group={name}")
        assert json.loads(body)[0]["end"] == 50


def test_acks_are_accepted_while_draining(kafka: Cluster, name: str, tmp_path: Path) -> None:
    kafka.create_topic(name)
    config = tmp_path / "c.yaml"
    # A drain that continued after the last ack would last longer than Program.wait() allows.
    config.write_text(
        "shutdown_timeout: 20m\nproxies: {default: {consumer: {initial_offset: oldest, drain_timeout: 10m}}}\n"
    )
    with Running(kafka, f"--config={config}") as daemon:
        for _ in range(2):
            http(daemon.tcp, f"/topics/{name}/messages?sync", b"x")
        first = json.loads(http(daemon.tcp, f"/topics/{name}/messages?group={name}&noAck")[1])
        second = json.loads(http(daemon.tcp, f"/topics/{name}/messages?group={name}&noAck")[1])
        daemon.signal(signal.SIGTERM)

        def refused() -> bool:
            return http(daemon.tcp, f"/topics/{name}/messages?group={name}&noAck")[0] == 503

        wait_until(refused)
        status, body = http(daemon.tcp, f"/topics/{name}/messages?group={name}&noAck")
        assert json.loads(body) == {"error": "service is shutting down"}
        status, _ = http(
            daemon.tcp, f"/topics/{name}/acks?group={name}&partition=0&offset={first['offset']}", b""
        )
        assert status == 200
        status, _ = http(
            daemon.tcp, f"/topics/{name}/messages?group={name}&ackPartition=0&ackOffset={second['offset']}"
        )
        assert status == 503, "refused, although its ack was accepted"
        status, _ = http(daemon.tcp, f"/topics/{name}/messages", b"would be lost")
        assert status == 503, "an asynchronous message is not accepted to be thrown away"
        code, output = daemon.program.wait()
        assert code == 0, output
    with Running(kafka) as daemon:
        _, body = http(daemon.tcp, f"/topics/{name}/offsets?group={name}")
        assert json.loads(body)[0]["offset"] == 2


def test_a_second_signal_ends_it_at_once(kafka: Cluster, name: str, tmp_path: Path) -> None:
    kafka.create_topic(name)
    config = tmp_path / "c.yaml"
    config.write_text("proxies: {default: {consumer: {initial_offset: oldest, drain_timeout: 50s}}}\n")
    with Running(kafka, f"--config={config}") as daemon:
        http(daemon.tcp, f"/topics/{name}/messages?sync", b"x")
        http(daemon.tcp, f"/topics/{name}/messages?group={name}&noAck")
        daemon.signal(signal.SIGTERM)
        wait_until(lambda: http(daemon.tcp, f"/topics/{name}/messages?group={name}&noAck")[0] == 503)
        assert daemon.program.process.poll() is None, "still draining"
        daemon.signal(signal.SIGTERM)
        assert daemon.program.wait(10)[0] == 128 + signal.SIGTERM


def test_a_drain_that_exceeds_its_timeout_is_reported(kafka: Cluster, name: str, tmp_path: Path) -> None:
    kafka.create_topic(name)
    config = tmp_path / "c.yaml"
    config.write_text(
        "shutdown_timeout: 1s\nproxies: {default: {consumer: {initial_offset: oldest, drain_timeout: 50s}}}\n"
    )
    with Running(kafka, f"--config={config}") as daemon:
        http(daemon.tcp, f"/topics/{name}/messages?sync", b"x")
        http(daemon.tcp, f"/topics/{name}/messages?group={name}&noAck")
        daemon.signal(signal.SIGTERM)
        code, output = daemon.program.wait()
    assert code == 3 and "stopped without draining" in output, output


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (
            ["--kafkaPeers=127.0.0.1:1"],
            "Failed to start service: err=(failed to spawn proxy, name=default: failed to create Kafka "
            "client: kafka: client has run out of available brokers to talk to (Is your cluster reachable?) "
            "[127.0.0.1:1: connection refused]",
        ),
        (["--config=/none.yaml"], "Failed to load config: err=(failed to read config file: path=/none.yaml"),
        (["--grpcAddr=nonsense", "--sandbox"], "Failed to start service: err=("),
        (
            ["--tcpAddr=0.0.0.0:0", "--sandbox"],
            "Failed to load config: err=(invalid config parameter: tcp_addr 0.0.0.0:0 can be reached from other hosts",
        ),
        (
            ["--pidFile=/none/pid", "--sandbox"],
            "Failed to initialize: err=(pidFile /none/pid: the directory /none does not exist: create it, or choose",
        ),
        (
            ["--unixAddr=/none/s", "--grpcAddr=127.0.0.1:0", "--tcpAddr=127.0.0.1:0", "--sandbox"],
            "listen unix /none/s: bind: no such file or directory "
            "(the directory /none does not exist: create it, or choose another path))",
        ),
    ],
)
def test_a_failed_start_is_reported_in_one_line(args: list[str], text: str) -> None:
    with Program(*args, "--logging=[]") as program:
        code, output = program.wait()
    assert code == 1
    lines = [line for line in output.splitlines() if line]
    assert len(lines) == 1 and text in lines[0], output


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--nope"], "kafka-pixy: bad command line: unrecognized arguments: --nope (see --help)\n"),
        (["prodce"], "kafka-pixy: unknown command 'prodce', did you mean 'produce'? (see --help)\n"),
        (
            ["--sandbox=maybe"],
            "kafka-pixy: bad command line: argument -sandbox/--sandbox: 'maybe' is neither",
        ),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_2(args: list[str], text: str) -> None:
    with Program(*args) as program:
        code, output = program.wait()
    assert code == 2 and output.startswith(text) and output.count("\n") == 1, output


def test_a_person_s_mistake_costs_few_lines_and_no_traceback(kafka: Cluster) -> None:
    """With the default log, on stdout and stderr together."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for args in (
            ["--kafkaPeers=127.0.0.1:1"],
            [f"--kafkaPeers={kafka.bootstrap()[0]}", f"--tcpAddr=127.0.0.1:{port}", "--grpcAddr=127.0.0.1:0"],
            [f"--kafkaPeers={kafka.bootstrap()[0]}", f"--grpcAddr=127.0.0.1:{port}"],
        ):
            with Program(*args) as program:
                code, output = program.wait()
            # A broker that has just started says this for a while, whatever the person does.
            lines = [each for each in output.splitlines() if "Coordinator load in progress" not in each]
            assert code == 1 and lines[-1].startswith("Failed to start service: err=("), output
            assert "Traceback" not in output and len(lines) <= 4, output
            assert ("choose another address)" in lines[-1]) is (str(port) in lines[-1]), "what to do about it"


def test_a_daemon_waits_for_kafka_and_says_so(kafka: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as later:
        port = later.getsockname()[1]
    options = (
        "--waitForKafka",
        f"--kafkaPeers=127.0.0.1:{port}",
        "--grpcAddr=127.0.0.1:0",
        "--tcpAddr=127.0.0.1:0",
    )
    waits = f"waiting for Kafka at 127.0.0.1:{port} (cluster default): "
    with Program(*options) as program:
        assert waits in _line(program, "waiting for Kafka")
        program.process.send_signal(signal.SIGTERM)
        code, output = program.wait()
        assert code == 0 and "Traceback" not in output, output
    with Program(*options) as program:
        assert waits in _line(program, "waiting for Kafka")
        with _forwarding(port, kafka.bootstrap()[0]):
            _line(program, "serving rest on")
        program.process.send_signal(signal.SIGTERM)
        code, output = program.wait()
        assert code == 0, output


def _line(program: Program, text: str) -> str:
    """Read what the program prints up to a line with this text."""
    assert program.process.stdout is not None
    for line in program.process.stdout:
        if text in line:
            return line
    raise AssertionError(f"it ended without {text!r}")


@contextlib.contextmanager
def _forwarding(port: int, target: str) -> Iterator[None]:
    """Pass connections to a port on to another address."""
    host, _, target_port = target.rpartition(":")

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def accept(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = server.accept()
                broker = socket.create_connection((host, int(target_port)))
                for ends in ((client, broker), (broker, client)):
                    threading.Thread(target=pump, args=ends, daemon=True).start()

    with socket.create_server(("127.0.0.1", port)) as server:
        threading.Thread(target=accept, args=(server,), daemon=True).start()
        yield


def test_a_start_fails_if_an_address_is_in_use(kafka: Cluster, tmp_path: Path) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    common = (f"--kafkaPeers={kafka.bootstrap()[0]}", "--logging=[]")
    for args, text in (
        (
            (f"--tcpAddr=127.0.0.1:{port}", "--grpcAddr=127.0.0.1:0"),
            "failed to start TCP based HTTP API server: failed to create listener: listen tcp "
            f"127.0.0.1:{port}: bind: address already in use",
        ),
        ((f"--grpcAddr=127.0.0.1:{port}",), "failed to start gRPC server"),
        (
            ("--grpcAddr=127.0.0.1:0", "--tcpAddr=127.0.0.1:0", f"--unixAddr={tmp_path}"),
            f"failed to start Unix socket based HTTP API server: failed to create listener: listen "
            f"unix {tmp_path}: bind: address already in use",
        ),
    ):
        with Program(*args, *common) as program:
            code, output = program.wait()
        assert code == 1 and text in output, output
    taken.close()


async def test_a_stale_socket_file_is_replaced(kafka: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "s"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    config = make_config(kafka.bootstrap())
    config.unix_addr = str(path)
    async with serving(config):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
    assert not path.exists()


async def test_a_listener_that_dies_ends_the_service(kafka: Cluster) -> None:
    from pixy.cli.serve import listeners
    from pixy.engine.engine import Engine

    config = make_config(kafka.bootstrap())
    engine = Engine(config)
    await engine.start(listeners(engine, config))
    listener = engine.system.lookup("/service/rest")
    assert listener is not None
    listener._cell.actor._socket.close()
    failure = await asyncio.wait_for(engine.failed(), 20)
    assert "rest" in str(failure) and "lost its socket" in str(failure)
    await engine.stop()


def test_loggers_write_json_syslog_and_text(tmp_path: Path) -> None:
    collector = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    collector.bind(("127.0.0.1", 0))
    collector.settimeout(20)
    loggers = [
        {"name": "json", "severity": "info"},
        {"name": "syslog", "severity": "info", "params": {"addr": f"127.0.0.1:{collector.getsockname()[1]}"}},
    ]
    with Program(
        "--sandbox", "--grpcAddr=127.0.0.1:0", "--tcpAddr=127.0.0.1:0", f"--logging={json.dumps(loggers)}"
    ) as program:
        while b"serving grpc" not in collector.recv(4096):
            pass
        program.process.send_signal(signal.SIGTERM)
        code, output = program.wait()
    assert code == 0
    records = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    record = next(record for record in records if record["category"] == "/service")
    assert record["logLevel"] == "INFO"
    assert {"hostname", "filename", "funcName", "lineno", "timestamp", "pid", "tid"} <= set(record)
    for severity, shown in (("info", True), ("error", False)):
        port = free_port()
        with Program(
            "--sandbox",
            "--grpcAddr=127.0.0.1:0",
            f"--tcpAddr=127.0.0.1:{port}",
            f'--logging=[{{"severity":"{severity}"}}]',
        ) as program:
            wait_until(lambda port=port: alive(port))  # type: ignore[misc]
            program.process.send_signal(signal.SIGTERM)
            code, output = program.wait()
        pattern = r'^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6} (Z|[+-]\d\d) info </service> "serving grpc on .*"$'
        assert bool(re.search(pattern, output, re.M)) is shown, output


async def test_tls_on_the_daemons_listeners(kafka: Cluster, name: str, tmp_path: Path) -> None:
    import ssl

    import aiohttp
    import grpc

    from pixy.proto import kafkapixy_pb2 as pb
    from pixy.proto.kafkapixy_pb2_grpc import KafkaPixyStub

    kafka.create_topic(name)
    certificates = Certificates(tmp_path)
    config = make_config(kafka.bootstrap())
    config.tls.certificate_path, config.tls.key_path, _ = certificates.issue("server")
    config.unix_addr = str(tmp_path / "sock")
    async with serving(config) as daemon:
        context = ssl.create_default_context(cafile=certificates.ca_file)
        async with aiohttp.ClientSession() as session:
            url = f"https://{daemon.engine.addresses['rest']}/_ping"
            async with session.get(url, ssl=context) as answer:
                assert await answer.text() == "pong"
        reader, writer = await asyncio.open_unix_connection(
            config.unix_addr
        )  # the Unix socket never uses TLS
        writer.write(b"GET /_ping HTTP/1.0\r\n\r\n")
        assert b"200 OK" in await reader.readline()
        writer.close()
        credentials = grpc.ssl_channel_credentials(Path(certificates.ca_file).read_bytes())
        async with grpc.aio.secure_channel(daemon.engine.addresses["grpc"], credentials) as channel:
            rs = await KafkaPixyStub(channel).Produce(pb.ProdRq(topic=name, message=b"x"))
            assert rs.offset == 0


def test_client_commands_produce_consume_ack_and_list(kafka: Cluster, name: str, tmp_path: Path) -> None:
    kafka.create_topic(name)
    config = tmp_path / "c.yaml"
    # The group has to last from one command's start to the next one's, and is waited for at the end.
    config.write_text("proxies: {default: {consumer: {initial_offset: oldest, subscription_timeout: 20s}}}\n")
    with Running(kafka, f"--config={config}") as daemon:
        done = daemon.cli("produce", name, "-k", "a", "-H", "h=v", "--json", stdin="one\ntwo\n")
        assert done.returncode == 0, done.stderr
        assert [json.loads(line)["offset"] for line in done.stdout.splitlines()] == [0, 1]
        done = daemon.cli("produce", name, "-m", "three")
        assert done.returncode == 0 and "1 message written" in done.stderr
        done = daemon.cli("consume", name, "-g", name, "-n", "2", "--json")
        assert done.returncode == 0, done.stderr
        first, _ = map(json.loads, done.stdout.splitlines())
        assert first.pop("timestamp") > 1_700_000_000_000
        assert first == {
            "partition": 0,
            "offset": 0,
            "key": {"text": "a"},
            "value": {"text": "one"},
            "headers": [{"key": "h", "value": {"text": "v"}}],
        }
        assert daemon.cli("consume", name, "-g", name, "--ack", "none").stdout == "three\n"
        assert daemon.cli("ack", name, "-g", name, "-p", "0", "-o", "2").returncode == 0
        done = daemon.cli("consume", name, "-g", name)
        assert done.returncode == 4 and "nothing more came" in done.stderr
        done = daemon.cli("consumers", name, "--json")
        assert list(json.loads(done.stdout)) == [name]
        busy = daemon.cli("offsets", name, "-g", name, "--set", "0=begin")
        assert busy.returncode == 1 and "FAILED_PRECONDITION" in busy.stderr

        def set_offset() -> str:
            done = daemon.cli("offsets", name, "-g", name, "--set", "0=1", "--json")
            return done.stdout if done.returncode == 0 else ""

        assert json.loads(wait_until(set_offset))[0]["offset"] == 1
        done = daemon.cli("topics", name)
        assert done.returncode == 0 and "leader" in done.stdout
        assert name in json.loads(daemon.cli("topics", "--json").stdout)
        assert daemon.cli("topics", f"{name}-none").returncode == 1
        done = daemon.cli("offsets", name, "-g", name)
        assert "lag" in done.stdout


def test_version_and_help_exit_with_0() -> None:
    for args in (["--help"], ["-help"], ["--version"], ["consume", "--help"]):
        done = subprocess.run(
            [sys.executable, "-m", "pixy.cli.main", *args],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        )
        assert done.returncode == 0 and done.stdout


# The daemon's examples; the others are tested with the packages that they show.
ELSEWHERE = ("actors_", "wire_", "pipeline_")
EXAMPLES = sorted(
    path.name
    for path in (ROOT / "examples").iterdir()
    if path.suffix in (".py", ".sh") and not path.name.startswith(ELSEWHERE)
)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_daemons_examples_run(kafka: Cluster, name: str, example: str) -> None:
    kafka.create_topic(name)
    env = {**os.environ, "TOPIC": name, "KAFKA": kafka.bootstrap()[0], "PYTHONPATH": str(ROOT)}
    with Running(kafka) as daemon:
        env |= {"GRPC": f"127.0.0.1:{daemon.grpc}", "REST": f"http://127.0.0.1:{daemon.tcp}"}
        interpreter = "bash" if example.endswith(".sh") else sys.executable
        done = subprocess.run(
            [interpreter, str(ROOT / "examples" / example)],
            env=env,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Good news everyone!" in done.stdout
