"""Classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

A member's metadata cannot be read without the group's protocol type. The type comes from the message if it has one
(KIP-559: JoinGroup responses v7+, SyncGroup requests and responses v5+), and otherwise from the member's JoinGroup request.
"""

from __future__ import annotations

from typing import Any, TypeGuard

from pixy.tap import rebalances
from pixy.tap.assignments import report_assignment
from pixy.tap.groups import Group, Member, Partition, Path, State, partitions_of
from pixy.tap.member_metadata import CONSUMER, ProtocolTypes, subscription_of, topics_of
from pixy.tap.rebalances import Rebalance, Trigger
from pixy.tap.registry import Peer, Registry
from pixy.wire.consumer_protocol import decode_assignment
from pixy.wire.exceptions import WireError

NONE, ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING, MEMBER_ID_REQUIRED, FENCED = 0, 22, 25, 27, 79, 82
_NEWCOMERS = frozenset({rebalances.UNSEEN, rebalances.JOIN})

Body = dict[str, Any]


class ClassicGroups:
    """Update classic groups from their members' requests and responses."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._types = ProtocolTypes()

    # -- JoinGroup ---------------------------------------------------------------------------------

    def join_requested(self, at: float, peer: Peer, version: int, body: Body) -> None:
        """Process a JoinGroup request.

        Args:
            at: when it passed, in seconds since the epoch.
            peer: the connection.
            version: the request's version.
            body: the request.
        """
        group = self._registry.group(body["GroupId"])
        member_id = body["MemberId"]
        if member_id:
            self._types.learn(group, member_id, body["ProtocolType"])
        member = (
            group.members.get(member_id) if member_id else _by_instance(group, body.get("GroupInstanceId"))
        )
        # From v4 on, the first request of a dynamic member only gets it an id.
        if not member_id and version >= 4 and body.get("GroupInstanceId") is None:
            return
        trigger = self._trigger(group, member, body, at, peer)
        if group.state is not State.PREPARING:
            if group.rebalance is not None:  # a new rebalance begins before all members have synced
                self._registry.finish(group, at)
            self._registry.begin(group, at, trigger)
        elif trigger.kind == rebalances.JOIN and _cause_unseen(group.rebalance):
            group.rebalance.trigger = trigger
        if member is not None:
            self._registry.touch(group, member, peer, at)
            member.joining = True

    def _trigger(self, group: Group, member: Member | None, body: Body, at: float, peer: Peer) -> Trigger:
        reason = body.get("Reason") or None
        newcomer = body["MemberId"] or (body.get("GroupInstanceId") or "")
        if member is None:
            # In a group that was there before the tap, every member is new to the tap.
            return Trigger(rebalances.JOIN, newcomer, peer.client_id, reason)
        kind = rebalances.REJOIN
        subscription = subscription_of(body, None)
        if subscription is not None and set(subscription) != set(member.subscription) and member.subscription:
            kind = rebalances.SUBSCRIPTION
        elif any(self._registry.topics.count(topic) != count for topic, count in group.counts.items()):
            kind = rebalances.METADATA
        elif group.last_rebalance is not None and "cooperative" in (group.protocol_name or ""):
            kind = rebalances.FOLLOW_UP
        if kind in {rebalances.REJOIN, rebalances.FOLLOW_UP}:
            cause = self._registry.cause(group, at)
            if cause.kind != rebalances.UNSEEN:
                return cause
        return Trigger(kind, member.id, peer.client_id, reason)

    def joined(self, at: float, peer: Peer, request: Body, body: Body, asked_at: float) -> None:
        """Process a JoinGroup request and its response.

        Args:
            at: when the response passed, in seconds since the epoch.
            peer: the connection.
            request: the request.
            body: the response.
            asked_at: when the request passed.
        """
        group = self._registry.group(request["GroupId"])
        if body["ErrorCode"] == MEMBER_ID_REQUIRED:
            self._types.learn(group, body["MemberId"], request["ProtocolType"])
            return
        if body["ErrorCode"] != NONE:
            self._refused(group, request["MemberId"], body["ErrorCode"], at)
            return
        generation = body["GenerationId"]
        if generation < group.generation and any(
            each.seen_here and not each.joining for each in group.members.values()
        ):
            return  # a late response of an earlier generation
        stayed = generation == group.generation and group.state is not State.COMPLETING
        if generation != group.generation:
            if group.rebalance is None:  # the tap did not see the beginning
                known = request["MemberId"] in group.members
                self._registry.begin(
                    group,
                    asked_at,
                    Trigger(
                        rebalances.REJOIN if known else rebalances.JOIN,
                        body["MemberId"],
                        peer.client_id,
                        request.get("Reason"),
                    ),
                )
            self._new_generation(group, generation)
        self._set_protocol(group, request, body)
        member = self._update_member(group, at, peer, request, body)
        if body["Members"]:
            self._update_listed(group, at, body["Members"])
        if stayed and group.rebalance is not None and group.rebalance.before == generation:
            # A static member returned, or a follower joined with the same metadata: the generation stays.
            self._registry.timeline.cancel(group.rebalance)
            group.rebalance = None
        group.state = State.COMPLETING
        group.expected.add(member.id)

    def _new_generation(self, group: Group, generation: int) -> None:
        group.generation = generation
        if not any(each.path is Path.HEARTBEAT for each in group.members.values()):
            group.kind = "classic"  # a member that migrates to KIP-848 takes the others' group with it
        group.expected.clear()

    def _set_protocol(self, group: Group, request: Body, body: Body) -> None:
        if body.get("ProtocolType") is not None:
            group.protocol_type, group.path = body["ProtocolType"], Path.STATELESS
        else:
            group.protocol_type, group.path = request["ProtocolType"], Path.LEARNT
        if group.kind == "classic" and body["ProtocolName"] is not None:
            group.protocol_name = body["ProtocolName"]
        group.leader = body["Leader"]

    def _update_member(self, group: Group, at: float, peer: Peer, request: Body, body: Body) -> Member:
        member_id, instance = body["MemberId"], request.get("GroupInstanceId")
        self._types.learn(group, member_id, request["ProtocolType"])
        before = _by_instance(group, instance)
        is_new = member_id not in group.members
        member = self._registry.member(group, member_id)
        if before is not None and before.id != member_id:
            self._registry.gone(group, before.id, "replaced", at)
        self._registry.touch(group, member, peer, at)
        member.instance_id, member.generation, member.joining = instance, body["GenerationId"], True
        member.session_timeout = request["SessionTimeoutMs"] / 1000
        member.rebalance_timeout = request.get("RebalanceTimeoutMs", -1) / 1000
        if member.rebalance_timeout <= 0:
            member.rebalance_timeout = member.session_timeout
        member.assignors = tuple(each["Name"] for each in request["Protocols"])
        member.subscription = subscription_of(request, group.protocol_name) or ()
        member.path = group.path
        if is_new:
            entry = group.rebalance
            if entry is not None and not entry.trigger.member and entry.trigger.kind in _NEWCOMERS:
                reason = request.get("Reason") or entry.trigger.reason
                entry.trigger = Trigger(rebalances.JOIN, member_id, peer.client_id, reason)
            self._registry.joined(group, member, at)
        else:
            self._registry.announce(group, member, at)
        return member

    def _update_listed(self, group: Group, at: float, listed: list[Body]) -> None:
        """Take over the leader's list of all members; members that are not in it are gone."""
        ids = {each["MemberId"] for each in listed}
        for member in group.alive():
            if member.id not in ids:
                self._registry.gone(group, member.id, "not in the next generation", at)
        for each in listed:
            is_new = each["MemberId"] not in group.members
            member = self._registry.member(group, each["MemberId"])
            member.instance_id = each.get("GroupInstanceId") or member.instance_id
            member.generation = group.generation
            if group.protocol_type == CONSUMER:
                member.subscription = topics_of(each["Metadata"]) or member.subscription
            if is_new:
                member.path = group.path
                self._registry.joined(group, member, at)
        group.counts = {topic: self._registry.topics.count(topic) for topic in group.subscribed()}

    # -- SyncGroup ---------------------------------------------------------------------------------

    def synced(self, at: float, peer: Peer, request: Body, body: Body) -> None:
        """Process a SyncGroup request and its response; the leader's request has all members' partitions.

        Args:
            at: when the response passed, in seconds since the epoch.
            peer: the connection.
            request: the request.
            body: the response.
        """
        group = self._registry.group(request["GroupId"])
        if body["ErrorCode"] != NONE:
            self._refused(group, request["MemberId"], body["ErrorCode"], at)
            return
        if request["GenerationId"] < group.generation:
            return
        kind, path = self._types.of_sync(group, request, body)
        member = self._seen(group, at, peer, request)
        if kind is not None:
            group.protocol_type, group.path = kind, path
            if group.kind == "classic":
                group.protocol_name = (
                    body.get("ProtocolName") or request.get("ProtocolName") or group.protocol_name
                )
        member.path, member.joining = path, False
        for each in request["Assignments"]:
            if each["MemberId"] in group.members:
                self._assign(
                    group, self._registry.member(group, each["MemberId"]), kind, each["Assignment"], at
                )
        self._assign(group, member, kind, body["Assignment"], at)
        group.expected.discard(member.id)
        if group.state is not State.PREPARING and not group.expected:
            self._registry.finish(group, at)

    def _assign(self, group: Group, member: Member, kind: str | None, data: bytes, at: float) -> None:
        if kind != CONSUMER:
            return
        try:
            body = decode_assignment(data).body
        except WireError:
            return  # some clients use formats of their own
        found: frozenset[Partition] = partitions_of(body["AssignedPartitions"], "Topic")
        report_assignment(self._registry, group, member, found, at, group.generation)

    # -- Heartbeat, LeaveGroup ---------------------------------------------------------------------

    def heartbeat(self, at: float, peer: Peer, request: Body, body: Body) -> None:
        """Process a Heartbeat and its response, which may call for a rebalance.

        Args:
            at: when the response passed, in seconds since the epoch.
            peer: the connection.
            request: the request.
            body: the response.
        """
        group = self._registry.group(request["GroupId"])
        if body["ErrorCode"] == REBALANCING:
            self._seen(group, at, peer, request)
            if group.state not in {State.PREPARING, State.COMPLETING} and group.rebalance is None:
                self._registry.begin(group, at, self._registry.cause(group, at))
        elif body["ErrorCode"] != NONE:
            self._refused(group, request["MemberId"], body["ErrorCode"], at)
        else:
            self.alive(
                group, at, peer, request["MemberId"], request["GenerationId"], request.get("GroupInstanceId")
            )

    def alive(
        self,
        group: Group,
        at: float,
        peer: Peer,
        member_id: str,
        generation: int,
        instance_id: str | None = None,
    ) -> None:
        """Record that the coordinator has accepted a request of a member.

        Args:
            group: the group.
            at: when the response passed, in seconds since the epoch.
            peer: the connection.
            member_id: the member.
            generation: the generation in the request.
            instance_id: the member's group.instance.id.
        """
        if not member_id:
            return
        self._registry.revive(group, member_id, at, generation)
        member = self._seen(group, at, peer, {"MemberId": member_id, "GroupInstanceId": instance_id})
        member.generation = max(member.generation, generation)
        if group.generation < 0:  # the member joined before the tap started
            group.generation = generation
            group.state = State.STABLE
        elif 0 <= generation < group.generation and group.state is State.STABLE:
            # The coordinator went in the midst of a rebalance; the next one knows what was before, and goes on in that.
            group.generation = generation

    def left(self, at: float, peer: Peer, request: Body, body: Body) -> None:
        """Process a LeaveGroup request and its response.

        Args:
            at: when the response passed, in seconds since the epoch.
            peer: the connection.
            request: the request.
            body: the response.
        """
        group = self._registry.group(request["GroupId"])
        if body["ErrorCode"] != NONE:
            return
        failed = {
            (each["MemberId"], each["GroupInstanceId"])
            for each in body.get("Members", ())
            if each["ErrorCode"]
        }
        leaving = request.get("Members") or [{"MemberId": request.get("MemberId", "")}]
        for each in leaving:
            if (each["MemberId"], each.get("GroupInstanceId")) in failed:
                continue
            member = group.members.get(each["MemberId"]) or _by_instance(group, each.get("GroupInstanceId"))
            if member is None:
                continue
            reason = each.get("Reason") or None
            if len(group.members) > 1 and group.state is not State.PREPARING:
                if group.rebalance is not None:
                    self._registry.finish(group, at)
                self._registry.begin(
                    group, at, Trigger(rebalances.LEAVE, member.id, member.client_id, reason)
                )
            self._registry.gone(group, member.id, "left", at, reason)

    def _seen(self, group: Group, at: float, peer: Peer, request: Body) -> Member:
        member = self._registry.member(group, request["MemberId"])
        if not member.seen_here and not member.joined_at:
            member.joined_at = at
        member.instance_id = request.get("GroupInstanceId") or member.instance_id
        self._registry.touch(group, member, peer, at)
        return member

    def _refused(self, group: Group, member_id: str, error: int, at: float) -> None:
        if error in {UNKNOWN_MEMBER, FENCED} and member_id in group.members:
            self._registry.gone(group, member_id, "expelled", at)


def _cause_unseen(entry: Rebalance | None) -> TypeGuard[Rebalance]:
    return entry is not None and entry.trigger.kind == rebalances.UNSEEN


def _by_instance(group: Group, instance_id: str | None) -> Member | None:
    if instance_id is None:
        return None
    return next((member for member in group.members.values() if member.instance_id == instance_id), None)
