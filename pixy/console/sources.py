"""What the console's views of Kafka show, as JSON: findings, clusters, groups, one group, and un-acked messages. Paged and bounded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from actors.console import BadQuery
from pixy.console.watch import Watch, unacked
from pixy.engine.consume.views import MOST_OFFERS, ViewPartition
from pixy.errors import PixyError
from pixy.findings import Finding
from pixy.findings.snapshot import WHOLE, Group, Partition, Snapshot, Unacked

PAGE: Final = 50
MOST_ROWS: Final = 500
"""Rows of one page."""
LONGEST: Final = 300
"""Characters of a filter or a name in a query; Kafka's names have 249 at most, and groups' are cut in the page."""
_STANDS: Final = 0.05
"""Messages a second: a lag that changes by less is shown as one that stands."""

Query = Mapping[str, str]
SORTS: Final = ("trouble", "group", "partitions", "polls", "unacked", "oldest", "lag", "rate", "drain")


class Sources:
    """Answers the views.

    Args:
        watch: looks at the engine.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def by_name(self) -> dict[str, Callable[[Query], Awaitable[Any]]]:
        """Return the sources by the names that the views use."""
        return {"findings": self.findings, "groups": self.groups, "group": self.group, "out": self.out}

    async def findings(self, query: Query) -> dict[str, Any]:
        """List findings and clusters; ``cluster``, ``group`` and ``topic`` choose those of one."""
        snapshot, found = await self._watch.findings()
        wanted = {key: query[key] for key in ("cluster", "group", "topic") if query.get(key)}
        rows = [
            each.document(snapshot.at)
            for each in found
            if all(each.where.get(key) == value for key, value in wanted.items())
        ]
        clusters = [
            {
                "cluster": each.name,
                "down": each.down,
                "groups": each.groups[0],
                "max_groups": each.groups[1],
                "producers": each.producers[0],
                "journal": each.journal,
                "brokers": [
                    {"name": broker.name, "up": broker.up, "rtt": broker.rtt, "queued": broker.queued}
                    for broker in each.brokers[:100]
                ],
            }
            for each in snapshot.clusters
        ]
        return {"at": snapshot.at, "findings": rows[:MOST_ROWS], "total": len(rows), "clusters": clusters}

    async def groups(self, query: Query) -> dict[str, Any]:
        """List groups, a page of them: ``scope`` is a part of the name, ``sort`` one of :data:`SORTS`."""
        snapshot, found = await self._watch.findings()
        scope, sort = _text(query, "scope").lower(), query.get("sort", "trouble")
        if sort not in SORTS:
            raise BadQuery(f"sort must be one of {', '.join(SORTS)}")
        troubled = _by_group(found)
        rows = [
            _group_row(each, troubled.get((each.cluster, each.group), ()))
            for each in snapshot.groups
            if scope in each.group.lower()
        ]
        rows.sort(key=lambda row: (row["cluster"], row["group"]))
        rows.sort(key=_key(sort), reverse=query.get("order", "desc") == "desc")
        return {"at": snapshot.at, **_page(rows, query)}

    async def group(self, query: Query) -> dict[str, Any]:
        """Show one group, ``cluster`` and ``group``: topics, a page of partitions, findings."""
        snapshot, found = await self._watch.findings()
        group = _wanted(snapshot, query)
        troubled = _by_group(found).get((group.cluster, group.group), [])
        paused = {(each.topic, each.partition) for each in group.paused}
        partitions = [
            {**_partition_row(each), "paused": not paused.isdisjoint({WHOLE, (each.topic, each.partition)})}
            for each in group.partitions
        ]
        return {
            "at": snapshot.at,
            **_group_row(group, troubled),
            "failure": group.failure,
            "commit_error": group.commit_error,
            "leaving": group.leaving,
            "paused": [
                {"topic": each.topic, "partition": each.partition, "by": each.by, "age": each.age}
                for each in group.paused[:MOST_ROWS]
            ],
            "rebalances": sorted(group.rebalances)[:10],
            "topics": [
                {
                    "topic": each.topic,
                    "polls": each.polls,
                    "oldest_poll": each.oldest_poll,
                    "idle": each.idle,
                    "state": "missing" if each.missing else "joined" if each.joined else "joining",
                    "unowned": each.unowned,
                    "leaderless": each.leaderless,
                }
                for each in group.topics[:MOST_ROWS]
            ],
            "findings": [each.document(snapshot.at) for each in troubled[:MOST_ROWS]],
            "partitions": _page(partitions, query),
        }

    async def out(self, query: Query) -> dict[str, Any]:
        """List un-acked messages of a group, the first offered first: a page of each partition's, asked from its owner.

        ``topic`` and ``partition`` choose one partition, and ``after`` an offset from which to go on there.
        """
        snapshot = await self._watch.snapshot()
        group = _wanted(snapshot, query)
        limit = _number(query, "size", PAGE, MOST_OFFERS)
        chosen = [each for each in group.partitions if each.pending or each.oldest is not None]
        if "topic" in query and "partition" in query:
            wanted = (query["topic"], _number(query, "partition", 0, 2**31 - 1))
            chosen = [each for each in chosen if (each.topic, each.partition) == wanted]
        chosen.sort(key=lambda each: -(each.oldest.age if each.oldest is not None else 0.0))
        after = _number(query, "after", -1, 2**63 - 1)
        try:
            ref = (await self._watch.inspector.groups(group.cluster)).get(group.group)
        except PixyError as error:
            raise BadQuery(str(error)) from error
        rows: list[dict[str, Any]] = []
        for own in chosen:
            if ref is None or len(rows) >= limit:
                break
            asked = ViewPartition(own.topic, own.partition, after, limit - len(rows))
            try:
                found = await self._watch.inspector.page(ref, asked)
            except PixyError:
                continue  # it has just been revoked, or its owner is restarting
            now = self._watch.system.loop.time()
            rows += [_message_row(own, unacked(each, now)) for each in found.offers]
        total = sum(each.pending for each in chosen)
        return {"at": snapshot.at, "total": total, "rows": rows, "partitions": len(chosen)}


