"""``kafka-pixy doctor``: checks what a daemon needs here, and says what to do about what it lacks."""

from __future__ import annotations

import errno
import os
import resource
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

import click
import grpc

from pixy.cli.shell.errors import NO_TLS, NO_TLS_THERE, CallError, DaemonGone, WrongServer
from pixy.cli.shell.framework import Command, with_connection
from pixy.cli.shell.output import Output
from pixy.cli.shell.session import Session, Settings
from pixy.cli.shell.times import clock_ahead
from pixy.cli.shell.values import check_texts
from pixy.config.addresses import split_address
from pixy.config.model import App, Proxy

OK, WARN, FAIL = "ok", "warn", "fail"
_FEW_FILES: Final = 4096
"""Open files that some 400 groups need: each has about eight."""
_PATIENCE: Final = 5.0
"""Seconds that a broker or a daemon has to answer."""
_CLOCK: Final = 2.0
"""Seconds that two clocks may differ."""
_SERVER: Final = "localhost:19091"
"""The address of a daemon if the configuration names no gRPC port."""
_MOST_FINDINGS: Final = 20
"""Findings of a running daemon that are shown; /findings has all."""
_NEVER: Final = "kafka-pixy-doctor"
"""A topic that is only checked, never created."""


class Finding(NamedTuple):
    """One thing that was checked.

    Attributes:
        result: ``ok``, ``warn`` or ``fail``.
        check: what was checked.
        found: what is so.
        todo: what to do about it; empty if nothing.
    """

    result: str
    check: str
    found: str
    todo: str = ""


@click.command(
    "doctor",
    cls=Command,
    examples={
        "kafka-pixy doctor": "the default configuration, and a daemon with it on this machine",
        "kafka-pixy doctor --config /etc/kafka-pixy.yaml --json": "",
    },
    exits={
        0: "nothing failed",
        1: "something failed: the last column says what to do",
        2: "wrong command line",
    },
    help="Check the configuration, ports, open files, Kafka (reachability, versions, rights), and the clock of a running daemon. "
    "Without --server, KAFKA_PIXY_SERVER or a profile it is looked for where the configuration says. Nothing is changed.",
)
@click.option(
    "--config",
    default="",
    type=click.Path(),
    metavar="FILE",
    help="The daemon's configuration.  [default: $KAFKA_PIXY_CONFIG]",
)
@click.option("--kafkaPeers", "peers", default="", help="As the daemon's flag.")
@with_connection
def doctor(config: str, peers: str, output: str, as_json: bool, **given: Any) -> int:
    """Check everything; return 1 if something failed."""
    ctx = click.get_current_context()
    check_texts(ctx)
    if ctx.get_parameter_source("server") is click.core.ParameterSource.DEFAULT:
        given["server"] = ""
    findings = list(check(config, peers, Settings(**given)))
    rows = [list(each) for each in findings]
    documents = [each._asdict() for each in findings]
    Output("json" if as_json else output).result(documents, ("result", "check", "found", "what to do"), rows)
    return int(any(each.result == FAIL for each in findings))


def check(config: str, peers: str, settings: Settings) -> Iterator[Finding]:
    """Make all checks.

    Args:
        config: a file, or empty.
        peers: seed brokers that override the file's, or empty.
        settings: of the connection to a running daemon; without a server it is the one that the configuration
            describes, on this machine.
    """
    from pixy.cli import flags
    from pixy.cli.start_problems import start_problem
    from pixy.config.files import problem_of
    from pixy.errors import ConfigError

    arguments = [f"--config={config}"] if config else []
    arguments += [f"--kafkaPeers={peers}"] if peers else []
    try:
        _, app = flags.parse(arguments)
    except ConfigError as error:
        yield Finding(
            FAIL,
            "configuration",
            " ".join(str(error).split()),
            "correct it: kafka-pixy config check says more",
        )
        return
    yield Finding(
        OK, "configuration", f"{config or 'defaults and environment'}: {len(app.proxies)} cluster(s)"
    )
    problem = problem_of(app)
    if problem:
        yield Finding(FAIL, "files", *_split(problem))
    elif app.tls.certificate_path or app.unix_addr:
        yield Finding(OK, "files", "certificates and the unix socket's path can be used")
    if not problem and (problem := start_problem(app)):
        yield Finding(FAIL, "start", problem, "correct it, or the daemon does not start")
    yield _open_files()
    finding, running = _daemon(settings if settings.server else _here(app, settings))
    yield finding
    yield from _admin(app, settings, running)
    yield from _ports(app, running and (not settings.server or _is_here(settings.server, app)))
    for name, proxy in app.proxies.items():
        yield from _kafka(name, proxy, running=running, guessed=running and not (config or peers))


def _split(problem: str) -> tuple[str, str]:
    """Split a problem that ends with what to do."""
    found, _, todo = problem.rpartition(": ")
    return found, todo


