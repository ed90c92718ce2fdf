"""``python -m pixy.cli.health``: tell whether the daemon of this machine answers, for a container's health check.

It asks ``/healthy`` at the address that the configuration names (the file of ``$KAFKA_PIXY_CONFIG`` and environment variables; flags are
not known here).
"""

from __future__ import annotations

import http.client
import ssl
import sys
import urllib.request

from pixy.config import App, load_app
from pixy.errors import ConfigError
from pixy.escaping import escaped

TIMEOUT = 3.0
"""Seconds that an answer may take."""


def url(app: App) -> str:
    """Return the address to ask: loopback where the daemon listens on every address.

    Raises:
        ConfigError: REST over TCP is disabled.
    """
    address = app.tcp_addr or app.rest.addr
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        raise ConfigError("REST has no TCP address: there is nothing to ask")
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)
    return f"{'https' if app.tls.certificate_path else 'http'}://{host}:{port}/healthy"


def main() -> int:
    """Ask; return 0 if the daemon answers, 1 with one line on stderr if it does not."""
    try:
        address = url(load_app(""))
    except ConfigError as error:
        return _unhealthy(str(error))
    try:
        # The certificate names other hosts than this one, and nothing secret is sent.
        context = ssl._create_unverified_context() if address.startswith("https") else None  # noqa: S323
        with urllib.request.urlopen(address, timeout=TIMEOUT, context=context):  # noqa: S310
            return 0
    except OSError as error:
        reason = getattr(error, "reason", error)
        why = getattr(reason, "strerror", None) or str(reason)
        return _unhealthy(f"{address}: {why.lower()}")
    except http.client.HTTPException:
        return _unhealthy(f"{address}: the answer is not HTTP")


def _unhealthy(why: str) -> int:
    print(f"unhealthy: {escaped(why)}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
