"""``kafka-pixy tap --otlp URL``: response times for an OpenTelemetry collector."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

from pixy.cli.streams import remark
from pixy.errors import StartError, needs_extra
from pixy.tap.service import TapService


def check_otlp(url: str) -> None:
    """Check that times can be sent.

    Raises:
        StartError: a URL is given, and the extra ``otel`` is missing.
    """
    if not url:
        return
    try:
        import pixy.tap.otlp  # noqa: F401
    except ImportError as error:
        raise StartError(needs_extra("--otlp", "otel", error)) from error


@contextlib.asynccontextmanager
async def exporting(service: TapService, url: str, interval: float) -> AsyncIterator[None]:
    """Send the times of a running tap meanwhile, and once more at the end.

    Args:
        service: the tap.
        url: where to; empty for nowhere.
        interval: seconds between.
    """
    if not url:
        yield
        return
    from pixy.tap.otlp import LatencyExport

    def said(taken: bool) -> None:
        where = urlsplit(url).netloc.rpartition("@")[2]
        what = (
            "takes response times"
            if taken
            else "does not take response times; the tap goes on and tries again"
        )
        remark(f"kafka-pixy tap: --otlp: {where} {what}")

    export = LatencyExport(url, lambda: service.ask("timings"), said)
    task = asyncio.create_task(export.run(interval))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))
        await export.close()


__all__ = ["check_otlp", "exporting"]
