"""Print where the daemon listens, and what to try, when it serves the sandbox."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace

from pixy.cli.credential_hints import access, covered
from pixy.config.addresses import split_address
from pixy.config.model import App

_EVERYWHERE = ("", "0.0.0.0", "::")


def greet(app: App, bound: Mapping[str, str]) -> None:
    """Print the text in one piece: unbuffered, ``print`` writes the line end by itself, and a line of the log may come before it.

    Args:
        app: the configuration.
        bound: the listeners' addresses by name, with the ports that the system chose where the configuration says 0.
    """
    chosen = replace(
        app,
        grpc_addr=_chosen(app.grpc_addr, bound.get("grpc", "")),
        tcp_addr=_chosen(app.tcp_addr, bound.get("rest", "")),
        rest=replace(app.rest, addr=_chosen(app.rest.addr, bound.get("rest-v1", ""))),
    )
    sys.stdout.write(f"{welcome(chosen)}\n")
    sys.stdout.flush()


def _chosen(address: str, bound: str) -> str:
    host, colon, port = address.rpartition(":")
    return f"{host}:{bound.rpartition(':')[2]}" if bound and colon and not int(port) else address


def welcome(app: App) -> str:
    """Return the text: curl's command lines for REST over TCP or the unix socket, else the shell's for gRPC."""
    of_its_own = f"{app.rest.addr} (v1 and v2)" if app.rest.addr else ""
    rest = " and ".join(filter(None, (app.tcp_addr, app.unix_addr, of_its_own)))
    return f"""
Kafka-Pixy is serving an in-memory sandbox (nothing is kept when it stops).
  gRPC  {app.grpc_addr or "off"}
  REST  {rest or "off"}
Try, in another terminal (the first consume joins the group, which takes about 3 seconds here;
a new group sees what is produced after it has joined):

{_commands(app)}

Ctrl-C stops it."""


def _commands(app: App) -> str:
    over_tcp = bool(app.tcp_addr) or not app.unix_addr
    given = access(app, over_tcp)
    notes = list(given.notes)
    if app.tcp_addr:
        where, note = _reached(app.tcp_addr, app.tls.certificate_path)
        curl, base = "curl", f"{'https' if app.tls.certificate_path else 'http'}://{where}"
    elif app.unix_addr:
        curl, base, note = f"curl --unix-socket {app.unix_addr}", "http://localhost", ""
    elif app.grpc_addr:
        where, note = _reached(app.grpc_addr, app.tls.certificate_path)
        options = f"{given.shell}--server {where}"
        return _noted(
            f"""\
  kafka-pixy produce foo -m 'Good news everyone!' {options}
  kafka-pixy consume foo --group bar --from-beginning {options}""",
            [*notes, note],
        )
    else:
        return "  (only the API of the v1 and v2 REST proxies is on: docs/rest.md)"
    return _noted(
        f"""\
  {curl} {given.curl}'{base}/topics/foo/messages?group=bar'
  {curl} {given.curl}-X POST '{base}/topics/foo/messages?sync' -H 'Content-Type: text/plain' -d 'Good news everyone!'
  {curl} {given.curl}'{base}/topics/foo/messages?group=bar'""",
        [*notes, note],
    )


def _noted(commands: str, notes: list[str]) -> str:
    lines = "\n".join(filter(None, notes))
    return f"{commands}\n\n{lines}" if lines else commands


def _reached(address: str, certificate: str) -> tuple[str, str]:
    """Return the address at which a client of this host reaches a listener, and a note if its certificate names no such host."""
    try:
        host, port = split_address(address)
    except ValueError:
        return address, ""
    if (host or "") in _EVERYWHERE:
        host = "localhost"
    host, note = covered(certificate, host or "")
    return (f"[{host}]:{port}" if ":" in host else f"{host}:{port}"), note


__all__ = ["greet", "welcome"]
