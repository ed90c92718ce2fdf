"""Print where the daemon listens, and what to try, when it serves the sandbox."""

from __future__ import annotations

import sys

from pixy.config.addresses import split_address
from pixy.config.model import App

_EVERYWHERE = ("", "0.0.0.0", "::")


def greet(app: App) -> None:
    """Print the text in one piece: unbuffered, ``print`` writes the line end by itself, and a line of the log may come before it."""
    sys.stdout.write(f"{welcome(app)}\n")
    sys.stdout.flush()


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
    if app.tcp_addr:
        curl, base = "curl", f"{'https' if app.tls.certificate_path else 'http'}://{_reached(app.tcp_addr)}"
    elif app.unix_addr:
        curl, base = f"curl --unix-socket {app.unix_addr}", "http://localhost"
    elif app.grpc_addr:
        server = f"--server {_reached(app.grpc_addr)}{' --tls' if app.tls.certificate_path else ''}"
        return f"""\
  kafka-pixy produce foo -m 'Good news everyone!' {server}
  kafka-pixy consume foo --group bar --from-beginning {server}"""
    else:
        return "  (only the API of the v1 and v2 REST proxies is on: docs/rest.md)"
    return f"""\
  {curl} '{base}/topics/foo/messages?group=bar'
  {curl} -X POST '{base}/topics/foo/messages?sync' -H 'Content-Type: text/plain' -d 'Good news everyone!'
  {curl} '{base}/topics/foo/messages?group=bar'"""


def _reached(address: str) -> str:
    """Return the address at which a client of this host reaches a listener."""
    try:
        host, port = split_address(address)
    except ValueError:
        return address
    if (host or "") in _EVERYWHERE:
        host = "localhost"
    return f"[{host}]:{port}" if ":" in (host or "") else f"{host}:{port}"


__all__ = ["greet", "welcome"]
