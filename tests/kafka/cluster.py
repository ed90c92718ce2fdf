"""Start and stop real Kafka (KRaft, or with ZooKeeper) as child processes on free ports."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from pixy.wire.client import PartitionClient
from pixy.wire.errors import KafkaError
from tests import class_archives

if TYPE_CHECKING:
    import trustme

HERE = Path(__file__).parent
BUILD = HERE.parent.parent / "build" / "kafka"
CLUSTER_ID = "abcdefghijklmnopqrstuw"
USER, PASSWORD = "alice", "alice-secret"
OTHER_USER, OTHER_PASSWORD = "bob", "bob-secret"
"""Known to the mechanism PLAIN only."""


class Unavailable(Exception):
    """Java or Maven is missing."""


def libs(major: int) -> Path:
    """Return the folder with Kafka's jars, fetching them the first time.

    Raises:
        Unavailable: a tool is missing.
    """
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    if missing:
        raise Unavailable(f"{' and '.join(missing)} not found: real Kafka cannot be started")
    target = BUILD / str(major)
    target.mkdir(parents=True, exist_ok=True)
    with _locked(f"{major}.lock"):
        _fetch(major, target)
    return target


@contextlib.contextmanager
def _locked(name: str) -> Iterator[None]:
    """Hold a lock file: pytest-xdist runs tests in several processes."""
    with (BUILD / name).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(major: int, target: Path) -> None:
    if not (target / ".complete").exists():
        # Maven ends with escape sequences, whatever -B says, and wherever its output goes.
        options = f"{os.environ.get('MAVEN_OPTS', '')} -Djansi.noreset=true".strip()
        subprocess.run(
            [
                "mvn",
                "-q",
                "-B",
                "-f",
                str(HERE / f"pom-{major}.xml"),
                "dependency:copy-dependencies",
                f"-DoutputDirectory={target}",
            ],
            env={**os.environ, "MAVEN_OPTS": options},
            check=True,
            timeout=900,
        )
        (target / ".complete").touch()


_PORTS = range(15_000, 32_000)
"""Below those that the kernel gives to clients: one of these could take the port of a broker that is down for a while."""


def free_port() -> int:
    """A TCP port on loopback that is free now."""
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def tied(command: list[str]) -> list[str]:
    """The command, so that its process is killed when this one dies, however it dies; on Linux.

    Not by ``preexec_fn``: Python code between fork and exec crashes now and then among threads of gRPC and librdkafka.
    """
    setpriv = shutil.which("setpriv")
    return command if setpriv is None else [setpriv, "--pdeathsig", "KILL", "--", *command]


class Process:
    """A JVM that runs one class and writes its output to a file.

    Args:
        major: Kafka's major version.
        main: the class.
        config: its only argument.
        heap: the JVM's ``-Xmx``.
        log: file for its output.
        brief: compile with the simple compiler only, which costs less than it saves in a JVM of minutes.
    """

    def __init__(self, major: int, main: str, config: Path, heap: str, log: Path, *, brief: bool) -> None:
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                tied(
                    [
                        "java",
                        f"-Xmx{heap}",
                        f"-Xms{heap}",
                        "-XX:+UseSerialGC",
                        *(["-XX:TieredStopAtLevel=1"] if brief else []),
                        *(class_archives.use(class_archives.KAFKA) if brief and major == 4 else []),
                        f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}",
                        f"-Dlog4j.configuration=file:{HERE / 'log4j.properties'}",
                        "-cp",
                        f"{libs(major)}/*",
                        main,
                        str(config),
                    ]
                ),
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
            )

    def check(self) -> None:
        """Raise if the process has ended."""
        if self._process.poll() is not None:
            raise RuntimeError(f"broker ended: {self.log.read_text()[-3000:]}")

    @property
    def ended(self) -> bool:
        """Whether the process runs no more."""
        return self._process.poll() is not None

    def signal(self, number: int) -> None:
        """Send a signal. After SIGSTOP no thread of the process runs any more: on a busy machine that takes some time."""
        self._process.send_signal(number)
        if number == signal.SIGSTOP:
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def kill(self) -> None:
        """Kill the process without warning, as a power failure does."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Terminate the process; kill it if it still runs after 20 s."""
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()