def _open_files() -> Finding:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY or most >= _FEW_FILES:
        shown = "unlimited" if most == resource.RLIM_INFINITY else str(most)
        return Finding(OK, "open files", f"at most {shown}")
    return Finding(
        WARN, "open files", f"at most {most}", "each group takes about 8: raise it (ulimit -Hn, LimitNOFILE)"
    )


def _here(app: App, settings: Settings) -> Settings:
    """Return how to reach a daemon with this configuration on this machine."""
    try:
        host, port = split_address(app.grpc_addr)
    except ValueError:
        host, port = None, 0
    if not host or host in ("0.0.0.0", "::"):
        host = "localhost"
    server = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    tls = settings.tls or bool(app.tls.certificate_path)
    return replace(settings, server=server if port else _SERVER, tls=tls)


def _is_here(server: str, app: App) -> bool:
    """Return whether a daemon's address is the one that the configuration gives it on this machine."""
    try:
        host, port = split_address(server)
        if port != split_address(app.grpc_addr)[1]:
            return False
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return False
    return any(_can_be_bound(family, address) for family, *_, address in found)


def _can_be_bound(family: int, address: Any) -> bool:
    """Return whether an address is one of this machine's."""
    try:
        with socket.socket(family) as trial:
            trial.bind(address)
    except OSError:
        return False
    return True


def _daemon(settings: Settings) -> tuple[Finding, bool]:
    """Ask a daemon; also return whether there is one."""
    from pixy.proto import kafkapixy_pb2 as pb

    server, began = settings.server, time.time()
    try:
        with Session(settings) as session:
            found = session.call("GetStatus", pb.GetStatusRq(), _PATIENCE)
    except DaemonGone as error:
        if NO_TLS_THERE in error.details:
            return Finding(WARN, "daemon", error.details, NO_TLS), True
        if isinstance(error, WrongServer) and "certificate" not in error.details:
            return Finding(WARN, "daemon", error.details, "name its gRPC port with --server"), False
        if "certificate" in error.details or "handshake" in error.details:
            todo = "name its CA with --ca, and --cert and --cert-key if it asks for a client's certificate"
            return Finding(WARN, "daemon", error.details, todo), settings.tls
        return Finding(
            WARN, "daemon", error.details, "start one (kafka-pixy), or name it with --server"
        ), False
    except CallError as error:
        if error.status is grpc.StatusCode.DEADLINE_EXCEEDED:
            return Finding(WARN, "daemon", error.details, "see what it does: kill -USR1 its process"), False
        todo = "name who calls: KAFKA_PIXY_TOKEN, or ask somebody with rights"
        return Finding(WARN, "daemon", f"{server} refuses: {error.details}", todo), True
    ahead = clock_ahead(found.time / 1000, began, time.time())
    if abs(ahead) > _CLOCK:
        shown = f"its clock is {ahead:+.1f} s from this machine's"
        return Finding(WARN, "daemon", shown, "synchronize the clocks (NTP)"), True
    return Finding(OK, "daemon", f"{server} answers: version {found.version}, up {found.uptime:.0f} s"), True


def _ports(app: App, running: bool) -> Iterator[Finding]:
    for key, address in (
        ("grpc_addr", app.grpc_addr),
        ("tcp_addr", app.tcp_addr),
        ("rest.addr", app.rest.addr),
        ("admin_addr", app.admin_addr),
    ):
        if not address:
            continue
        try:
            host, port = split_address(address)
            family = socket.AF_INET6 if ":" in (host or "") else socket.AF_INET
            with socket.create_server((host or "0.0.0.0", port), family=family):
                yield Finding(OK, key, f"{address} is free")
        except (OSError, ValueError, OverflowError) as error:
            in_use = getattr(error, "errno", 0) == errno.EADDRINUSE  # its text names the address again
            reason = os.strerror(errno.EADDRINUSE) if in_use else getattr(error, "strerror", "") or str(error)
            if running:
                yield Finding(OK, key, f"{address}: {reason.lower()} (a daemon runs here)")
            else:
                yield Finding(FAIL, key, f"{address}: {reason.lower()}", f"free it, or set another {key}")


def _admin(app: App, settings: Settings, running: bool) -> Iterator[Finding]:
    """Ask a daemon on this machine what it finds wrong with itself."""
    from pixy.cli.admin_client import AdminClient, AdminError, Connection, address_of

    url = address_of(app)
    if not url or not running:
        return
    connection = Connection(token_file=settings.token_file)
    if app.tls.certificate_path:
        ca = settings.ca or app.tls.certificate_path
        connection = Connection(True, ca, settings.cert, settings.cert_key, settings.token_file)
    try:
        found = AdminClient(url, connection).get("/findings", has="findings")["findings"]
    except AdminError as error:
        shown, _, todo = str(error).rpartition("; ")
        if not shown or " refuses: " in shown:
            shown, todo = (
                str(error),
                "name who calls, with the verb `console`: --token-file or KAFKA_PIXY_TOKEN",
            )
        yield Finding(WARN, "findings", shown, todo)
        return
    if not found:
        yield Finding(OK, "findings", f"{url}: nothing is wrong")
    for each in found[:_MOST_FINDINGS]:
        result = FAIL if each["severity"] == "error" else WARN
        yield Finding(result, each["rule"], each["cause"], each["todo"])


