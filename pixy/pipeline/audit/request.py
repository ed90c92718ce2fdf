"""The audit's request: sources, topics, windows and checks, as the command line states them."""

from __future__ import annotations

from dataclasses import dataclass

from pixy.config.model import Proxy


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """Sources, topics and settings of one audit.

    Attributes:
        out: folder of the results; it may hold those of an earlier run.
        lake: folder or Hadoop URI of a lake; empty for none.
        cluster: the cluster's name, for the report.
        proxy: the cluster's configuration. None audits without brokers: the lake alone.
        topics: topics to audit; empty for those of the lake and of the journal.
        groups: groups to audit; empty for those of the journal.
        window: length of a window, milliseconds.
        watermark: how long a window stays open after its end, milliseconds.
        journal: the journal's topic; empty for the one that the configuration names.
        log: whether to read the broker's log where the lake does not reach.
        settle: seconds that daemons get to write pending journal events.
        sequences: whether to follow idempotent producers' sequence numbers through the whole log.
        contents: whether to look for the same content at two offsets.
    """

    out: str
    lake: str = ""
    cluster: str = ""
    proxy: Proxy | None = None
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    window: int = 60_000
    watermark: int = 60_000
    journal: str = ""
    log: bool = True
    settle: float = 2.0
    sequences: bool = True
    contents: bool = True


__all__ = ["AuditRequest"]
