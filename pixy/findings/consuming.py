"""Rules about groups: why messages wait, who holds them, and what has gone wrong with the group."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from pixy.findings.finding import Finding
from pixy.findings.snapshot import Group, Partition, Snapshot, Topic, Unacked

POISON_ATTEMPTS: Final = 3
"""Offers of one message from which on it counts as poison: a client's crash repeats a message once."""
HELD_SHARE: Final = 0.5
"""The part of ``ack_timeout`` after which a message without an ack is worth a word; at least :data:`HELD_LEAST` seconds."""
HELD_LEAST: Final = 5.0
STUCK: Final = 10.0
"""Seconds for which a position stands still while messages above it are acknowledged."""
STUCK_ABOVE: Final = 10
"""Messages that are done above it; fewer are usual where several clients share a partition."""
UNOWNED: Final = 30.0
"""Seconds without an owner; a rebalance with a member that has died takes ``session_timeout``, 15 s by default."""
STORM: Final = 7
"""Rebalances within :data:`STORM_WINDOW` seconds: restarting three daemons one after another makes six in a fourth."""
STORM_WINDOW: Final = 120.0
FAILING: Final = 5.0
"""Seconds for which commits fail; one that was refused while a coordinator moved is repeated in half a second."""
EXPIRED: Final = 600.0
"""Seconds for which an expired subscription is shown."""
FORGOTTEN: Final = 30.0
"""Seconds without a request, with messages waiting."""


def never_acked(snapshot: Snapshot) -> Iterator[Finding]:
    """Find clients that take messages and acknowledge none: one finding for each client and topic."""
    for group in snapshot.groups:
        if group.acks:
            continue
        limit = max(HELD_LEAST, HELD_SHARE * snapshot.cluster(group.cluster).ack_timeout)
        held: dict[tuple[str, str], list[tuple[Partition, Unacked]]] = {}
        for own in group.partitions:
            old = own.oldest
            # A message that was offered often is another rule's.
            if old is None or old.attempts >= POISON_ATTEMPTS:
                continue
            if old.age >= limit or (own.full and old.age >= HELD_LEAST):
                held.setdefault((old.client, own.topic), []).append((own, old))
        for found in held.values():
            yield _never_acked(group, found)


def _never_acked(group: Group, held: list[tuple[Partition, Unacked]]) -> Finding:
    own, old = max(held, key=lambda each: each[1].age)
    pending = sum(each.pending for each, _ in held)
    full = any(each.full for each, _ in held)
    numbers = tuple(sorted(each.partition for each, _ in held))
    where = _where(group, own, old)
    if len(held) > 1:
        del where["partition"]
    return Finding(
        "never-acked",
        "error" if full else "warning",
        f"{_client(old)} {'holds' if any(each.out for _, each in held) else 'has had'} {pending} messages of "
        f"{_several(own.topic, numbers)} for {old.age:.0f} s, "
        f"{'and no more are offered' if full else 'and none was acknowledged meanwhile'}",
        "have the client acknowledge each message (POST .../acks, Ack, or ackPartition and ackOffset of the next consume), or "
        "consume with auto-ack; raise consumer.ack_timeout if it needs longer",
        old.age,
        where,
        {
            "pending": pending,
            "partitions": list(numbers),
            "oldest": f"{own.topic}/{own.partition}/{old.offset}",
            "oldest_age": round(old.age, 1),
            "limit_reached": full,
            "acks_last_minute": group.acks,
        },
    )


def poison(snapshot: Snapshot) -> Iterator[Finding]:
    """Find messages that were offered again and again."""
    for group in snapshot.groups:
        retries = snapshot.cluster(group.cluster).max_retries
        for own in group.partitions:
            worst = own.most_tried
            if worst is None or worst.attempts < POISON_ATTEMPTS:
                continue
            end = (
                "for ever: consumer.max_retries is -1"
                if retries < 0
                else f"{retries} times (consumer.max_retries)"
            )
            yield Finding(
                "poison-message",
                "error",
                f"{own.topic}/{own.partition}/{worst.offset} was offered {worst.attempts} times, last to {_client(worst)}, and "
                "never acknowledged: its consumer seems to fail on it",
                f"look at the message (kafka-pixy consume {own.topic} --offset {worst.offset}); acknowledge it to skip it, or "
                f"set consumer.max_retries; now it is repeated {end}",
                worst.age,
                {**_where(group, own, worst), "offset": worst.offset},
                {"attempts": worst.attempts, "first_offered": round(worst.age, 1), "max_retries": retries},
            )


