"""The registry of groups, and what all kinds of groups share: members that join and go, rebalances, anomalies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from pixy.tap import rebalances
from pixy.tap.anomalies import anomalies
from pixy.tap.config import TapConfig
from pixy.tap.groups import PROBABLY_TIMED_OUT, Group, Member, Path, State
from pixy.tap.lru import LruDict
from pixy.tap.rebalances import Rebalance, Timeline, Trigger
from pixy.tap.topics import Topics

Emit = Callable[..., None]
"""Report an event: name, time, and the event's fields as keywords."""

_ON_CONNECTION = 10_000  # members of one connection, which a pooling proxy may have
_ALMOST_TIMED_OUT = (
    0.9  # of the session timeout: the coordinator saw the last request before the tap saw its answer
)


@dataclass(slots=True)
class Peer:
    """The client at the other end of a connection."""

    number: int
    client: str = ""
    broker: str = ""
    client_id: str = ""
    software: tuple[str, str] = ("unknown", "")

    @property
    def software_text(self) -> str:
        """Name and version of the software in one text."""
        return " ".join(each for each in self.software if each)


class Registry:
    """The groups of a cluster.

    Args:
        config: limits.
        topics: names, sizes and end offsets of topics.
        emit: reports events.
    """

    def __init__(self, config: TapConfig, topics: Topics, emit: Emit) -> None:
        self.config = config
        self.topics = topics
        self.emit = emit
        self.groups: LruDict[str, Group] = LruDict(config.bounds.groups)
        self._by_connection: LruDict[int, LruDict[tuple[str, str], None]] = LruDict(
            config.bounds.connections * 2
        )
        """Group and id of the members whose latest request came on a connection."""
        self.timeline = Timeline(config.bounds.timeline)
        self.finished: Counter[str] = Counter()
        """Number of finished rebalances by trigger."""
        self.rebalance_seconds = 0.0
        """Time spent in finished rebalances."""

    def group(self, group_id: str) -> Group:
        """Return a group, and create it if it is not known."""
        return self.groups.get_or_create(group_id, lambda: Group(group_id, self.config.bounds))

    def member(self, group: Group, member_id: str) -> Member:
        """Return a member, and create it if it is not known.

        Args:
            group: the group.
            member_id: the member.
        """
        return group.members.get_or_create(member_id, lambda: Member(member_id))

    def touch(self, group: Group, member: Member, peer: Peer, at: float) -> None:
        """Record that a member has sent a request.

        Args:
            group: the member's group.
            member: the member.
            peer: the connection that the request came on.
            at: when, in seconds since the epoch.
        """
        member.seen_here = True
        if member.connection != peer.number:
            self._detach(group, member)
            found = self._by_connection.get_or_create(peer.number, lambda: LruDict(_ON_CONNECTION))
            found[group.id, member.id] = None
        member.connection, member.disconnected_at, member.last_seen = peer.number, None, at
        member.host = peer.client
        member.software = peer.software_text
        member.client_id = peer.client_id or member.client_id

    def heard(self, group: Group, member_id: str, peer: Peer, at: float) -> Member:
        """Record a request of a member that has an epoch, and return the member, which may be new.

        Args:
            group: the member's group.
            member_id: the member.
            peer: the connection that the request came on.
            at: when, in seconds since the epoch.
        """
        member = self.member(group, member_id)
        self.touch(group, member, peer, at)
        member.path, member.session_timeout = Path.HEARTBEAT, self.config.session_timeout
        return member

    def revive(self, group: Group, member_id: str, at: float, generation: int | None = None) -> None:
        """Take back a member that was only taken for timed out: the coordinator has kept it, and what it was given holds.

        A coordinator that was away counts the sessions anew, and tells its members nothing that has not changed.

        Args:
            group: the member's group.
            member_id: a member that goes on at its epoch or generation; nothing happens if it is there, or has gone otherwise.
            at: when, in seconds since the epoch.
            generation: the one that the coordinator has accepted, if another would have another assignment.
        """
        if member_id in group.members:
            return
        last = next((each for each in reversed(group.gone) if each.member.id == member_id), None)
        if last is None or last.how != PROBABLY_TIMED_OUT or generation not in (None, last.member.generation):
            return
        group.gone.remove(last)
        member = last.member
        member.announced, member.connection = False, None
        group.members[member_id] = member
        if group.state is State.EMPTY:
            group.state = State.STABLE
        self.announce(group, member, at)

    def begin(self, group: Group, at: float, trigger: Trigger) -> Rebalance:
        """Begin a rebalance unless one is in progress, and return the rebalance in progress.

        Args:
            group: the group.
            at: when, in seconds since the epoch.
            trigger: the cause, used if a rebalance begins.
        """
        if group.rebalance is None:
            group.rebalance = self.timeline.begin(group.id, at, trigger, group.generation)
            group.state = State.PREPARING if group.kind == "classic" else State.RECONCILING
            self.emit(
                "rebalance.started",
                at,
                group=group.id,
                generation=group.generation,
                trigger=trigger.kind,
                member=trigger.member,
                client_id=trigger.client_id,
                reason=trigger.reason,
            )
        return group.rebalance

    def finish(self, group: Group, at: float) -> None:
        """Finish the rebalance: all members know their partitions.

        Args:
            group: the group.
            at: when, in seconds since the epoch.
        """
        group.state = State.STABLE if len(group.members) else State.EMPTY
        for member in group.alive():
            self.announce(group, member, at)
        entry = group.rebalance
        if entry is None:
            return
        entry.finished, entry.after, entry.members = at, group.generation, len(group.members)
        group.last_rebalance, group.rebalance = entry, None
        self.finished[entry.trigger.kind] += 1
        self.rebalance_seconds += entry.seconds(at)
        self.emit(
            "rebalance.finished",
            at,
            **{
                name: value
                for name, value in entry.to_json(at).items()
                if name not in {"started", "finished"}
            },
        )

    def joined(self, group: Group, member: Member, at: float) -> None:
        """Record a new member.

        Args:
            group: the group.
            member: its new member.
            at: when, in seconds since the epoch.
        """
        member.joined_at = at
        if group.rebalance is not None and len(group.rebalance.joined) < group.bounds.members:
            group.rebalance.joined.append(member.id)
        if member.seen_here:
            self.announce(group, member, at)

    def announce(self, group: Group, member: Member, at: float) -> None:
        """Emit ``member.joined``, once a member: at its first request, or at the end of its first rebalance.

        Args:
            group: the group.
            member: a member, announced already or not.
            at: when, in seconds since the epoch.
        """
        if member.announced:
            return
        member.announced = True
        self.emit(
            "member.joined",
            at,
            group=group.id,
            member=member.id,
            client_id=member.client_id,
            instance_id=member.instance_id,
            host=member.host,
            software=member.software,
        )

    def gone(
        self, group: Group, member_id: str, how: str, at: float, reason: str | None = None
    ) -> Member | None:
        """Remove a member.

        Args:
            group: the group.
            member_id: the member; nothing happens if it is not known.
            how: see :class:`~pixy.tap.groups.Gone`.
            at: when, in seconds since the epoch.
            reason: the client's own words.
        """
        member = group.remove(member_id, how, at, reason)
        if member is None:
            return None
        self._detach(group, member)
        if group.rebalance is not None:
            group.rebalance.left.append(member_id)
            if (
                group.rebalance.trigger.kind in {rebalances.UNSEEN, rebalances.REJOIN}
                and how not in {"left", "replaced"}
                and _silent(member, group.rebalance.started)
            ):
                group.rebalance.trigger = _expiry(group, member)
        self.emit(
            "member.gone",
            at,
            group=group.id,
            member=member_id,
            client_id=member.client_id,
            how=how,
            reason=reason,
        )
        if not len(group.members):
            group.state = State.EMPTY
            group.expected.clear()
            if group.rebalance is not None:
                self.finish(group, at)
        return member

    def cause(self, group: Group, at: float) -> Trigger:
        """Guess why a coordinator calls for a rebalance when no member was seen to join or leave.

        Args:
            group: the group.
            at: when, in seconds since the epoch.
        """
        for gone in reversed(group.gone):
            if gone.how == PROBABLY_TIMED_OUT and at - gone.at <= 2 * gone.member.patience():
                return _expiry(group, gone.member)
            break
        for member in group.alive():
            if _silent(member, at):
                return _expiry(group, member)
        return Trigger(rebalances.UNSEEN)

    def disconnected(self, connection: int, at: float) -> None:
        """Mark the members of a closed connection as disconnected; they have not left the group.

        Args:
            connection: the connection's number.
            at: when, in seconds since the epoch.
        """
        for group_id, member_id in self._by_connection.pop(connection) or ():
            group = self.groups.get(group_id)
            member = None if group is None else group.members.get(member_id)
            if member is None or member.connection != connection:
                continue  # forgotten at a limit
            member.connection, member.disconnected_at = None, at
            self.emit("member.disconnected", at, group=group_id, member=member.id, client_id=member.client_id)

    def _detach(self, group: Group, member: Member) -> None:
        found = None if member.connection is None else self._by_connection.get(member.connection)
        if found is not None:
            found.pop((group.id, member.id))

    def deleted(self, group_id: str, at: float) -> None:
        """Forget a group that was deleted.

        Args:
            group_id: the group; nothing happens if it is not known.
            at: when, in seconds since the epoch.
        """
        group = self.groups.pop(group_id)
        if group is None:
            return
        for member in group.members.values():
            self._detach(group, member)
        self.emit("group.deleted", at, group=group_id)

    def tick(self, at: float) -> None:
        """Remove members whose session has probably timed out, and update the anomalies.

        Args:
            at: the current time in seconds since the epoch.
        """
        for group in self.groups.values():
            for member in group.alive():
                if member.seen_here and at - member.last_seen > member.patience():
                    self.gone(group, member.id, PROBABLY_TIMED_OUT, at)
            found = (
                frozenset(anomalies(group, self.topics)) if group.state is State.STABLE else group.anomalies
            )
            if not len(group.members):
                found = frozenset()
            if found != group.anomalies:
                for kind, text in sorted(found - group.anomalies):
                    self.emit("anomaly", at, group=group.id, kind=kind, detail=text)
                for kind, text in sorted(group.anomalies - found):
                    self.emit("anomaly.over", at, group=group.id, kind=kind, detail=text)
                group.anomalies = found

    def forgotten(self) -> dict[str, int]:
        """Return how many entries were evicted at a limit, by kind."""
        return {
            "groups": self.groups.forgotten,
            "members": sum(group.members.forgotten for group in self.groups.values()),
            "commits": sum(group.committed.forgotten for group in self.groups.values()),
            "rebalances": self.timeline.forgotten,
        }


def _silent(member: Member, at: float) -> bool:
    """Tell whether a member had sent nothing for its session timeout; False if its requests pass elsewhere."""
    return member.seen_here and at - member.last_seen >= _ALMOST_TIMED_OUT * member.patience()


def _expiry(group: Group, member: Member) -> Trigger:
    """Return the trigger of a rebalance whose cause is a silent member, named as the coordinator's log names it."""
    kind = rebalances.HEARTBEAT_EXPIRED if group.kind == "classic" else rebalances.SESSION_EXPIRED
    return Trigger(kind, member.id, member.client_id)
