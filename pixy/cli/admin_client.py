"""Ask the admin listener of a daemon: for ``top`` and ``doctor``."""

from __future__ import annotations

import json
import os
import ssl
import urllib.error
import urllib.request
from typing import Any, Final

from pixy.config.addresses import split_address
from pixy.config.model import App

ADMIN: Final = "KAFKA_PIXY_ADMIN"
"""The environment variable with the address, such as ``127.0.0.1:19093`` or ``https://pixy.example:19093``."""
CREDENTIAL: Final = "KAFKA_PIXY_TOKEN"
DEFAULT: Final = "127.0.0.1:19093"
TIMEOUT: Final = 5.0
"""Seconds that an answer may take."""
_LONGEST: Final = 16 * 1024 * 1024
"""Bytes of an answer."""


class AdminError(Exception):
    """The admin listener cannot be asked. The text says why and what to do."""


class AdminClient:
    """Asks one admin listener. Blocks.

    Args:
        address: ``host:port``, or a URL.
        token: sent as a bearer token, or as an API key if it is one; empty for none.
        ca: a file with the CA of the daemon's certificate; empty for the system's.
    """

    def __init__(self, address: str, token: str = "", ca: str = "") -> None:
        self.url = (address if "://" in address else f"http://{address}").rstrip("/")
        self._headers = {"Accept": "application/json"}
        if token:
            key = token.startswith("kp_")
            self._headers |= {"X-API-Key": token} if key else {"Authorization": f"Bearer {token}"}
        try:
            self._context = (
                ssl.create_default_context(cafile=ca or None) if self.url.startswith("https:") else None
            )
        except OSError as error:
            raise AdminError(f"{ca}: {(error.strerror or str(error)).lower()}") from error

    def get(self, path: str, timeout: float = TIMEOUT) -> Any:
        """Return what the daemon answers to a path, as JSON.

        Args:
            path: with its query.
            timeout: seconds that the answer may take.

        Raises:
            AdminError: it does not answer, or refuses.
        """
        request = urllib.request.Request(self.url + path, headers=self._headers)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=timeout, context=self._context) as answer:  # noqa: S310
                found = json.loads(answer.read(_LONGEST))
        except urllib.error.HTTPError as error:
            raise AdminError(f"{self.url} refuses: {error.code} {_reason(error)}") from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            why = getattr(reason, "strerror", None) or str(reason)
            raise AdminError(
                f"{self.url} does not answer as an admin listener: {str(why).lower()}; start the daemon with --adminAddr {DEFAULT}"
            ) from error
        if isinstance(found, dict) and "data" in found:
            return found["data"]
        return found


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read(65536))["error"])
    except (OSError, ValueError, KeyError, TypeError):
        return error.reason


def address_of(app: App) -> str:
    """Return the URL of the admin listener that a configuration has on this machine; empty if it has none."""
    if not app.admin_addr:
        return ""
    host, port = split_address(app.admin_addr)
    if not host or host in ("0.0.0.0", "::"):
        host = "localhost"
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if app.tls.certificate_path else 'http'}://{shown}:{port}"


def token_of_environment() -> str:
    """Return the caller's credential, as the other commands take it from the environment."""
    return os.environ.get(CREDENTIAL, "")


__all__ = ["ADMIN", "DEFAULT", "AdminClient", "AdminError", "address_of", "token_of_environment"]
