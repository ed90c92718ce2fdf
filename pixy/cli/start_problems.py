"""Say why the daemon would not start with a configuration, as far as that can be told without brokers and ports."""

from __future__ import annotations

import ipaddress
import os

from pixy.auth.authenticator import Authenticator
from pixy.auth.limits import Limiter
from pixy.auth.patterns import Who
from pixy.auth.rules import Rules
from pixy.config.addresses import problem_of_address, split_address
from pixy.config.files import problem_of
from pixy.config.model import App
from pixy.errors import ConfigError


def start_problem(app: App) -> str:
    """Describe the first problem beyond :func:`pixy.config.validate`; empty if there is none. Reads files.

    It looks at the files of the listeners, their addresses, the rules and limits, API keys and keys of tokens, and the
    files of the logs. A key set at ``jwks_url`` is not fetched: the daemon starts without it, too.
    """
    return problem_of(app) or listener_problem(app) or _auth_problem(app) or log_problem(app)


def listener_problem(app: App) -> str:
    """Describe the first address that a listener cannot have; empty if there is none."""
    addresses = {
        "grpc_addr": app.grpc_addr,
        "tcp_addr": app.tcp_addr,
        "rest.addr": app.rest.addr,
        "admin_addr": app.admin_addr,
    }
    for key, address in addresses.items():
        if not address or (":" not in address and key != "grpc_addr"):  # the others may be paths
            continue
        if problem := problem_of_address(address):
            return f"{key} {address}: {problem}: name an address such as 127.0.0.1:19091"
    return _shared_address({**addresses, "unix_addr": app.unix_addr})


def _shared_address(addresses: dict[str, str]) -> str:
    """Describe the first address that another listener has already; empty if there is none."""
    known: dict[str, str] = {}
    for key, address in addresses.items():
        for other, taken in known.items():
            if address and _meet(address, taken):
                return f"{key} {address}: {other} {taken} has it already: choose another {'port' if ':' in address else 'path'}"
        known[key] = address
    return ""


def _meet(one: str, other: str) -> bool:
    """Return whether two listeners cannot both have their addresses. What a resolver would have to say is not looked at."""
    if ":" not in one or ":" not in other:
        return one == other
    try:
        (host, port), (host2, port2) = split_address(one), split_address(other)
    except ValueError:
        return False
    if port != port2 or not port:
        return False
    names = {"127.0.0.1" if each == "localhost" else each or "" for each in (host, host2)}
    if "" in names or len(names) == 1:
        return True
    versions = {_version(each) for each in names}
    return bool(names & {"0.0.0.0", "::"}) and len(versions) == 1


def _version(host: str) -> int:
    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return 0


def _auth_problem(app: App) -> str:
    if not app.auth.enabled:
        return ""
    groups = app.auth.groups
    try:
        Authenticator(app.auth)
        Rules(app.rules, groups)
        Limiter(app.limits, groups, app.max_concurrent_requests)
    except ConfigError as error:
        return str(error)
    for cluster, proxy in app.proxies.items():
        for name, identity in proxy.identities.users.items():
            try:
                Who(identity.who, groups)
            except ConfigError as error:
                return f"proxies.{cluster}.identities.users.{name}: {error}"
    return ""


def log_problem(app: App) -> str:
    """Describe the first file of a log that cannot be written; empty if there is none. Reads folders."""
    for key, path in (("audit.path", app.audit.path), ("access_log.path", app.access_log.path)):
        if not path:
            continue
        folder = os.path.dirname(path) or "."
        if os.path.isdir(path):
            return f"{key} {path}: is a directory: name a file"
        if not os.path.isdir(folder):
            return f"{key} {path}: the directory {folder} does not exist: create it, or choose another path"
        as_daemon = os.access in os.supports_effective_ids
        if not os.access(path if os.path.exists(path) else folder, os.W_OK, effective_ids=as_daemon):
            return f"{key} {path}: no right to write there: choose a path in a directory of the daemon's user"
    return ""


__all__ = ["listener_problem", "log_problem", "start_problem"]
