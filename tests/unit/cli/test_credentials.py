"""The daemon's address, files of TLS and the token: what cannot be used is one line with exit code 2, before gRPC sees it."""

from __future__ import annotations

import contextlib
import http.server
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

from pixy.cli.main import main
from pixy.cli.shell import doctor
from pixy.cli.shell.credentials import check_server, pem_files
from pixy.cli.shell.errors import DaemonGone, ShellError, of_call
from pixy.cli.shell.session import Session, Settings
from pixy.config import files
from pixy.proto import kafkapixy_pb2 as pb
from tests.in_process import Finished, run_in_process
from tests.support import ROOT

NOBODY = "127.0.0.1:1"


def run(*args: str, server: str = NOBODY) -> Finished:
    return run_in_process(lambda: main(["topics", "--server", server, *args]))


@pytest.mark.parametrize(
    "server",
    [
        "",
        " ",
        "localhost",
        "localhost:",
        "localhost:0",
        "localhost:abc",
        "localhost:83727",
        "localhost:65536",
        "http://localhost:19091",
        ":19091",
        "a b:1",
        "a:1 ",
        "::1:19091",
        "[::1]",
        "a:-1",
        "a:\u0661",
        "a\n:1",
    ],
)
def test_a_server_that_is_no_address_is_refused(server: str) -> None:
    """gRPC took the port modulo 65536, and talked to whoever was there."""
    done = run(server=server)
    wanted = f"kafka-pixy topics: --server {' '.join(repr(server).split())}: is not HOST:PORT, such as localhost:19091\n"
    assert (done.returncode, done.stderr.decode()) == (2, wanted)