def _kafka(name: str, proxy: Proxy, *, running: bool = False, guessed: bool = False) -> Iterator[Finding]:
    """Check a cluster.

    Args:
        name: of the cluster.
        proxy: its configuration.
        running: whether a daemon runs.
        guessed: whether a daemon runs, and nobody has named its configuration: it may be another one than this.
    """
    from pixy.errors import PixyError
    from pixy.kafka import settings
    from pixy.kafka.brokers import Brokers, reason

    what = f"kafka ({name})"
    peers = ",".join(proxy.kafka.seed_peers)
    try:
        brokers = Brokers(settings.admin(proxy), _PATIENCE, keep=1)
    except (OSError, PixyError) as error:
        yield Finding(FAIL, what, str(error), "correct kafka.tls and its files")
        return
    try:
        found = brokers.topics()
    except (OSError, PixyError, ValueError) as error:
        why = reason(error)
        shown = f"{error} ({why})" if why != str(error) else why
        if guessed:
            todo = (
                "name the configuration of the daemon that runs (--config); a sandbox has no Kafka to check"
            )
            yield Finding(WARN, what, f"{peers}: {shown}", todo)
        else:
            maybe = "; a daemon with --sandbox has no Kafka to check" if running else ""
            yield Finding(FAIL, what, f"{peers}: {shown}", f"{_todo(error)}{maybe}")
        return
    try:
        yield Finding(
            OK,
            what,
            f"{peers}: {len(found.brokers)} broker(s), {len(found.partitions) + len(found.errors)} topics",
        )
        yield _protocols(what, proxy, brokers)
        yield _rights(what, brokers)
    finally:
        brokers.close()


def _todo(error: Exception) -> str:
    """Say what to do when no broker answers."""
    from pixy.kafka.brokers import causes
    from pixy.wire.connection import AuthenticationError

    found = tuple(causes(error))
    if any(isinstance(each, AuthenticationError) for each in found):
        return "correct net.sasl"
    if any(isinstance(each, ssl.SSLError) for each in found):
        return "correct kafka.tls and kafka.ca_certificate_file"
    return "is it running, and does kafka.seed_peers name its listener?"


def _protocols(what: str, proxy: Proxy, brokers: Any) -> Finding:
    """Find which group protocols the brokers know, and whether the configured one is among them."""
    from pixy.errors import PixyError
    from pixy.wire.exceptions import UnsupportedVersionError

    def asked(connection: Any) -> bool:
        try:
            connection.version("ConsumerGroupHeartbeat")
        except UnsupportedVersionError:
            return False
        return True

    try:
        new = brokers.ask_any(asked)
    except PixyError as error:
        return Finding(FAIL, f"{what}: versions", str(error))
    shown = "classic and KIP-848 groups" if new else "classic groups only (before Kafka 4, or switched off)"
    if proxy.consumer.kafka_protocol == "consumer" and not new:
        return Finding(FAIL, f"{what}: versions", shown, f"set {_classic(proxy)}")
    return Finding(OK, f"{what}: versions", shown)


def _classic(proxy: Proxy) -> str:
    """Name the settings that choose classic groups."""
    wrong = {
        "consumer.membership: kafka": proxy.consumer.membership == "kafka-next",
        "consumer.group_protocol: classic": proxy.consumer.group_protocol == "consumer",
    }
    return " and ".join(each for each, is_wrong in wrong.items() if is_wrong)


def _rights(what: str, brokers: Any) -> Finding:
    from pixy.errors import InvalidParameter, PixyError
    from pixy.kafka.errors import UNSUPPORTED_CODES
    from pixy.kafka.topic_changes import NewTopic, TopicChanges

    where = f"{what}: rights"
    try:
        TopicChanges(brokers).create(NewTopic(_NEVER, 1, 1), validate_only=True)
    except InvalidParameter as error:
        return Finding(OK, where, f"topics can be created; a policy refused the trial: {error}")
    except PixyError as error:
        if getattr(error, "code", 0) in UNSUPPORTED_CODES:
            return Finding(OK, where, "the brokers cannot say (a sandbox?)")
        if "authorized" in str(error) or "authorization" in str(error).lower():
            return Finding(
                WARN, where, "topics may not be created", "grant Create, or set admin_changes: false"
            )
        return Finding(WARN, where, str(error))
    return Finding(OK, where, "topics may be listed and created")


__all__ = ["doctor"]