def _by_group(found: Iterable[Finding]) -> dict[tuple[str, str], list[Finding]]:
    troubled: dict[tuple[str, str], list[Finding]] = {}
    for each in found:
        if "group" in each.where:
            troubled.setdefault((each.where["cluster"], each.where["group"]), []).append(each)
    return troubled


def _wanted(snapshot: Snapshot, query: Query) -> Group:
    cluster, name = query.get("cluster", ""), query.get("group", "")
    for each in snapshot.groups:
        if each.group == name and cluster in ("", each.cluster):
            return each
    raise BadQuery(f"this daemon does not consume for group {name[:LONGEST]}")


def _group_row(group: Group, findings: Iterable[Finding]) -> dict[str, Any]:
    lags = [each.lag for each in group.partitions if each.lag is not None]
    rates = [each.lag_rate for each in group.partitions if each.lag_rate is not None]
    lag, rate = sum(lags) if lags else None, sum(rates) if rates else None
    oldest = max((each.oldest.age for each in group.partitions if each.oldest is not None), default=None)
    rules = [each.rule for each in findings]
    return {
        "cluster": group.cluster,
        "group": group.group,
        "partitions_owned": len(group.partitions),
        "topics_consumed": [each.topic for each in group.topics[:20]],
        "polls": sum(each.polls for each in group.topics),
        "unacked": sum(each.pending for each in group.partitions),
        "oldest": oldest,
        "lag": lag,
        "rate": rate,
        "drain": _drain(lag, rate),
        "acks": group.acks,
        "rules": rules[:10],
        "errors": sum(each.severity == "error" for each in findings),
        "trouble": len(rules),
    }


def _drain(lag: int | None, rate: float | None) -> float | None:
    """Return the seconds until nothing waits any more; None: not known, or it hardly gets less (:data:`_STANDS`)."""
    if lag == 0:
        return 0.0
    return lag / -rate if lag and rate is not None and rate <= -_STANDS else None


def _partition_row(own: Partition) -> dict[str, Any]:
    return {
        "topic": own.topic,
        "partition": own.partition,
        "position": own.position,
        "age": own.age,
        "unacked": own.pending,
        "buffered": own.buffered,
        "done_above": own.done_above,
        "full": own.full,
        "restarts": own.lives - 1,
        "draining": own.draining,
        "oldest": None if own.oldest is None else own.oldest.age,
        "client": "" if own.oldest is None else own.oldest.client,
        "lag": own.lag,
        "rate": own.lag_rate,
        "drain": _drain(own.lag, own.lag_rate),
    }


def _message_row(own: Partition, each: Unacked) -> dict[str, Any]:
    return {
        "topic": own.topic,
        "partition": own.partition,
        "offset": each.offset,
        "age": each.age,
        "held": each.held,
        "attempts": each.attempts,
        "out": each.out,
        "due": each.due,
        "client": each.client,
    }


def _key(sort: str) -> Callable[[dict[str, Any]], Any]:
    if sort == "trouble":
        return lambda row: (row["errors"], row["trouble"], row["oldest"] or 0.0)
    name = "partitions_owned" if sort == "partitions" else sort
    return lambda row: (row[name] is not None, row[name] if row[name] is not None else 0)


def _page(rows: list[dict[str, Any]], query: Query) -> dict[str, Any]:
    size = max(1, _number(query, "size", PAGE, MOST_ROWS))
    pages = max(1, -(-len(rows) // size))
    page = min(max(1, _number(query, "page", 1, 10**6)), pages)
    return {
        "total": len(rows),
        "page": page,
        "pages": pages,
        "rows": rows[(page - 1) * size : page * size],
    }


def _text(query: Query, name: str) -> str:
    found = query.get(name, "")
    if len(found) > LONGEST:
        raise BadQuery(f"{name} has more than {LONGEST} characters")
    return found


def _number(query: Query, name: str, default: int, most: int) -> int:
    text = query.get(name, "")
    if not text:
        return default
    if len(text) > 20 or not text.isascii() or not text.isdecimal() or int(text) > most:
        raise BadQuery(f"{name} must be a number from 0 to {most}")
    return int(text)


__all__ = ["Sources"]
