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
        late: the bound above which a record is late, milliseconds; 0 for ``window`` and ``watermark`` together.
        journal: the journal's topic; empty for the one that the configuration names.
        log: whether to read the broker's log where the lake does not reach.
        settle: seconds that daemons get to write pending journal events.
        sequences: whether to follow idempotent producers' sequence numbers through the whole log.
        contents: whether to look for the same content at two offsets.
        config: the configuration's file, for the commands that the report proposes.
        since, until: the period to audit, milliseconds of the epoch, ``until`` excluded; None for no bound. Windows are taken whole.
        incremental: audit only from the oldest message on that may have news since the earlier run.
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
    late: int = 0
    config: str = ""
    since: int | None = None
    until: int | None = None
    incremental: bool = False

    @property
    def late_after(self) -> int:
        """Milliseconds after its timestamp at which a record should be archived, and read by each group."""
        return self.late or self.window + self.watermark

    @property
    def journal_topic(self) -> str:
        """The journal's topic; empty for none."""
        return self.journal or (self.proxy.journal.topic if self.proxy is not None else "")


__all__ = ["AuditRequest"]
