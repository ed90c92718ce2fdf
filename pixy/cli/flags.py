"""Parse the daemon's flags: the original's names, with one dash or two. A flag overrides the file."""

from __future__ import annotations

import argparse
import difflib
import itertools
from collections.abc import Sequence
from typing import NoReturn

from pixy import __version__
from pixy.cli import COMMANDS, EXAMPLES, EXITS, PROGRAMS
from pixy.cli.arguments import Parser
from pixy.config import App, Proxy, load_app, load_text
from pixy.config.effective import checked, rows
from pixy.config.kinds import Workers, seconds
from pixy.config.load import Origins
from pixy.config.security import Identities
from pixy.errors import ConfigError

SANDBOX_SEEDS = ["sandbox"]
_SANDBOX_SESSION, _SANDBOX_HEARTBEAT = seconds(6), seconds(2)
"""Of a group's member there, at most; the first member of a group waits for three until it has joined."""

_TEXTS = (
    ("config", "FILE", "path to a YAML configuration file (default: $KAFKA_PIXY_CONFIG, or none)"),
    ("grpcAddr", "ADDR", "TCP address of the gRPC API (default 127.0.0.1:19091)"),
    ("tcpAddr", "ADDR", "TCP address of the HTTP API (default 127.0.0.1:19092)"),
    ("adminAddr", "ADDR", "TCP address of the console and metrics, such as 127.0.0.1:19093 (default: none)"),
    ("unixAddr", "PATH", "unix domain socket of the HTTP API (default: none)"),
    ("kafkaPeers", "PEERS", "comma separated list of seed brokers (default localhost:9092)"),
    ("zookeeperPeers", "PEERS", "comma separated list of ZooKeeper nodes and an optional chroot"),
    ("pidFile", "FILE", "file to write the process id to, once the ports are bound"),
    ("logging", "JSON", 'loggers as a JSON array, such as \'[{"name":"json","severity":"info"}]\''),
    ("caCertFile", "FILE", "CA certificate of the Kafka brokers"),
    ("clientCertFile", "FILE", "client certificate for the Kafka brokers"),
    ("clientCertKeyFile", "FILE", "key of the client certificate"),
)
_SWITCHES = (
    ("tls", "connect to Kafka over TLS"),
    ("insecureTLS", "do not verify the Kafka brokers' certificates"),
    ("insecure", "serve anybody who reaches the daemon, also on addresses other than this host's own"),
    ("waitForKafka", "wait until the brokers answer, instead of failing to start"),
    ("sandbox", "serve an embedded in-memory stand-in for Kafka instead of every cluster, to try things out"),
)


_KEYS = """\
keys of a cluster, such as consumer.ack_timeout and kafka.tls, stand below
  proxies.<cluster> in the file: proxies.default.consumer.ack_timeout"""
_FLAGS = {
    "grpc_addr": "grpcAddr",
    "tcp_addr": "tcpAddr",
    "unix_addr": "unixAddr",
    "admin_addr": "adminAddr",
    "logging": "logging",
    "tls": "tls",
    "insecure": "insecureTLS",
    "ca_certificate_file": "caCertFile",
    "client_certificate_file": "clientCertFile",
    "client_key_file": "clientCertKeyFile",
}
"""The flag that sets a key, by the key's last name."""
_OF_SANDBOX = (
    "consumer.heartbeat_interval",
    "consumer.session_timeout",
    "kafka.seed_peers",
    "kafka.tls",
    "net.sasl.enable",
    "identities.users",
    "identities.others",
    "identities.max",
    "identities.idle_timeout",
    "server.workers",
)
"""The ends of the keys that --sandbox sets in every cluster."""


class UsageError(ConfigError):
    """The command line is invalid."""


class _Parser(Parser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message + self.meant(message))


def _switch(text: str) -> bool:
    if text.lower() in ("1", "t", "true"):
        return True
    if text.lower() in ("0", "f", "false"):
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of the daemon's command line."""
    commands = "\n".join(f"  kafka-pixy {name:<10} {what}" for name, what in (COMMANDS | PROGRAMS).items())
    parser = _Parser(
        prog="kafka-pixy",
        add_help=False,
        allow_abbrev=False,
        examples=EXAMPLES,
        exits=EXITS,
        description="gRPC and REST proxy for Apache Kafka. Without a command it serves.",
        epilog=f"commands, each with --help:\n{commands}\n\n{_KEYS}",
    )
    for name, shown, text in _TEXTS:
        parser.add_argument(f"-{name}", f"--{name}", metavar=shown, default="", help=text)
    for name, text in _SWITCHES:
        parser.add_argument(
            f"-{name}",
            f"--{name}",
            nargs="?",
            const=True,
            default=None,
            type=_switch,
            metavar="BOOL",
            help=text,
        )
    parser.add_argument("-h", "-help", "--help", action="help", help="show this and exit")
    parser.add_argument("-version", "--version", action="version", version=f"kafka-pixy {__version__}")
    return parser


