"""Access to a cluster, from ``kafka.*`` options as for Java's client, or from the daemon's configuration.

Access travels to the executors, so it holds certificates and keys as text: their files may exist only on the
driver.
"""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pixy.pipeline.errors import UsageError
from pixy.wire.connection import Options, parse_address
from pixy.wire.sasl import Sasl

if TYPE_CHECKING:
    from pixy.config.model import Proxy

_JAAS = re.compile(r"\s*\S+\s+(required|requisite|sufficient|optional)\s+(?P<options>.*?);\s*\Z", re.DOTALL)
_JAAS_OPTION = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|(\S+))\s*""")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificates and keys as PEM text; an empty ``ca`` stands for the system's authorities."""

    ca: str = ""
    certificate: str = ""
    key: str = field(default="", repr=False)
    key_password: str | None = field(default=None, repr=False)
    check_hostname: bool = True
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """Return the context for the wire library; raises UsageError if a certificate or key is unusable."""
        try:
            ca = _ascii(self.ca)
            if self.ca and not ca.strip():
                raise ValueError("the authorities are not in PEM format")
            context = ssl.create_default_context(cadata=ca or None)
            if not (self.check_hostname and self.verify):
                context.check_hostname = False
            if not self.verify:
                context.verify_mode = ssl.CERT_NONE
            if self.certificate:
                with _file(_ascii(f"{self.certificate}\n{self.key}")) as path:
                    context.load_cert_chain(path, password=self.key_password or "")
        except (ssl.SSLError, ValueError) as error:
            raise UsageError(f"the TLS certificates or the key cannot be used: {error}") from error
        return context


@dataclass(frozen=True, slots=True)
class Access:
    """Addresses, security and timeouts of a cluster.

    Attributes:
        bootstrap: addresses of brokers, ``host:port``, or names of SRV records.
        sasl: mechanism, user and password.
        dial_timeout: for a connection with its TLS handshake, seconds.
        request_timeout: for a request, seconds.
    """

    bootstrap: tuple[str, ...]
    client_id: str = "kafka-pixy-spark"
    tls: Tls | None = None
    sasl: tuple[str, str, str] | None = field(default=None, repr=False)
    dial_timeout: float = 10.0
    request_timeout: float = 30.0

    def options(self) -> Options:
        """Return the options of the wire library."""
        made = Options(
            client_id=self.client_id, dial_timeout=self.dial_timeout, request_timeout=self.request_timeout
        )
        if self.tls is not None:
            made["tls"] = self.tls.context()
        if self.sasl is not None:
            made["sasl"] = Sasl(*self.sasl)
        return made

    def spark_options(self) -> dict[str, str]:
        """Return the data source's options that describe the same access."""
        found = {
            "bootstrap.servers": ",".join(self.bootstrap),
            "client.id": self.client_id,
            "security.protocol": ("SASL_" if self.sasl else "") + ("SSL" if self.tls else "PLAINTEXT"),
            "socket.connection.setup.timeout.ms": str(max(1, round(self.dial_timeout * 1000))),
            "request.timeout.ms": str(max(1, round(self.request_timeout * 1000))),
        }
        if self.sasl is not None:
            mechanism, user, password = (re.sub(r'([\\"])', r"\\\1", each) for each in self.sasl)
            found["sasl.mechanism"] = mechanism
            found["sasl.jaas.config"] = f'LoginModule required username="{user}" password="{password}";'
        found |= self._tls_options()
        made = {f"kafka.{name}": value for name, value in found.items()}
        return made | ({"insecure": "true"} if self.tls is not None and not self.tls.verify else {})

    def _tls_options(self) -> dict[str, str]:
        tls = self.tls
        if tls is None:
            return {}
        found = {} if tls.check_hostname or not tls.verify else {"ssl.endpoint.identification.algorithm": ""}
        if tls.ca:
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": tls.ca}
        if tls.certificate:
            found |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": tls.certificate,
                "ssl.keystore.key": tls.key,
            }
        return found | ({"ssl.key.password": tls.key_password} if tls.key_password is not None else {})


def _ascii(text: str) -> str:
    """Remove non-ASCII characters, which ``ssl`` refuses; systems' bundles have them in comments."""
    return text.encode("ascii", "ignore").decode()


@contextlib.contextmanager
def _file(text: str) -> Iterator[str]:
    """Write text to a temporary file that only its owner can read: OpenSSL loads keys from files only."""
    handle, path = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(text)
        yield path
    finally:
        os.unlink(path)


# -- from options ---------------------------------------------------------------------------------


def from_kafka(
    given: Mapping[str, str], dial_timeout: float, request_timeout: float, *, insecure: bool = False
) -> Access:
    """Return the access that ``kafka.*`` options describe.

    Args:
        given: the options without the prefix ``kafka.``.
        dial_timeout: for a connection with its TLS handshake, seconds.
        request_timeout: for a request, seconds.
        insecure: whether to leave brokers' certificates unchecked.

    Raises:
        UsageError: an option is wrong or missing; the text names it.
    """
    bootstrap = tuple(each.strip() for each in given.get("bootstrap.servers", "").split(",") if each.strip())
    if not bootstrap:
        raise UsageError(
            "option kafka.bootstrap.servers is required, or config with the daemon's configuration file"
        )
    for each in bootstrap:
        try:
            if ":" in each:  # otherwise the name of an SRV record
                parse_address(each)
        except ValueError as error:
            raise UsageError(f"option kafka.bootstrap.servers: {error}") from None
    protocol = _protocol(given)
    return Access(
        bootstrap,
        given.get("client.id", "kafka-pixy-spark"),
        _tls(given, insecure) if protocol.endswith("SSL") else None,
        _sasl(given) if "SASL" in protocol else None,
        dial_timeout,
        request_timeout,
    )