def tool(major: int, main: str, *args: str) -> str:
    """Run one of Kafka's own tools and return its output.

    Args:
        major: Kafka's major version, 3 or 4.
        main: the tool's class.
        args: its command line.
    """
    done = subprocess.run(
        [
            "java",
            f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}",
            "-cp",
            f"{libs(major)}/*",
            main,
            *args,
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{main}: {done.stdout}{done.stderr}")
    return done.stdout


def _format(node: int, target: Path) -> None:
    """Format a broker's folder as ``kafka-storage format`` does, without a JVM for each.

    The tool runs once; what it writes besides the numbers of the node is the same for all.
    """
    checkpoint = libs(4) / "bootstrap.checkpoint"
    with _locked("4.format.lock"):
        if not checkpoint.exists():
            _run_format(checkpoint)
    target.mkdir()
    shutil.copyfile(checkpoint, target / checkpoint.name)
    directory = base64.urlsafe_b64encode(b"\1" + secrets.token_bytes(15)).decode().rstrip("=")
    (target / "meta.properties").write_text(
        f"version=1\ncluster.id={CLUSTER_ID}\nnode.id={node}\ndirectory.id={directory}\n"
    )


def _run_format(checkpoint: Path) -> None:
    scram = f"[name={USER},password={PASSWORD}]"
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        config = Path(folder, "node.properties")
        config.write_text(
            f"log.dirs={folder}/data\nprocess.roles=broker,controller\nnode.id=1\n"
            "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n"
            "controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@127.0.0.1:9093\n"
        )
        tool(
            4,
            "kafka.tools.StorageTool",
            "format",
            "-t",
            CLUSTER_ID,
            "-c",
            str(config),
            "--add-scram",
            f"SCRAM-SHA-256={scram}",
            "--add-scram",
            f"SCRAM-SHA-512={scram}",
        )
        Path(folder, "data", "bootstrap.checkpoint").rename(checkpoint)


def _new_ca() -> trustme.CA:
    import trustme  # only installed for tests; a cluster without TLS does not need it (make pipeline-demo)

    return trustme.CA()


@dataclass
class Certificates:
    """A certificate authority and the certificates that it issues."""

    folder: Path
    ca: trustme.CA = field(default_factory=_new_ca)

    def __post_init__(self) -> None:
        self.ca_file = str(self.folder / "ca.pem")
        self.ca.cert_pem.write_to_path(self.ca_file)

    def issue(self, name: str) -> tuple[str, str, str]:
        """Issue a certificate for localhost.

        Returns:
            The paths of the certificate, of its key, and of a file with both.
        """
        made = self.ca.issue_cert("localhost", "127.0.0.1", common_name=name)
        cert, key, both = (str(self.folder / f"{name}.{end}") for end in ("crt", "key", "pem"))
        Path(cert).write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        made.private_key_pem.write_to_path(key)
        # Java reads only PKCS#8 keys from a PEM key store.
        subprocess.run(
            ["openssl", "pkcs8", "-topk8", "-nocrypt", "-in", key, "-out", f"{key}.p8"], check=True
        )
        Path(both).write_bytes(Path(f"{key}.p8").read_bytes() + Path(cert).read_bytes())
        return cert, key, both


class Cluster:
    """Kafka brokers, ready when the constructor returns.

    Args:
        nodes: how many brokers; KRaft brokers are controllers too.
        secure: add listeners with TLS, with SASL, and with both.
        rebalance_delay: milliseconds of ``group.initial.rebalance.delay.ms``.
        auto_create: let brokers create topics that a client names.
        heap: each broker's heap, as the JVM's ``-Xmx`` takes it.
        zookeeper: run Kafka 3.9 on ZooKeeper instead of Kafka 4 on KRaft.
        brief: start fast rather than run fast (tests do, benchmarks do not).
        properties: more properties of the brokers.
        advertised: more plaintext listeners by name: the port that each broker (1, 2, ...) advertises there,
            such as the port of a TCP proxy in front of it. :attr:`ports` has the ports that it listens on.
        data: folders for the data of brokers (1, 2, ...) that shall not have it in :attr:`folder`.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        secure: bool = False,
        rebalance_delay: int = 0,
        auto_create: bool = False,
        heap: str = "384m",
        zookeeper: bool = False,
        brief: bool = False,
        properties: dict[str, object] | None = None,
        advertised: Mapping[str, Mapping[int, int]] | None = None,
        data: Mapping[int, Path] | None = None,
    ) -> None:
        self.major = 3 if zookeeper else 4
        self.folder = Path(tempfile.mkdtemp(prefix="kafka-"))
        self.certificates = Certificates(self.folder) if secure else None
        self._secure, self._heap, self._brief = secure, heap, brief
        self._properties = properties or {}
        self._options = (rebalance_delay, auto_create, nodes)
        self._advertised, self._data = dict(advertised or {}), dict(data or {})
        self._processes: dict[int, Process] = {}
        self._zookeeper: Process | None = None
        self._admin: AdminClient | None = None
        self._controllers = {node: free_port() for node in range(1, nodes + 1)}
        self.ports: dict[int, dict[str, int]] = {
            node: {
                name: free_port()
                for name in (
                    "PLAINTEXT",
                    *(("SSL", "SASL_PLAINTEXT", "SASL_SSL") if secure else ()),
                    *self._advertised,
                )
            }
            for node in range(1, nodes + 1)
        }
        try:
            if zookeeper:
                self._start_zookeeper()
            for node in self.ports:
                self._prepare(node)
                self.start(node)
            self.wait_ready()
        except BaseException:
            self.close()
            raise

    def bootstrap(self, listener: str = "PLAINTEXT") -> list[str]:
        """The addresses of one listener, one of each broker."""
        return [f"localhost:{ports[listener]}" for ports in self.ports.values()]

    def admin(self) -> AdminClient:
        """An admin client for preparations; kept, because its futures end with it."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": ",".join(self.bootstrap()), "log_level": 0})
        return self._admin

    def admin_without(self, node: int) -> AdminClient:
        """An admin client that has never heard of a broker, once the others do not count one that was killed any more.

        Another one may send its requests there, and waits for the answers until they time out.
        """
        others = [address for each, address in zip(self.ports, self.bootstrap(), strict=True) if each != node]
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            admin = AdminClient({"bootstrap.servers": ",".join(others), "log_level": 0})
            if node not in admin.list_topics(timeout=10).brokers:
                return admin
            time.sleep(0.1)
        raise RuntimeError(f"broker {node} is still a member")

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> str:
        """Create a topic and wait until all its partitions have a leader."""
        admin = self.admin()
        replicas = min(3, len(self.ports))
        admin.create_topics([NewTopic(name, partitions, replicas, config=config)])[name].result(30)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            found = admin.list_topics(name, timeout=10).topics[name].partitions.values()
            if len(found) == partitions and all(info.leader >= 0 for info in found):
                return name
            time.sleep(0.02)
        raise RuntimeError(f"{name} has no leaders")

    def made(self, topic: NewTopic, admin: AdminClient | None = None) -> bool:
        """Make a topic, unless an old one of its name is still being deleted; return whether it was made."""
        try:
            (admin or self.admin()).create_topics([topic])[topic.topic].result(30)
        except Exception as error:
            if "TOPIC_ALREADY_EXISTS" not in str(error):
                raise
            return False
        return True

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the records of a partition below an offset.

        Not by AdminClient (librdkafka 2.16), which asks the leaders that it remembers from before a broker was away.
        """
        wanted = {"Name": topic, "Partitions": [{"PartitionIndex": partition, "Offset": before}]}
        with PartitionClient(self.bootstrap(), topic, partition) as leader:
            answer = leader.call("DeleteRecords", {"Topics": [wanted], "TimeoutMs": 20_000})
        if code := answer["Topics"][0]["Partitions"][0]["ErrorCode"]:
            raise KafkaError(code, f"{topic}/{partition}")

    def _start_zookeeper(self) -> None:
        port = free_port()
        self.zookeeper = f"127.0.0.1:{port}"
        config = self.folder / "zookeeper.properties"
        config.write_text(
            f"dataDir={self.folder / 'zk'}\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
            "admin.enableServer=false\nmaxClientCnxns=0\n"
        )
        self._zookeeper = Process(
            3,
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            config,
            "256m",
            self.folder / "zookeeper.log",
            brief=True,
        )

    def _prepare(self, node: int) -> None:
        rebalance_delay, auto_create, nodes = self._options
        ports = self.ports[node]
        listeners = [f"{name}://127.0.0.1:{port}" for name, port in ports.items()]
        advertised = [
            f"{name}://localhost:{self._advertised[name][node] if name in self._advertised else port}"
            for name, port in ports.items()
        ]
        replication = min(3, nodes)
        lines = {
            "log.dirs": str(self._data.get(node, self.folder / f"data-{node}")),
            "advertised.listeners": ",".join(advertised),
            "offsets.topic.replication.factor": replication,
            "offsets.topic.num.partitions": 8,
            "transaction.state.log.replication.factor": replication,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": replication,
            "share.coordinator.state.topic.min.isr": 1,
            "share.coordinator.state.topic.num.partitions": 4,
            "default.replication.factor": replication,
            "min.insync.replicas": 2 if nodes > 2 else 1,
            "num.partitions": 4,
            "group.initial.rebalance.delay.ms": rebalance_delay,
            "auto.create.topics.enable": str(auto_create).lower(),
            "log.cleaner.backoff.ms": 500,
            # It looks at each partition; with the thousand that tests leave, twice a second takes 2 % of a processor.
            "log.retention.check.interval.ms": 2000,
            "log.initial.task.delay.ms": 500,
            "controlled.shutdown.enable": "true",
        }
        if self.major == 3:
            lines |= {
                "broker.id": node,
                "zookeeper.connect": self.zookeeper,
                "listeners": ",".join(listeners),
            }
            lines.pop("log.initial.task.delay.ms")
        else:
            lines |= {
                "process.roles": "broker,controller",
                "node.id": node,
                "listeners": ",".join([*listeners, f"CONTROLLER://127.0.0.1:{self._controllers[node]}"]),
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": ",".join(
                    f"{n}@127.0.0.1:{port}" for n, port in self._controllers.items()
                ),
                "inter.broker.listener.name": "PLAINTEXT",
                "broker.heartbeat.interval.ms": 500,
                "broker.session.timeout.ms": 3000,
                # The controller writes a record of nothing that often, 0.5 s by default: 4 of the 10 % of a
                # processor that three idle brokers take.
                "metadata.max.idle.interval.ms": 10_000,
            }
        if nodes > 1:
            # Only clients that name their rack read from followers.
            selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
            lines |= {"broker.rack": f"rack-{node}", "replica.selector.class": selector}
        if self._secure:
            lines |= self._security()
        elif self._advertised:
            names = ("PLAINTEXT", *self._advertised, *(("CONTROLLER",) if self.major == 4 else ()))
            lines["listener.security.protocol.map"] = ",".join(f"{name}:PLAINTEXT" for name in names)
        lines |= self._properties
        config = self.folder / f"node-{node}.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        if self.major == 4:
            _format(node, self._data.get(node, self.folder / f"data-{node}"))

    def _security(self) -> dict[str, object]:
        assert self.certificates is not None
        _, _, both = self.certificates.issue("broker")
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
        bearer = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
        lines: dict[str, object] = {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,"
            "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": both,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.certificates.ca_file,
            "listener.name.ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            # Whoever comes without SASL or TLS may do everything; others what is nobody's, or theirs by an ACL.
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": "true",
        }
        for listener in ("sasl_plaintext", "sasl_ssl"):
            lines |= {
                f"listener.name.{listener}.plain.sasl.jaas.config": f'{plain} required user_{USER}="{PASSWORD}" '
                f'user_{OTHER_USER}="{OTHER_PASSWORD}";',
                f"listener.name.{listener}.scram-sha-256.sasl.jaas.config": f"{scram} required;",
                f"listener.name.{listener}.scram-sha-512.sasl.jaas.config": f"{scram} required;",
                # Tokens without a signature, and sessions that a client must renew soon (KIP-368).
                f"listener.name.{listener}.oauthbearer.sasl.jaas.config": f"{bearer} required "
                f'unsecuredLoginStringClaim_sub="{USER}";',
                f"listener.name.{listener}.oauthbearer.connections.max.reauth.ms": 1500,
            }
        return lines

    def start(self, node: int) -> None:
        """Start a broker that is not running."""
        self._processes[node] = Process(
            self.major,
            "kafka.Kafka",
            self.folder / f"node-{node}.properties",
            self._heap,
            self.folder / f"node-{node}.log",
            brief=self._brief,
        )

    def kill(self, node: int) -> None:
        """Kill a broker without warning, as a power failure does."""
        self._processes.pop(node).kill()

    def signal(self, node: int, number: int) -> None:
        """Send a signal to a broker that is running."""
        self._processes[node].signal(number)

    def stop(self, node: int) -> None:
        """Stop a broker: it hands over its leaderships first."""
        self._processes.pop(node).stop()

    def running(self, node: int) -> bool:
        """Whether a broker's process runs."""
        return node in self._processes and not self._processes[node].ended

    def ended(self) -> list[int]:
        """The brokers that nobody stopped and that do not run."""
        return [node for node, process in self._processes.items() if process.ended]

    def wait_ready(self, nodes: int | None = None) -> None:
        """Wait until ``nodes`` brokers, or all, are members of the cluster; raise after 90 s.

        A broker that was killed is still a member in the eyes of the others until its session ends, or until it
        registers anew, which it does before it listens: so each that runs has to listen first.
        """
        wanted = len(self.ports) if nodes is None else nodes
        admin = AdminClient(
            {
                "bootstrap.servers": ",".join(self.bootstrap()),
                "log_level": 0,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
            }
        )
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            for process in self._processes.values():
                process.check()
            try:
                if self._listen() and len(admin.list_topics(timeout=2).brokers) >= wanted:
                    return
            except KafkaException:
                pass
            time.sleep(0.05)
        raise RuntimeError("Kafka did not start in 90 s")

    def _listen(self) -> bool:
        """Whether all brokers that run accept connections."""
        for node in self._processes:
            try:
                socket.create_connection(("127.0.0.1", self.ports[node]["PLAINTEXT"]), 2).close()
            except OSError:
                return False
        return True

    def close(self) -> None:
        """Stop everything and remove the data."""
        self._admin = None  # it would log errors about the stopped brokers
        for process in self._processes.values():
            process.kill()
        if self._zookeeper is not None:
            self._zookeeper.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


__all__ = [
    "OTHER_PASSWORD",
    "OTHER_USER",
    "PASSWORD",
    "USER",
    "Certificates",
    "Cluster",
    "Unavailable",
    "free_port",
]
