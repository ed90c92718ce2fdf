"""Files and paths of the listeners, and of TLS towards Kafka: what is wrong, with which file, and what to do, in one line."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from pathlib import Path

import pytest

from pixy.api.tls import ServerTls
from pixy.cli.main import main
from pixy.config import App, Kafka, Proxy, validate
from pixy.config.files import MAX_UNIX_PATH, problem_of, tls_problem
from pixy.config.model import Tls
from pixy.errors import ConfigError, StartError
from tests.in_process import run_in_process

TLS_PROBLEMS = [
    (
        "none",
        "a.key",
        "",
        "tls.certificate_path {}/none: no such file or directory: name a file in PEM format",
    ),
    (".", "a.key", "", "tls.certificate_path {}/.: is a directory: name a file in PEM format"),
    ("junk", "a.key", "", "tls.certificate_path {}/junk: holds no certificate in PEM format"),
    ("a.key", "a.pem", "", "tls.certificate_path {}/a.key: holds a private key and no certificate"),
    ("damaged.pem", "a.key", "", "tls.certificate_path {}/damaged.pem: its certificate is damaged"),
    ("a.pem", "none", "", "tls.key_path {}/none: no such file or directory: name a file in PEM format"),
    ("a.pem", "junk", "", "tls.key_path {}/junk: holds no private key in PEM format"),
    ("a.pem", "b.pem", "", "tls.key_path {}/b.pem: holds a certificate and no private key"),
    (
        "a.pem",
        "b.key",
        "",
        "tls.key_path {0}/b.key: is not the key of the certificate {0}/a.pem: name the two",
    ),
    (
        "a.pem",
        "locked.key",
        "",
        "tls.key_path {}/locked.key: has a pass phrase, which a daemon cannot ask for",
    ),
    ("a.pem", "a.key", "none", "tls.client_ca_path {}/none: no such file or directory"),
    ("a.pem", "a.key", "junk", "tls.client_ca_path {}/junk: holds no certificate in PEM format"),
]


@pytest.mark.parametrize(("chain", "key", "ca", "text"), TLS_PROBLEMS)
def test_serve_and_config_check_say_which_certificate_is_wrong_in_one_line(
    chain: str, key: str, ca: str, text: str, pem_folder: Path, tmp_path: Path
) -> None:
    config = tmp_path / "c.yaml"
    more = f"  client_ca_path: {pem_folder}/{ca}\n" if ca else ""
    config.write_text(
        f"tls:\n  certificate_path: {pem_folder}/{chain}\n  key_path: {pem_folder}/{key}\n{more}"
    )
    for command, before, after in (
        (["config", "check"], "kafka-pixy config: ", "\n"),
        (["serve"], "Failed to start service: err=(", ")\n"),
    ):
        done = run_in_process(lambda command=command: main([*command, f"--config={config}"]))
        shown = done.stderr.decode()
        assert (done.returncode, done.stdout) == (1, b""), shown
        assert shown.startswith(before + text.format(pem_folder)) and shown.endswith(after), shown
        assert shown.count("\n") == 1, shown


def test_good_certificates_have_no_problem(pem_folder: Path) -> None:
    app = App()
    app.tls.certificate_path, app.tls.key_path = f"{pem_folder}/a.pem", f"{pem_folder}/a.key"
    app.tls.client_ca_path = f"{pem_folder}/ca.pem"
    assert problem_of(app) == ""
    app.tls.ciphers = "nonsense"
    assert problem_of(app).startswith("tls.ciphers 'nonsense': OpenSSL knows none of them")


def test_a_certificate_of_many_megabytes_has_one_line(pem_folder: Path, tmp_path: Path) -> None:
    large = tmp_path / "large.pem"
    with large.open("wb") as file:
        file.write(b"-----BEGIN CERTIFICATE-----\n")
        file.truncate(30_000_000)
    small = tls_problem(Tls(certificate_path=f"{pem_folder}/a.pem", key_path=f"{pem_folder}/a.key"))
    assert small == ""
    for chain, key, name in (
        (large, pem_folder / "a.key", "tls.certificate_path"),
        (pem_folder / "a.pem", large, "tls.key_path"),
    ):
        found = tls_problem(Tls(certificate_path=str(chain), key_path=str(key)))
        assert found.startswith(f"{name} {large}: 30000000 bytes are too many, at most 16777216 are read: ")


def test_whatever_openssl_raises_for_a_certificate_is_one_line(
    pem_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It raised OSError with ENOMEM for a line of 30 MB; a reload logged tracebacks."""

    def load(*_args: object, **_more: object) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", load)
    with pytest.raises(
        StartError, match=r"^tls\.certificate_path .*/a\.pem: its certificate is damaged: .*$"
    ):
        ServerTls(
            Tls(
                certificate_path=f"{pem_folder}/a.pem",
                key_path=f"{pem_folder}/a.key",
                client_ca_path=f"{pem_folder}/ca.pem",
            )
        )


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"ca_certificate_file": "none"},
            '"kafka.ca_cert_file: open {0}/none: no such file or directory" (ca_certificate_file {0}/none: ',
        ),
        (
            {"ca_certificate_file": "junk"},
            '"kafka.ca_cert_file does not appear to be a valid CA certificate" (ca_certificate_file {0}/junk: '
            "holds no certificate in PEM format",
        ),
        (
            {"client_certificate_file": "a.pem", "client_key_file": "b.key"},
            '"kafka.client_cert_file and kafka.client_cert_key_file are not a valid certificate pair" '
            "(client_key_file {0}/b.key: is not the key of the certificate {0}/a.pem: ",
        ),
        (
            {"client_certificate_file": "a.pem", "client_key_file": "locked.key"},
            "(client_key_file {0}/locked.key: has a pass phrase",
        ),
        ({"client_key_file": "a.key"}, "(client_key_file {0}/a.key needs client_certificate_file: set both)"),
        (
            {"client_certificate_file": "a.pem"},
            "(client_key_file {0}/a.pem: holds a certificate and no private",
        ),
    ],
)
def test_the_original_s_text_on_tls_towards_kafka_is_explained(
    fields: dict[str, str], text: str, pem_folder: Path
) -> None:
    kafka = Kafka(tls=True, **{name: f"{pem_folder}/{value}" for name, value in fields.items()})
    with pytest.raises(ConfigError) as caught:
        validate(App(proxies={"default": Proxy(kafka=kafka)}))
    assert text.format(pem_folder) in str(caught.value)