def behind_one_message(snapshot: Snapshot) -> Iterator[Finding]:
    """Find positions that stand still because of one message, while those above it are acknowledged."""
    for group in snapshot.groups:
        for own in group.partitions:
            if own.stuck is None or own.stuck < STUCK or own.done_above < STUCK_ABOVE:
                continue
            old = own.oldest
            if old is None or old.attempts >= POISON_ATTEMPTS:
                continue
            yield Finding(
                "behind-one-message",
                "warning",
                f"{own.topic}/{own.partition} stands at offset {own.position} for {own.stuck:.0f} s because that message is "
                f"not acknowledged, although {own.done_above} above it are; {_client(old)} has it",
                "acknowledge it, or wait until consumer.ack_timeout gives it to another client",
                own.stuck,
                {**_where(group, own, old), "offset": own.position},
                {
                    "position": own.position,
                    "done_above": own.done_above,
                    "due": round(old.due, 1),
                    "attempts": old.attempts,
                },
            )


def forgotten(snapshot: Snapshot) -> Iterator[Finding]:
    """Find topics with messages that wait, and clients that do not ask any more."""
    for group in snapshot.groups:
        if group.leaving:
            continue
        by_topic: dict[str, list[Partition]] = {}
        for own in group.partitions:
            by_topic.setdefault(own.topic, []).append(own)
        for topic in group.topics:
            owned = by_topic.get(topic.topic, ())
            waiting = sum(own.buffered + (own.lag or 0) for own in owned)
            if topic.polls or topic.idle < FORGOTTEN or not waiting:
                continue
            pending = sum(own.pending for own in owned)
            yield Finding(
                "paused-and-forgotten",
                "warning",
                f"nobody has asked group {group.group} for {topic.topic} for {topic.idle:.0f} s, while messages wait and this "
                f"daemon keeps {len(owned)} partitions"
                + (f" for {pending} un-acked ones" if pending else ""),
                "start its consumers again; the partitions are released once consumer.subscription_timeout has passed and every "
                "message is acknowledged or consumer.ack_timeout has passed",
                topic.idle,
                _of_topic(group, topic),
                {"waiting_messages": waiting, "pending": pending, "partitions": len(owned)},
            )


def without_owner(snapshot: Snapshot) -> Iterator[Finding]:
    """Find partitions that no member of their group owns."""
    for group, topic in _topics(snapshot):
        if topic.unowned and topic.unowned_age >= UNOWNED:
            yield Finding(
                "partition-without-owner",
                "error",
                f"no member of group {group.group} consumes {_several(topic.topic, topic.unowned)}",
                "look for a member that does not subscribe to the topic or hangs in a rebalance: kafka-pixy group describe "
                f"{group.group}; with ZooKeeper membership look for claims that were left behind",
                topic.unowned_age,
                _of_topic(group, topic),
                {"partitions": list(topic.unowned)},
            )


def leaderless(snapshot: Snapshot) -> Iterator[Finding]:
    """Find partitions without a leader."""
    seen: set[tuple[str, str]] = set()
    for group, topic in _topics(snapshot):
        if topic.leaderless and (group.cluster, topic.topic) not in seen:
            seen.add((group.cluster, topic.topic))
            yield Finding(
                "leaderless",
                "error",
                f"{_several(topic.topic, topic.leaderless)} has no leader: nothing can be read or written there",
                "start the brokers that have its replicas, or elect a leader (kafka-leader-election.sh)",
                0.0,
                {"cluster": group.cluster, "topic": topic.topic},
                {"partitions": list(topic.leaderless)},
            )


def not_joined(snapshot: Snapshot) -> Iterator[Finding]:
    """Find groups that cannot consume, or whose clients wait for a topic that there is not."""
    for group in snapshot.groups:
        if group.failure:
            yield Finding(
                "group-failing",
                "error",
                f"group {group.group} cannot consume: {group.failure}",
                "grant the daemon's Kafka user Read on the group and its topics, or correct what the error names; the group "
                "joins again by itself",
                group.failing,
                _of_group(group),
                {"error": group.failure},
            )
            continue
        for topic in group.topics:
            waited = topic.oldest_poll or 0.0
            if topic.missing and topic.polls:
                yield Finding(
                    "unknown-topic",
                    "warning",
                    f"{topic.polls} requests of group {group.group} wait for topic {topic.topic}, which does not exist",
                    f"create it (kafka-pixy topic create {topic.topic}), or correct the name in the client",
                    waited,
                    _of_topic(group, topic),
                    {"polls": topic.polls},
                )