def parse(args: Sequence[str], origins: Origins | None = None) -> tuple[argparse.Namespace, App]:
    """Parse flags, load the file and the environment, and merge them.

    Args:
        args: the command line.
        origins: gets the origin of each value that is no default.

    Raises:
        ConfigError: a flag or the file is invalid.
    """
    flags = _parse(args)
    origins = {} if origins is None else origins
    app = load_app(flags.config, origins=origins)
    before = {row.key: row.value for row in rows(app, origins)}
    _apply(app, flags)
    for key, value, _ in rows(app, origins):
        if key not in before or before[key] != value:
            origins[key] = f"--{_flag_of(key, flags)}"
    return flags, checked(app, origins)


def _flag_of(key: str, flags: argparse.Namespace) -> str:
    """Return the name of the flag that has set a key."""
    if key.endswith("kafka.seed_peers") and flags.kafkaPeers:
        return "kafkaPeers"
    if flags.sandbox and key.endswith(_OF_SANDBOX):
        return "sandbox"
    if ".zoo_keeper." in key:
        return "zookeeperPeers"
    return "insecure" if key == "insecure" else _FLAGS[key.rpartition(".")[2]]


def _parse(args: Sequence[str]) -> argparse.Namespace:
    if args and not args[0].startswith("-"):
        close = difflib.get_close_matches(args[0], [*COMMANDS, *PROGRAMS, "serve"], 1)
        meant = f", did you mean {close[0]!r}?" if close else ""
        raise UsageError(f"unknown command {args[0]!r}{meant} (see --help)")
    try:
        found = make_parser().parse_args(args)
    except UsageError as error:
        raise UsageError(f"bad command line: {_misplaced(args) or error} (see --help)") from None
    if found.sandbox and found.kafkaPeers:
        raise UsageError(
            "bad command line: --sandbox stands in for Kafka, so --kafkaPeers cannot be given with it (see --help)"
        )
    return found


def _misplaced(args: Sequence[str]) -> str:
    """Say that a command stands first, if one of wrong arguments is a command; empty if none is."""
    valued = {name for name, *_ in _TEXTS}
    own = valued | {name for name, _ in _SWITCHES}
    for at, (before, word) in enumerate(itertools.pairwise(args), 1):
        if word not in COMMANDS | PROGRAMS or before.lstrip("-") in valued:
            continue
        options = (each.partition("=")[0] for each in args[:at] if each.startswith("-"))
        foreign = next((each for each in options if each.lstrip("-") not in own), "")
        if foreign:
            return f"{foreign} belongs after the command: kafka-pixy {word} {foreign} ..."
        return f"{word!r} is a command, which stands first: kafka-pixy {word} ..."
    return ""


def _apply(app: App, flags: argparse.Namespace) -> None:
    app.grpc_addr = flags.grpcAddr or app.grpc_addr
    app.tcp_addr = flags.tcpAddr or app.tcp_addr
    app.unix_addr = flags.unixAddr or app.unix_addr
    app.admin_addr = flags.adminAddr or app.admin_addr
    app.insecure = app.insecure if flags.insecure is None else flags.insecure
    if flags.logging:
        app.logging = load_text(f"logging: {flags.logging}", name="--logging").logging
    proxy = app.proxies.get(app.cluster_name(""))
    if proxy is not None:  # validation says what is wrong
        _apply_to_cluster(proxy, flags)
    flags.notes = []
    if flags.sandbox:
        if app.server.processes > 1:
            flags.notes.append(
                f"--sandbox lives in the process that serves, so there is one instead of server.workers: {app.server.workers}"
            )
        app.server.workers = Workers("1")
        for each in app.proxies.values():
            _use_sandbox(each)


def _use_sandbox(proxy: Proxy) -> None:
    """Point a cluster at the sandbox, which has neither TLS nor SASL users: nothing may reach the brokers of the file.

    Whoever joins a group of the sandbox waits as long as the session of the member that has left would have lasted.
    """
    consumer = proxy.consumer
    consumer.session_timeout = min(consumer.session_timeout, _SANDBOX_SESSION)
    consumer.heartbeat_interval = min(consumer.heartbeat_interval, _SANDBOX_HEARTBEAT)
    proxy.kafka.seed_peers = list(SANDBOX_SEEDS)
    proxy.kafka.tls = False
    proxy.net.sasl.enable = False
    proxy.identities = Identities()


def _apply_to_cluster(proxy: Proxy, flags: argparse.Namespace) -> None:
    if flags.kafkaPeers:
        proxy.kafka.seed_peers = _peers(flags.kafkaPeers)
    if flags.zookeeperPeers:
        peers, slash, chroot = flags.zookeeperPeers.partition("/")
        proxy.zoo_keeper.seed_peers = _peers(peers)
        proxy.zoo_keeper.chroot = slash + chroot
    kafka = proxy.kafka
    kafka.tls = kafka.tls if flags.tls is None else flags.tls
    kafka.insecure = kafka.insecure if flags.insecureTLS is None else flags.insecureTLS
    kafka.ca_certificate_file = flags.caCertFile or kafka.ca_certificate_file
    kafka.client_certificate_file = flags.clientCertFile or kafka.client_certificate_file
    kafka.client_key_file = flags.clientCertKeyFile or kafka.client_key_file


def _peers(text: str) -> list[str]:
    return [peer for peer in (part.strip() for part in text.split(",")) if peer]