def _protocol(given: Mapping[str, str]) -> str:
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise UsageError(
            f"option kafka.security.protocol: {protocol!r} is not one of {', '.join(_PROTOCOLS)}"
        )
    ineffective = []
    if not protocol.endswith("SSL"):
        ineffective += sorted(name for name in given if name.startswith("ssl."))
    if "SASL" not in protocol:
        ineffective += sorted(name for name in given if name.startswith("sasl."))
    if ineffective:
        raise UsageError(
            f"option kafka.{ineffective[0]} has no effect: kafka.security.protocol is {protocol}"
        )
    return protocol


def _tls(given: Mapping[str, str], insecure: bool) -> Tls:
    algorithm = given.get("ssl.endpoint.identification.algorithm", "https")
    if algorithm.lower() not in ("https", ""):
        raise UsageError(
            f"option kafka.ssl.endpoint.identification.algorithm: {algorithm!r} is neither https nor empty"
        )
    ca = _pem(given, "ssl.truststore", "ssl.truststore.certificates")
    store = _pem(given, "ssl.keystore", "ssl.keystore.certificate.chain")
    key = given.get("ssl.keystore.key", "")
    if store and not key and "PRIVATE KEY" not in store:
        raise UsageError("option kafka.ssl.keystore.key is required: the key store has only a certificate")
    if key and not store:
        raise UsageError(
            "option kafka.ssl.keystore.certificate.chain is required with kafka.ssl.keystore.key"
        )
    return Tls(ca, store, key, given.get("ssl.key.password"), bool(algorithm) and not insecure, not insecure)


def _pem(given: Mapping[str, str], store: str, text: str) -> str:
    """Return PEM text, from the option ``text`` or from the file of ``store``."""
    location = given.get(f"{store}.location", "")
    if location and given.get(text):
        raise UsageError(f"options kafka.{store}.location and kafka.{text}: give only one of them")
    if not location and not given.get(text):
        return ""
    kind = given.get(f"{store}.type", "JKS").upper()
    if kind != "PEM":
        raise UsageError(f"option kafka.{store}.type: only PEM is supported, not {kind}")
    return _read(location, f"option kafka.{store}.location") if location else given[text]


def _read(path: str, name: str) -> str:
    try:
        found = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"{name}: {path} cannot be read ({error})") from error
    if "-----BEGIN " not in found:
        # Empty text would select the system's authorities.
        raise UsageError(f"{name}: {path} has no PEM data")
    return found


def _sasl(given: Mapping[str, str]) -> tuple[str, str, str]:
    mechanism = given.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in _MECHANISMS:
        raise UsageError(f"option kafka.sasl.mechanism: {mechanism} is not one of {', '.join(_MECHANISMS)}")
    found = _JAAS.match(given.get("sasl.jaas.config", ""))
    pairs = (
        {}
        if found is None
        else {
            match[1]: re.sub(
                r"\\(.)", r"\1", next((each for each in match.groups()[1:] if each is not None), "")
            )
            for match in _JAAS_OPTION.finditer(found["options"])
        }
    )
    if not {"username", "password"} <= set(pairs):
        # The value holds a secret, so the text does not show it.
        raise UsageError(
            'option kafka.sasl.jaas.config must read: LoginModule required username="..." password="...";'
        )
    return mechanism, pairs["username"], pairs["password"]


# -- from the daemon's configuration --------------------------------------------------------------


def from_config(path: str, cluster: str) -> Access:
    """Return the access to a cluster of the daemon's configuration file.

    Args:
        path: the file.
        cluster: the cluster's name; empty for the default one.

    Raises:
        UsageError: a certificate or key cannot be read.
        ConfigError: the file is wrong.
        UnknownCluster: the file has no such cluster.
    """
    from pixy.config import load_app, validate
    from pixy.errors import UnknownCluster

    app = validate(load_app(path))
    name = app.cluster_name(cluster)
    if name not in app.proxies:
        raise UnknownCluster(name)
    return from_proxy(app.proxies[name])


def from_proxy(proxy: Proxy) -> Access:
    """Return the access to a configured cluster."""
    kafka, net = proxy.kafka, proxy.net
    tls = None
    if kafka.tls:
        texts = [
            _read(getattr(kafka, name), f"kafka.{name}") if getattr(kafka, name) else ""
            for name in ("ca_certificate_file", "client_certificate_file", "client_key_file")
        ]
        ca, certificate, key = texts
        tls = Tls(ca, certificate, key, None, not kafka.insecure, not kafka.insecure)
    sasl = (net.sasl.mechanism, net.sasl.user, net.sasl.password) if net.sasl.enable else None
    return Access(
        tuple(kafka.seed_peers),
        f"{proxy.client_id}-spark",
        tls,
        sasl,
        net.dial_timeout,
        max(net.read_timeout, net.write_timeout),
    )


__all__ = ["Access", "Tls", "from_config", "from_kafka", "from_proxy"]
