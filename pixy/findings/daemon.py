"""Rules about the daemon itself and its brokers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pixy.findings.finding import Finding
from pixy.findings.snapshot import Block, Snapshot

BLOCKED: Final = 300.0
"""Seconds for which a block of the loop is shown."""
LONG: Final = 0.5
"""Seconds of a block that is worth a word alone; on a busy machine shorter ones happen to everybody."""
MANY: Final = 5
"""Shorter blocks that are."""
CROWDED: Final = 0.9
"""The part of a mailbox's bound from which on it counts as full."""
OLD: Final = 5.0
"""Seconds that a message may wait in a mailbox."""
SLOW: Final = 0.5
"""Seconds that a broker may take for an answer (99th percentile). Long polls of consumers are not among the producer's requests."""
NEARLY: Final = 0.95
"""The part of a bound from which on it is worth a word."""
REFUSED: Final = 10
"""Requests refused in the last minutes that are worth a word."""


def blocked_loop(snapshot: Snapshot) -> Iterator[Finding]:
    """Find handlers that have kept the loop from turning."""
    by_path: dict[str | None, list[Block]] = {}
    for each in snapshot.blocks:
        if each.age <= BLOCKED and each.own > each.starved:
            by_path.setdefault(each.path, []).append(each)
    for path, blocks in by_path.items():
        longest = max(each.own for each in blocks)
        if longest < LONG and len(blocks) < MANY:
            continue
        yield Finding(
            "blocked-loop",
            "warning",
            f"the event loop stood still {len(blocks)} times in the last {BLOCKED:.0f} s, up to {longest:.2f} s, in "
            f"{path or 'code outside of actors'}: everybody waited",
            "see the log for the stack, or take a profile (/debug/profile)",
            max(each.age for each in blocks),
            {"actor": path} if path else {},
            {"blocks": len(blocks), "longest": round(longest, 3)},
        )


def starved_loop(snapshot: Snapshot) -> Iterator[Finding]:
    """Find that the loop stood still because the machine had no processor for it: no code is to blame."""
    blocks = [each for each in snapshot.blocks if each.age <= BLOCKED and each.own <= each.starved]
    longest = max((each.starved for each in blocks), default=0.0)
    if longest < LONG and len(blocks) < MANY:
        return
    yield Finding(
        "short-of-processor",
        "warning",
        f"the event loop waited for a processor {len(blocks)} times in the last {BLOCKED:.0f} s, up to {longest:.2f} s: the machine is "
        "busy with other programs, or the daemon's container has reached its limit",
        "give the daemon more processor (the container's limit, fewer programs beside it), or let server.workers share its load",
        max(each.age for each in blocks),
        {"thread": "event loop"},
        {"blocks": len(blocks), "longest": round(longest, 3)},
    )


def crowded_mailbox(snapshot: Snapshot) -> Iterator[Finding]:
    """Find actors that do not keep up."""
    for each in snapshot.mailboxes:
        full = each.capacity > 0 and each.depth >= CROWDED * each.capacity
        if not full and each.oldest < OLD and not each.refused:
            continue
        yield Finding(
            "crowded-mailbox",
            "error" if full else "warning",
            f"{each.path} does not keep up: {each.depth} of {each.capacity} messages wait, the first for {each.oldest:.1f} s",
            "look at what it does (/debug/actors, kafka-pixy top); callers get 429 or RESOURCE_EXHAUSTED once it is full",
            each.oldest,
            {"actor": each.path},
            {
                "depth": each.depth,
                "capacity": each.capacity,
                "oldest": round(each.oldest, 2),
                "refused": each.refused,
            },
        )


def slow_broker(snapshot: Snapshot) -> Iterator[Finding]:
    """Find brokers that answer slowly, and clusters of which none answers."""
    for cluster in snapshot.clusters:
        if cluster.down:
            yield Finding(
                "kafka-unreachable",
                "error",
                f"no broker of cluster {cluster.name} answers ({cluster.down})",
                "start the brokers, or correct kafka.seed_peers, kafka.tls or net.sasl; messages that were produced wait up to "
                "their timeout",
                cluster.down_for,
                {"cluster": cluster.name},
                {"error": cluster.down},
            )
            continue
        known = [each.rtt for each in cluster.brokers if each.rtt is not None]
        for broker in cluster.brokers:
            if broker.rtt is not None and broker.rtt >= SLOW:
                yield Finding(
                    "broker-slow",
                    "warning",
                    f"broker {broker.name} takes {broker.rtt:.2f} s for an answer (99th percentile)",
                    "look at its disk, its network and its request queue; leaders can be moved to another broker",
                    0.0,
                    {"cluster": cluster.name, "broker": broker.name},
                    {"rtt_p99": broker.rtt, "fastest": min(known), "queued": broker.queued},
                )


def quota(snapshot: Snapshot) -> Iterator[Finding]:
    """Find bounds that are reached."""
    for cluster in snapshot.clusters:
        for what, (used, most), key in (
            ("groups", cluster.groups, "consumer.max_groups"),
            ("topics of producers", cluster.producers, "producer.max_topics"),
        ):
            if most > 1 and used >= NEARLY * most:
                yield Finding(
                    "quota-reached",
                    "warning",
                    f"cluster {cluster.name} uses {used} of {most} {what}: further ones are refused",
                    f"raise {key}, or have clients use fewer",
                    0.0,
                    {"cluster": cluster.name},
                    {"used": used, "most": most, "key": key},
                )
    for each in snapshot.refused:
        if each.count >= REFUSED:
            yield Finding(
                "quota-reached",
                "warning",
                f"{each.count} requests ({each.method} over {each.api}) were refused with {each.status} in the last minutes: a "
                "bound is reached",
                "see the text of the answers, which names the key (max_concurrent_requests, consumer.channel_buffer_size, "
                "limits, ...), in the access log or at the client",
                0.0,
                {"api": each.api, "method": each.method},
                {"refused": each.count, "status": each.status},
            )


def journal_dropping(snapshot: Snapshot) -> Iterator[Finding]:
    """Find journals that lose events."""
    for cluster in snapshot.clusters:
        if cluster.journal is None or not cluster.journal[2]:
            continue
        held, limit, lost, _ = cluster.journal
        yield Finding(
            "journal-dropping",
            "error",
            f"the journal of cluster {cluster.name} has lost {lost} event{'s' * (lost != 1)} in the last minutes: audits will show gaps",
            "see the log of the journal's writer: Kafka may not take its batches; raise journal.buffer_events for bursts",
            0.0,
            {"cluster": cluster.name},
            {"lost": lost, "held": held, "limit": limit},
        )


RULES: Final = (blocked_loop, starved_loop, crowded_mailbox, slow_broker, quota, journal_dropping)

__all__ = ["RULES"]