@pytest.mark.parametrize("server", ["localhost:1", "kp.example.com:65535", "[::1]:19091", "a_b-c.d:19091"])
def test_addresses_are_taken(server: str) -> None:
    check_server(server)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ("--tls --cert a.pem", "--cert needs --cert-key: give both"),
        ("--tls --cert-key a.key", "--cert-key needs --cert: give both"),
        ("--cert none --cert-key none", "--cert-key none: No such file or directory"),
        ("--ca none", "--ca none: No such file or directory"),
        ("--ca empty", "--ca empty: holds no certificate in PEM format (-----BEGIN CERTIFICATE-----)"),
        (
            "--ca /dev/null",
            "--ca /dev/null: holds no certificate in PEM format (-----BEGIN CERTIFICATE-----)",
        ),
        ("--ca damaged.pem", "--ca damaged.pem: its certificate is damaged"),
        ("--ca .", "--ca .: Is a directory"),
        ("--cert a.pem --cert-key b.key", "--cert-key b.key: is not the key of the certificate a.pem"),
        (
            "--cert a.pem --cert-key a.pem",
            "--cert-key a.pem: holds no private key in PEM format (-----BEGIN PRIVATE KEY-----)",
        ),
        (
            "--cert a.pem --cert-key locked.key",
            "--cert-key locked.key: has a pass phrase: write the key without one (openssl pkey)",
        ),
        ("--token-file none", "--token-file none: No such file or directory"),
        ("--token-file empty", "--token-file empty: is empty: a key or a token is expected"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    pem_folder: Path, args: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(pem_folder)
    done = run(*args.split())
    assert (done.returncode, done.stderr.decode()) == (2, f"kafka-pixy topics: {text}\n")


def test_a_blank_token_of_the_environment_is_refused_and_an_empty_one_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KAFKA_PIXY_TOKEN", " ")
    assert run().stderr == b"kafka-pixy topics: KAFKA_PIXY_TOKEN: is empty: a key or a token is expected\n"
    monkeypatch.setenv("KAFKA_PIXY_TOKEN", "")
    assert b"connection refused" in run().stderr


def test_profiles_that_are_named_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The defaults in their place could be another cluster's."""
    monkeypatch.setenv("KAFKA_PIXY_PROFILES", str(tmp_path / "none"))
    done = run()
    assert done.returncode == 2
    assert done.stderr.decode() == f"kafka-pixy topics: KAFKA_PIXY_PROFILES: there is no {tmp_path}/none\n"


@pytest.mark.parametrize("args", ["--ca ca.pem", "--cert a.pem --cert-key a.key"])
def test_files_of_tls_imply_tls(pem_folder: Path, args: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(pem_folder)
    secure: list[Any] = []
    make = grpc.secure_channel
    monkeypatch.setattr(grpc, "secure_channel", lambda *a, **k: secure.append(a[0]) or make(*a, **k))
    assert run(*args.split()).returncode == 1 and secure == [NOBODY]


def test_a_pipe_is_read_once(pem_folder: Path) -> None:
    """A shell's <(...)."""
    ends = [os.pipe() for _ in range(3)]
    try:
        for (_, write), name in zip(ends, ("ca.pem", "a.pem", "a.key"), strict=True):
            os.write(write, (pem_folder / name).read_bytes())
            os.close(write)
        ca, cert, key = (f"/dev/fd/{read}" for read, _ in ends)
        wanted = tuple((pem_folder / name).read_bytes() for name in ("ca.pem", "a.key", "a.pem"))
        assert pem_files(ca, cert, key) == wanted
    finally:
        for read, _ in ends:
            os.close(read)


class _Http(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle(self) -> None:
        self.rfile.readline()
        self.wfile.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


@pytest.fixture(scope="module")
def http_server() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Http) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_an_http_server_is_told_from_a_daemon(http_server: str) -> None:
    text = run(server=http_server).stderr.decode()
    assert text == (
        f"kafka-pixy topics: UNAVAILABLE: at {http_server} is no gRPC server of Kafka-Pixy: an HTTP server answers "
        "there; name its gRPC port (19091 if nothing else is configured) with --server or KAFKA_PIXY_SERVER\n"
    )


def test_grpc_s_own_lines_are_not_shown(http_server: str) -> None:
    """A process of its own: gRPC looks at the environment once."""
    done = subprocess.run(
        [sys.executable, "-m", "pixy.cli.main", "topics", "--server", http_server, "--tls"],
        env={name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert "the TLS handshake failed" in done.stderr


def test_an_http_status_is_not_an_old_daemon() -> None:
    class Refused:
        def __init__(self, status: grpc.StatusCode, details: str) -> None:
            self.code, self.details = (lambda: status), (lambda: details)

    codes = grpc.StatusCode
    found = of_call(
        Refused(codes.UNIMPLEMENTED, "Received http2 header with status: 404"), "s:1", "GetStatus"
    )
    assert "an HTTP server answers with status 404" in str(found) and "older" not in str(found)
    down = of_call(Refused(codes.UNAVAILABLE, "Received http2 header with status: 503"), "s:1", "GetStatus")
    assert isinstance(down, DaemonGone), "a proxy whose daemon restarts"
    old = of_call(Refused(codes.UNIMPLEMENTED, "Method not found!"), "s:1", "GetStatus")
    assert "it is older than this shell" in str(old) and isinstance(old, ShellError)


@pytest.fixture(scope="module")
def daemons() -> Iterator[tuple[str, str]]:
    """Two gRPC servers, without TLS and with it."""
    ca = trustme.CA()
    issued = ca.issue_cert("localhost")
    chain = b"".join(each.bytes() for each in issued.cert_chain_pems)
    server = grpc.server(futures.ThreadPoolExecutor(1))
    plain = server.add_insecure_port("127.0.0.1:0")
    credentials = grpc.ssl_server_credentials([(issued.private_key_pem.bytes(), chain)])
    secure = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    yield f"127.0.0.1:{plain}", f"127.0.0.1:{secure}"
    server.stop(None).wait()


def refusal(settings: Settings) -> str:
    with Session(settings) as session, pytest.raises(DaemonGone) as raised:
        session.call("GetStatus", pb.GetStatusRq())
    return str(raised.value)


def test_a_daemon_without_tls_is_told_from_none(daemons: tuple[str, str]) -> None:
    plain, secure = daemons
    assert refusal(Settings(plain, tls=True)) == (
        f"UNAVAILABLE: {plain} answers without TLS: the TLS handshake failed; leave out --tls, --ca and --cert "
        "(and KAFKA_PIXY_TLS, KAFKA_PIXY_CA), or name another port"
    )
    assert "if it serves TLS, give --tls or --ca; else start one" in refusal(Settings(secure))
    assert "if it serves TLS" not in refusal(Settings(NOBODY))
    finding, running = doctor._daemon(Settings(plain, tls=True))
    assert running and finding.todo.startswith("leave out --tls")


def test_a_daemon_that_wants_a_client_certificate_is_told_from_none(tmp_path: Path) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    issued = ca.issue_cert("localhost")
    pair = issued.private_key_pem.bytes(), issued.cert_chain_pems[0].bytes()
    server = grpc.server(futures.ThreadPoolExecutor(1))
    credentials = grpc.ssl_server_credentials([pair], ca.cert_pem.bytes(), require_client_auth=True)
    address = f"localhost:{server.add_secure_port('127.0.0.1:0', credentials)}"
    server.start()
    wanted = "if it wants client certificates, give --cert and --cert-key; else start one"
    try:
        assert wanted in refusal(Settings(address, ca=str(tmp_path / "ca.pem")))
    finally:
        server.stop(None).wait()
    assert "--cert" not in refusal(Settings(NOBODY, ca=str(tmp_path / "ca.pem")))


def test_texts_of_grpc_are_words() -> None:
    class Failed:
        def __init__(self, status: grpc.StatusCode, details: str) -> None:
            self.code, self.details = (lambda: status), (lambda: details)

    codes = grpc.StatusCode
    text = "errors resolving nosuch:1: [field:hostname lookup error:address lookup failed for nosuch:1: not found]"
    unknown = of_call(Failed(codes.UNAVAILABLE, text), "nosuch:1", "GetStatus")
    assert "no daemon answers at nosuch:1: no such host; start one" in str(unknown)
    asked = of_call(Failed(codes.UNAUTHENTICATED, "credentials are required"), "s:1", "GetStatus")
    assert str(asked).startswith(
        "UNAUTHENTICATED: credentials are required; --token-file or KAFKA_PIXY_TOKEN has"
    )


@pytest.fixture(scope="module")
def tls_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """A CA's file, and servers by what is wrong with them: the name, the CA, or the protocol."""
    ca = trustme.CA()
    file = tmp_path_factory.mktemp("ca") / "ca.pem"
    ca.cert_pem.write_to_path(str(file))
    issued = {
        "name": ca.issue_cert("kp.example.com"),
        "ca": trustme.CA().issue_cert("127.0.0.1"),
        "http": ca.issue_cert("127.0.0.1"),
    }
    with contextlib.ExitStack() as running:
        servers: dict[str, str] = {}
        for what in ("name", "ca"):
            pair = issued[what].private_key_pem.bytes(), issued[what].cert_chain_pems[0].bytes()
            server = grpc.server(futures.ThreadPoolExecutor(1))
            servers[what] = (
                f"127.0.0.1:{server.add_secure_port('127.0.0.1:0', grpc.ssl_server_credentials([pair]))}"
            )
            server.start()
            running.callback(server.stop, None)
        http = http_of(issued["http"])
        running.callback(http.server_close)
        running.callback(http.shutdown)
        servers["http"] = f"127.0.0.1:{http.server_port}"
        yield str(file), servers


def http_of(issued: trustme.LeafCert) -> http.server.ThreadingHTTPServer:
    """An HTTPS server, as the daemon's REST port is."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Http)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    issued.configure_cert(context)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # it would write to the shell's standard error
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


WRONG_SERVERS = {
    "name": "the certificate of {} is for another name; name the server with --server as its certificate does",
    "ca": "the certificate of {} is not trusted; name its CA with --ca",
    "http": "at {} is no gRPC server of Kafka-Pixy: what answers speaks TLS, but not HTTP/2; name its gRPC port (19091 if nothing "
    "else is configured) with --server or KAFKA_PIXY_SERVER",
}


@pytest.mark.parametrize("what", WRONG_SERVERS)
def test_a_server_that_is_not_the_one_is_told_at_once(
    what: str, tls_servers: tuple[str, dict[str, str]]
) -> None:
    """It was gRPC's raw text, or advice to start a daemon, and ``--follow`` tried again for ever."""
    ca, servers = tls_servers
    done = run_in_process(lambda: main(["consume", "t", "--follow", "--server", servers[what], "--ca", ca]))
    text = WRONG_SERVERS[what].format(servers[what])
    assert (done.returncode, done.stderr.decode()) == (1, f"kafka-pixy consume: UNAVAILABLE: {text}\n")


def test_follow_does_not_wait_for_an_http_server(http_server: str) -> None:
    done = run_in_process(lambda: main(["consume", "t", "--follow", "--server", http_server]))
    assert done.returncode == 1 and b"an HTTP server answers there" in done.stderr, done.stderr


@pytest.mark.parametrize("flag", ["--ca", "--token-file", "KAFKA_PIXY_PROFILES"])
def test_a_file_without_end_is_refused(flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """/dev/zero ended with a MemoryError."""
    monkeypatch.setattr(files, "MAX_SMALL_FILE", 10)
    path = tmp_path / "file"
    path.write_bytes(bytes(11))
    given = [flag, str(path)] if flag.startswith("-") else []
    if not given:
        monkeypatch.setenv(flag, str(path))
    done = run(*given)
    where = f"{flag} {path}" if given else str(path)
    assert (done.returncode, done.stderr.decode()) == (2, f"kafka-pixy topics: {where}: File too large\n")


@pytest.mark.parametrize(
    ("profile", "text"),
    [
        ("{timeout: abc}", "Invalid value for '--timeout': 'abc' is not a number (see kafka-pixy topics --help)"),
        ("{output: xml}", "Invalid value for '--output': 'xml' is not one of 'table', 'json', 'yaml' (see kafka-pixy topics --help)"),
        ("{server: nope}", "--server 'nope': is not HOST:PORT, such as localhost:19091"),
        ("{server: 'd:1', ca: /none}", "--ca /none: No such file or directory"),
        ("{server: 'd:1'}\ndefault: {server: 'e:1'}", "profile 'default' stands twice"),
        ("{server: 'd:1', server: 'e:1'}", "'server' of profile 'default' stands twice"),
    ],
)  # fmt: skip
def test_a_wrong_value_of_a_profile_names_the_file(
    profile: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has typed no option looks for none."""
    path = tmp_path / "p.yaml"
    path.write_text(f"default: {profile}\n")
    monkeypatch.setenv("KAFKA_PIXY_PROFILES", str(path))
    done = run_in_process(lambda: main(["topics"]))
    assert (done.returncode, done.stderr.decode()) == (2, f"kafka-pixy topics: {path}: {text}\n")


def test_a_value_that_was_typed_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p.yaml").write_text("default: {server: nope}\n")
    monkeypatch.setenv("KAFKA_PIXY_PROFILES", str(tmp_path / "p.yaml"))
    assert run(server="wrong").stderr.startswith(b"kafka-pixy topics: --server 'wrong': is not HOST:PORT")