def unix_problems(folder: Path) -> dict[str, str]:
    long = f"{folder}/{'x' * 120}"
    return {
        long: f"the path has {len(long)} bytes, and at most {MAX_UNIX_PATH} are possible: choose a shorter one",
        f"{folder}/none/s": f"the directory {folder}/none does not exist: create it, or choose another path",
        f"{folder}/junk/s": f"{folder}/junk is a file: choose a path in a directory",
        f"{folder}/junk": "something that is no socket is there: remove it, or choose another path",
    }


def test_config_check_says_why_a_unix_socket_cannot_be_made(pem_folder: Path) -> None:
    for path, why in unix_problems(pem_folder).items():
        done = run_in_process(lambda path=path: main(["config", "check", f"--unixAddr={path}"]))
        assert done.returncode == 1 and done.stdout == b""
        assert done.stderr.decode() == f"kafka-pixy config: unix_addr {path}: {why}\n"


def test_a_path_of_the_longest_length_can_be_bound_and_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the folder's own path may be longer
    for size in (MAX_UNIX_PATH, MAX_UNIX_PATH + 1):
        path = "s" * size
        app = App(unix_addr=path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
            if size > MAX_UNIX_PATH:
                assert f"has {size} bytes" in problem_of(app)
                with pytest.raises(OSError, match="too long"):
                    made.bind(path)
            else:
                assert problem_of(app) == ""
                made.bind(path)
                assert problem_of(app) == "", (
                    "a socket may be there: of a daemon that runs, or that has crashed"
                )


def test_a_path_without_a_folder_and_a_tcp_address_are_no_problem() -> None:
    assert problem_of(App(unix_addr="pixy.sock")) == ""
    assert problem_of(App(unix_addr="localhost:80")) == ""


NOBODY = 65_534


def test_a_folder_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500 if os.geteuid() else 0o755)
    monkeypatch.chdir(tmp_path)  # pytest's own folders are open to their owner alone
    tmp_path.chmod(0o755)
    if not os.geteuid():
        os.seteuid(NOBODY)
    try:
        assert problem_of(App(unix_addr="closed/s")) == (
            "unix_addr closed/s: no right to write to closed: choose a path in a directory of the daemon's user"
        )
    finally:
        if not os.getuid():
            os.seteuid(0)