def rebalance_storm(snapshot: Snapshot) -> Iterator[Finding]:
    """Find groups that rebalance again and again."""
    for group in snapshot.groups:
        recent = [age for age in group.rebalances if age <= STORM_WINDOW]
        if len(recent) >= STORM:
            yield Finding(
                "rebalance-storm",
                "warning",
                f"group {group.group} has rebalanced {len(recent)} times in {STORM_WINDOW:.0f} s: each stops its partitions for "
                "a while",
                "look for members that come and go (kafka-pixy group describe), raise consumer.session_timeout if daemons "
                "pause, or set consumer.group_instance_id for those that restart",
                max(recent),
                _of_group(group),
                {"rebalances": len(recent), "window": STORM_WINDOW},
            )


def commits_failing(snapshot: Snapshot) -> Iterator[Finding]:
    """Find groups whose offsets Kafka does not take."""
    for group in snapshot.groups:
        if group.commit_error and group.commits_failing >= FAILING:
            yield Finding(
                "commits-failing",
                "error",
                f"Kafka has taken no offset of group {group.group} for {group.commits_failing:.0f} s: {group.commit_error}",
                "grant the daemon's Kafka user Read on the group, or start the broker that coordinates it; after a restart "
                "these messages would be delivered again",
                group.commits_failing,
                _of_group(group),
                {"error": group.commit_error},
            )


def expired(snapshot: Snapshot) -> Iterator[Finding]:
    """Find subscriptions that ended with messages that were not acknowledged."""
    for group in snapshot.groups:
        for topic, (age, pending) in group.expired.items():
            if pending and age <= EXPIRED:
                yield Finding(
                    "subscription-expired",
                    "warning",
                    f"nobody asked group {group.group} for {topic}, so its partitions were released {age:.0f} s ago with "
                    f"{pending} messages that were not acknowledged: they will be delivered again",
                    "acknowledge within consumer.ack_timeout, and ask more often than consumer.subscription_timeout",
                    age,
                    {**_of_group(group), "topic": topic},
                    {"pending": pending},
                )


def paused(snapshot: Snapshot) -> Iterator[Finding]:
    """Find what operators have paused, so that nobody forgets it."""
    for group in snapshot.groups:
        for each in group.paused:
            since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(snapshot.at - each.age))
            what, where, query = f"group {group.group}", _of_group(group), ""
            if each.topic:
                what = f"{each.topic}/{each.partition} of group {group.group}"
                where |= {"topic": each.topic, "partition": each.partition}
                query = ", topic and partition"
            yield Finding(
                "paused",
                "warning",
                f"{what} is paused by {each.by} since {since}: its messages are offered to nobody",
                f"resume it once its time has come: POST /actions/resume with cluster, group{query} and confirm={group.group}, or the "
                "button on the group's page; a restart of the daemon ends the pause, too",
                each.age,
                where,
                {
                    "by": each.by,
                    "waiting_requests": sum(
                        topic.polls for topic in group.topics if each.topic in ("", topic.topic)
                    ),
                },
            )


def _topics(snapshot: Snapshot) -> Iterator[tuple[Group, Topic]]:
    for group in snapshot.groups:
        for topic in group.topics:
            yield group, topic


def _several(topic: str, partitions: tuple[int, ...]) -> str:
    shown = ", ".join(str(each) for each in partitions[:10])
    more = f" and {len(partitions) - 10} more" if len(partitions) > 10 else ""
    return f"{topic}/{shown}{more}"


def _client(offer: Unacked) -> str:
    return f"client {offer.client}" if offer.client else "the program that embeds the engine"


def _of_group(group: Group) -> dict[str, Any]:
    return {"cluster": group.cluster, "group": group.group}


def _of_topic(group: Group, topic: Topic) -> dict[str, Any]:
    return {**_of_group(group), "topic": topic.topic}


def _where(group: Group, own: Partition, offer: Unacked) -> dict[str, Any]:
    found = {**_of_group(group), "topic": own.topic, "partition": own.partition}
    return {**found, "client": offer.client} if offer.client else found


RULES: Final = (
    never_acked,
    poison,
    behind_one_message,
    forgotten,
    without_owner,
    leaderless,
    not_joined,
    rebalance_storm,
    commits_failing,
    expired,
    paused,
)

__all__ = ["EXPIRED", "RULES"]
