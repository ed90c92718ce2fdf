"""Write HTTP requests to the access log."""

from __future__ import annotations

import json
from typing import Any, Final

from aiohttp import web

from pixy.api.rest.identity import address_of
from pixy.auth.principal import current
from pixy.engine.access_log import GONE, AccessLog

REFUSED: Final = frozenset({401, 403, 413, 421, 429, 431, 500, 503})
"""The statuses that have a line whatever the sample."""
_MAX_BODY: Final = 10_000


def note(
    log: AccessLog, listener: str, request: web.BaseRequest, response: web.StreamResponse | None, began: float
) -> None:
    """Note a request that is over.

    Args:
        log: gets the line.
        listener: its name.
        request: the request.
        response: its answer; None: the client has gone.
        began: when it began, by the log's clock.
    """
    status = GONE if response is None else response.status
    refused = status in REFUSED
    log.answered(
        listener,
        request.method,
        request.raw_path.partition("?")[0].partition("#")[0],
        status,
        began,
        refused=refused,
        address=address_of(request),
        caller=current.get(),
        trace=request.headers.get("traceparent", ""),
        error=_reason(response) if refused else "",
    )


def _reason(response: web.StreamResponse | None) -> str:
    """Return the text of an error's answer."""
    body = response.body if isinstance(response, web.Response) else None
    if not isinstance(body, bytes) or len(body) > _MAX_BODY:
        return ""
    try:
        found: Any = json.loads(body)
    except ValueError:
        return ""
    return str(found.get("error") or found.get("message") or "") if isinstance(found, dict) else ""


__all__ = ["REFUSED", "note"]
