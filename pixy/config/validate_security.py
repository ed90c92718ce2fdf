"""Check ``auth``, ``rules``, ``limits`` and ``identities``. Their patterns are checked by :mod:`pixy.auth`, which compiles them."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from pixy.config import model
from pixy.config.security import ALGORITHMS, CERTIFICATE_NAMES, OTHERS, OWN, VERBS, Jwt

CLIENT_CERTIFICATES = ("required", "optional")
TLS_VERSIONS = ("1.2", "1.3")
MIN_SECRET = 32
IDENTITY = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def problem_of(app: model.App) -> str:
    """Describe the first problem of the sections; empty if there is none."""
    auth = app.auth
    if app.rest.peer_secret and len(app.rest.peer_secret) < MIN_SECRET:
        return f"rest.peer_secret must have {MIN_SECRET} characters or more"
    if not auth.enabled:
        for name, given in (("rules", app.rules), ("limits", app.limits), ("audit", app.audit.enabled)):
            if given:
                return f"{name} need auth.enabled: without it nobody is recognized"
        return ""
    if not set(app.audit.verbs) <= {*VERBS, "*"}:
        return f"audit.verbs must be among *, {', '.join(VERBS)}"
    tokens = bool(auth.jwt.jwks_file or auth.jwt.jwks_url)
    if not (auth.keys_file or tokens or auth.certificates or auth.peer_uid or auth.anonymous):
        return "auth.enabled needs keys_file, jwt, certificates, peer_uid or anonymous: nobody would be recognized"
    if auth.basic and not auth.keys_file:
        return "auth.basic needs auth.keys_file: the password is an API key"
    if auth.certificate_name not in CERTIFICATE_NAMES:
        return f"auth.certificate_name must be one of {', '.join(CERTIFICATE_NAMES)}"
    if auth.certificates and not app.tls.client_ca_path:
        return "auth.certificates needs tls.client_ca_path: the CA of the clients' certificates"
    if app.rest.peers and app.rest.peer_requests == "forward" and not app.rest.peer_secret:
        return "auth with rest.peers needs rest.peer_secret, or rest.peer_requests: redirect"
    if auth.anonymous and not app.rules:
        return "auth.anonymous needs rules: without any, everybody may do everything"
    return _jwt_problem(auth.jwt) if tokens else ""


def identities_problem(app: model.App, proxy: model.Proxy) -> str:
    """Describe the first problem of a cluster's ``identities``; empty if there is none."""
    config = proxy.identities
    if config.others not in OTHERS:
        return f"identities.others must be one of {', '.join(OTHERS)}"
    if not config.users:
        return "identities.others: refuse needs identities.users" if config.others != OWN else ""
    if not app.auth.enabled:
        return "identities need auth.enabled: without it nobody is recognized"
    if not proxy.net.sasl.enable:
        return "identities need net.sasl.enable: they are SASL users"
    if proxy.consumer.membership == "zookeeper":
        return "identities cannot be used with consumer.membership zookeeper: ZooKeeper knows the daemon only"
    if config.idle_timeout <= app.rest.max_fetch_timeout:
        return "identities.idle_timeout must be longer than rest.max_fetch_timeout"
    for name, identity in config.users.items():
        if not IDENTITY.match(name):
            return f"identities.users {name!r} must be 1 to 64 letters, digits, - and _; the SASL user goes into `user`"
        if not identity.who:
            return f"identities.users.{name}.who names nobody"
        if not identity.password:
            return f"identities.users.{name} needs password or password_file"
    return ""


def logger_notes(app: model.App) -> list[str]:
    """List the loggers that nobody knows, which are ignored as in the original: a line for each."""
    known = ", ".join(model.LOGGERS)
    unknown = [each.name for each in app.logging if each.name not in model.LOGGERS]
    return [f"logging: there is no logger {name!r}, so it is ignored; known are {known}" for name in unknown]


def certificate_notes(app: model.App) -> list[str]:
    """List what client certificates do not do over gRPC: a line for each."""
    tls, auth = app.tls, app.auth
    if not (app.grpc_addr and tls.client_ca_path and tls.client_certificates == "optional"):
        return []
    if app.server.front == "envoy":
        return []  # it can ask without requiring one
    text = (
        "tls.client_certificates: optional has no effect on gRPC: grpcio can require a certificate or not ask for one. "
        "gRPC asks nobody for a certificate"
    )
    others = auth.keys_file or auth.jwt.jwks_file or auth.jwt.jwks_url
    if auth.enabled and not others:
        called = "is `anonymous`" if auth.anonymous else "is refused"
        return [f"{text}, and without keys_file and jwt every gRPC call {called}"]
    return [f"{text}; its clients need another credential" if auth.enabled else text]


def tls_problem_of(tls: model.Tls) -> str:
    """Describe the first problem of ``tls``; empty if there is none."""
    if tls.client_ca_path and not tls.certificate_path:
        return "tls.client_ca_path needs tls.certificate_path"
    for name, value, allowed in (
        ("client_certificates", tls.client_certificates, CLIENT_CERTIFICATES),
        ("min_version", tls.min_version, TLS_VERSIONS),
    ):
        if value not in allowed:
            return f"tls.{name} must be one of {', '.join(allowed)}"
    return ""


def _jwt_problem(jwt: Jwt) -> str:
    if jwt.jwks_file and jwt.jwks_url:
        return "auth.jwt: either jwks_file or jwks_url"
    if not jwt.issuer or not jwt.audience:
        return (
            "auth.jwt needs issuer and audience: the issuer's tokens for other services must not count here"
        )
    if not jwt.algorithms or not set(jwt.algorithms) <= set(ALGORITHMS):
        return f"auth.jwt.algorithms must be among {', '.join(ALGORITHMS)}"
    if jwt.jwks_url:
        url = urlsplit(jwt.jwks_url)
        if url.scheme != "https" and not (url.scheme == "http" and url.hostname in _LOOPBACK):
            return "auth.jwt.jwks_url must begin with https://, or with http:// for this machine"
    return ""
