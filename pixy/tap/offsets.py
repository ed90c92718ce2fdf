"""Committed offsets of groups and end offsets of partitions, from clients' requests and responses."""

from __future__ import annotations

from typing import Any, Final

from pixy.tap import ends
from pixy.tap.classic import ClassicGroups
from pixy.tap.groups import Commit, Group, Partition, State
from pixy.tap.partial_decoders import FetchResponseSummary, ProduceResponseSummary, ProduceSummary, Topic
from pixy.tap.registry import Peer, Registry
from pixy.tap.transactions import Transactions

LATEST: Final = -1
"""The timestamp that requests the end offset in ListOffsets."""
_READ_COMMITTED: Final = 1

Body = dict[str, Any]


class Offsets:
    """Process OffsetCommit, OffsetFetch, OffsetDelete, TxnOffsetCommit, ListOffsets, Produce and Fetch."""

    def __init__(self, registry: Registry, classic: ClassicGroups) -> None:
        self._registry = registry
        self._classic = classic
        self.transactions = Transactions()

    # -- commits -----------------------------------------------------------------------------------

    def committed(self, at: float, asked_at: float, peer: Peer, request: Body, body: Body) -> None:
        """Process an OffsetCommit request and its response.

        Args:
            at: when the response passed, in seconds since the epoch.
            asked_at: when the request passed: of two commits that were on their way at the same time, on two connections, the
                greater offset holds, because a coordinator that was frozen or cut off answers late.
            peer: the connection.
            request: the request; a commit with a generation also shows that the member is alive.
            body: the response.
        """
        failed = self._failed(body)
        accepted = {
            key: Commit(partition["CommittedOffset"], at, connection=peer.number)
            for topic in request["Topics"]
            for partition in topic["Partitions"]
            if (key := (self._topic(topic), partition["PartitionIndex"])) not in failed
        }
        if not accepted:
            return
        group = self._group(request["GroupId"])
        for key, commit in accepted.items():
            known = group.committed.get(key)
            if (
                known is None
                or known.at <= asked_at
                or known.offset <= commit.offset
                or known.connection == peer.number
            ):
                group.committed[key] = commit
        generation = request.get("GenerationIdOrMemberEpoch", -1)
        if generation >= 0 and request.get("MemberId"):
            if group.kind in {"consumer", "streams"}:
                member = group.members.get(request["MemberId"])
                if member is not None:
                    self._registry.touch(group, member, peer, at)
            else:
                group.kind = "classic"
                self._classic.alive(
                    group, at, peer, request["MemberId"], generation, request.get("GroupInstanceId")
                )

    def committed_in_transaction(self, request: Body, body: Body) -> None:
        """Process a TxnOffsetCommit request and its response.

        Args:
            request: the request.
            body: the response.
        """
        self.transactions.add(request, body)

    def ended_transaction(self, at: float, request: Body, body: Body) -> None:
        """Process an EndTxn request and its response.

        Args:
            at: when the response passed, in seconds since the epoch.
            request: the request.
            body: the response.
        """
        for group_id, partition, offset in self.transactions.end(request, body):
            self._group(group_id).committed[partition] = Commit(offset, at, "transaction")

    def deleted(self, request: Body, body: Body) -> None:
        """Process an OffsetDelete request and its response.

        Args:
            request: the request.
            body: the response.
        """
        group = self._registry.groups.get(request["GroupId"])
        if group is None or body["ErrorCode"]:
            return
        failed = self._failed(body)
        for topic in request["Topics"]:
            for partition in topic["Partitions"]:
                if (topic["Name"], partition["PartitionIndex"]) not in failed:
                    group.committed.pop((topic["Name"], partition["PartitionIndex"]))

    def fetched(self, at: float, asked_at: float, request: Body, body: Body) -> None:
        """Process an OffsetFetch request and its response, which says what the coordinator has: more, less or nothing.

        Args:
            at: when the response passed, in seconds since the epoch.
            asked_at: when the request passed: a commit that was answered later is newer than the response.
            request: the request.
            body: the response.
        """
        if "Groups" in body:
            wanted = {each["GroupId"]: each["Topics"] for each in request.get("Groups", ())}
            for each in body["Groups"]:
                if not each["ErrorCode"]:
                    every = each["GroupId"] in wanted and wanted[each["GroupId"]] is None
                    self._believe(each["GroupId"], at, asked_at, each["Topics"], every=every)
        elif not body.get("ErrorCode"):
            every = request.get("Topics") is None
            self._believe(request["GroupId"], at, asked_at, body["Topics"], every=every)

    def _believe(self, group_id: str, at: float, asked_at: float, topics: list[Body], *, every: bool) -> None:
        answered = {
            (self._topic(topic), partition["PartitionIndex"]): partition
            for topic in topics
            for partition in topic["Partitions"]
        }
        told = {key: each["CommittedOffset"] for key, each in answered.items() if not each["ErrorCode"]}
        group = self._registry.groups.get(group_id)
        if group is None:
            if all(offset < 0 for offset in told.values()):
                return
            group = self._group(group_id)
        if every:
            told |= {key: -1 for key in group.committed if key not in answered}
        for key, offset in told.items():
            self.take(group, key, offset, at, asked_at, "fetch")

    def take(
        self, group: Group, key: Partition, offset: int, at: float, asked_at: float, source: str
    ) -> bool:
        """Take over what the coordinator says of a committed offset, unless a later commit was seen.

        Args:
            group: the group.
            key: the partition.
            offset: the offset, -1 for none.
            at: when the response passed, in seconds since the epoch.
            asked_at: when the request passed.
            source: see :class:`~pixy.tap.groups.Commit`.

        Returns:
            Whether that changes what was known.
        """
        known = group.committed.get(key)
        if known is not None and known.at > asked_at:
            return False
        if offset < 0:
            return group.committed.pop(key) is not None
        if known is not None and known.offset == offset:
            group.committed[key] = known._replace(at=at)
            return False
        group.committed[key] = Commit(offset, at, source)
        return True

    def known(self) -> dict[str, list[tuple[str, int]]]:
        """List the partitions with committed offsets by group; those whose topic has no name yet are left out."""
        topics = self._registry.topics
        return {
            group.id: [
                (name, partition)
                for topic, partition in group.committed
                if isinstance(name := topics.resolve(topic), str)
            ]
            for group in self._registry.groups.values()
            if len(group.committed) or group.kind == "offsets"
        }

    def verified(
        self, at: float, asked_at: float, group_id: str, offsets: tuple[tuple[str, int, int], ...]
    ) -> int:
        """Take over all committed offsets of a group from its coordinator.

        Args:
            at: when the coordinator has answered, in seconds since the epoch.
            asked_at: when it was asked.
            group_id: the group.
            offsets: topic, partition and offset of each.

        Returns:
            The number of offsets that were wrong.
        """
        group = self._registry.groups.get(group_id)
        if group is None:
            return 0
        told: dict[Partition, int] = {(topic, partition): offset for topic, partition, offset in offsets}
        told |= {
            key: -1 for key in group.committed if (self._registry.topics.resolve(key[0]), key[1]) not in told
        }
        wrong = sum(self.take(group, key, offset, at, asked_at, "verify") for key, offset in told.items())
        group.verified = at
        if not len(group.committed) and not len(group.members) and group.generation < 0:
            self._registry.deleted(group_id, at)
        return wrong

    def ends_verified(self, at: float, asked_at: float, found: tuple[tuple[str, int, int], ...]) -> int:
        """Take over ends of partitions from their leader.

        Args:
            at: when the leader has answered, in seconds since the epoch.
            asked_at: when it was asked.
            found: topic, partition and end of each.

        Returns:
            The number of ends that were not known.
        """
        topics = self._registry.topics
        wrong = 0
        for topic, partition, offset in found:
            known = topics.end(topic, partition)
            topics.set_end(topic, partition, offset, at, asked=asked_at, source=ends.VERIFIED)
            wrong += known != topics.end(topic, partition)
        return wrong

    # -- end offsets -------------------------------------------------------------------------------

    def listed(self, at: float, asked_at: float, peer: Peer, request: Body, body: Body) -> None:
        """Process a ListOffsets request and its response.

        Args:
            at: when the response passed, in seconds since the epoch.
            asked_at: when the request passed.
            peer: the connection.
            request: the request.
            body: the response.
        """
        latest = {
            (topic["Name"], partition["PartitionIndex"])
            for topic in request["Topics"]
            for partition in topic["Partitions"]
            if partition["Timestamp"] == LATEST
        }
        stable = request.get("IsolationLevel", 0) == _READ_COMMITTED
        for topic in body["Topics"]:
            for partition in topic["Partitions"]:
                tp = (topic["Name"], partition["PartitionIndex"])
                offsets = partition.get("OldStyleOffsets") or [partition.get("Offset", -1)]
                if tp in latest and not partition["ErrorCode"] and offsets[0] >= 0:
                    self._registry.topics.set_end(
                        *tp,
                        offsets[0],
                        at,
                        asked=asked_at,
                        source=ends.STABLE if stable else ends.LISTED,
                        broker=peer.broker,
                    )

    def read(self, at: float, asked_at: float, peer: Peer, summary: FetchResponseSummary) -> None:
        """Process a Fetch response.

        Args:
            at: when it passed, in seconds since the epoch.
            asked_at: when its request passed.
            peer: the connection.
            summary: the response.
        """
        for topic, partition, end in summary.ends:
            self._registry.topics.set_end(topic, partition, end, at, asked=asked_at, broker=peer.broker)

    def written(
        self,
        at: float,
        asked_at: float,
        peer: Peer,
        request: ProduceSummary,
        summary: ProduceResponseSummary,
    ) -> None:
        """Process a Produce request and its response: the records end at the first offset and their number.

        Args:
            at: when the response passed, in seconds since the epoch.
            asked_at: when the request passed.
            peer: the connection.
            request: the request.
            summary: the response.
        """
        topics = self._registry.topics
        sent = {(topics.resolve(each.topic), each.partition): each for each in request.batches if each.alone}
        for topic, partition, error, offset in summary.partitions:
            if error or offset < 0:
                continue
            batch = sent.get((topics.resolve(topic), partition))
            if batch is None:  # an old format, or several batches: where they end is not known
                topics.ends.written_unanswered(topics.resolve(topic), partition, at)
                continue
            topics.set_end(
                topic,
                partition,
                offset + batch.last_offset_delta + 1,
                at,
                asked=asked_at,
                source=ends.PRODUCE,
                broker=peer.broker,
            )

    def written_unanswered(self, at: float, request: ProduceSummary) -> None:
        """Process a Produce request with acks=0, which has no response.

        Args:
            at: when it passed, in seconds since the epoch.
            request: the request.
        """
        topics = self._registry.topics
        for topic, partition, _ in request.sizes:
            topics.ends.written_unanswered(topics.resolve(topic), partition, at)

    # -- groups ------------------------------------------------------------------------------------

    def forget_topics(self, names: list[str]) -> None:
        """Forget the commits of topics that were deleted: their coordinators delete them, too."""
        for group in self._registry.groups.values() if names else ():
            for key in [each for each in group.committed if each[0] in names]:
                group.committed.pop(key)

    def _failed(self, body: Body) -> set[Partition]:
        return {
            (self._topic(topic), partition["PartitionIndex"])
            for topic in body["Topics"]
            for partition in topic["Partitions"]
            if partition["ErrorCode"]
        }

    def _group(self, group_id: str) -> Group:
        group = self._registry.group(group_id)
        if group.state is State.UNKNOWN and not len(group.members) and group.generation < 0:
            group.kind = "offsets"
        return group

    def _topic(self, topic: Body) -> Topic:
        return topic["Name"] if "Name" in topic else self._registry.topics.resolve(topic["TopicId"])
