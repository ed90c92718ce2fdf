"""Refuse an audit whose sources lack what it names, before Spark starts, which takes seconds."""

from __future__ import annotations

from collections.abc import Iterable

from pixy.kafka import settings
from pixy.kafka.blocking import ClusterView
from pixy.pipeline.audit.request import AuditRequest
from pixy.pipeline.errors import SourceError, UsageError
from pixy.pipeline.lake import Lake
from pixy.pipeline.lake.locations import is_local


def check_sources(request: AuditRequest) -> None:
    """Raise what :func:`~pixy.pipeline.audit.open_sources.open_sources` would raise of a missing lake, journal or topic.

    Lakes of a store are left to it, and so are topics that the journal alone may have.

    Raises:
        LakeError: the folder of this machine is no lake.
        SourceError: a topic or the journal is nowhere, or there is nothing to audit.
        UsageError: groups are named, and neither a journal nor a cluster.
        KafkaError: the cluster does not answer.
    """
    archived: Iterable[str] = ()
    if request.lake and is_local(request.lake):
        archived = Lake.open(request.lake).ledger().topic_ids
    if request.groups and not request.journal_topic and request.proxy is None:
        raise UsageError("--group needs a journal, or --config to ask the cluster for the group's offsets")
    known = set(archived)
    if request.proxy is not None:
        known |= set(ClusterView(settings.admin(request.proxy), request.proxy.net.dial_timeout).topics())
    if request.lake and not is_local(request.lake):
        return
    if request.journal_topic:
        if request.journal_topic not in known:
            raise unknown_journal(request.journal_topic)
    elif missing := set(request.topics) - known:
        raise unknown_topics(missing)
    elif not request.topics and not archived:
        raise nothing_to_audit()


def unknown_topics(topics: Iterable[str]) -> SourceError:
    """Return the error for topics that no source has."""
    return SourceError(
        f"topic {', '.join(sorted(topics))} does not exist in the cluster, the lake or the journal"
    )


def unknown_journal(topic: str) -> SourceError:
    """Return the error for a journal that neither cluster nor lake has."""
    return SourceError(f"journal topic {topic} does not exist in the cluster or the lake")


def nothing_to_audit() -> SourceError:
    """Return the error for sources without a topic."""
    return SourceError(
        "there is nothing to audit: neither lake nor journal has a topic; name topics with --topics"
    )
