"""The consumer instances of one caller. An instance belongs to its creator; to all others it does not exist."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar, cast

from pixy.auth.principal import Caller
from pixy.auth.rules import Access
from pixy.engine.consume.long_polls import Message
from pixy.engine.guard import Guard
from pixy.engine.instances.client import InstanceClient
from pixy.engine.instances.messages import (
    AssignPartitions,
    CommitOffsets,
    CommitPositions,
    DeleteInstance,
    GetAssignment,
    GetCommitted,
    GetSubscription,
    InstanceRequest,
    InstanceSpec,
    ReadBatch,
    ReadRecords,
    SeekTo,
    SubscribeTo,
    Unsubscribe,
)
from pixy.errors import Forbidden, Unauthenticated, UnknownInstance

R = TypeVar("R")

_OWN = (DeleteInstance, GetAssignment, GetSubscription, Unsubscribe)
"""Requests that need no right but the instance."""
_READS = (GetAssignment, GetCommitted, GetSubscription)
"""Requests that change nothing."""


def message_size(message: Message) -> int:
    """Return the bytes of a message's key and value."""
    return len(message.value() or b"") + len(message.key() or b"")


class GuardedInstances:
    """See :class:`pixy.engine.guarded.GuardedCluster`; the methods are those of InstanceClient."""

    def __init__(self, client: InstanceClient, guard: Guard, caller: Caller, cluster: str) -> None:
        self._client = client
        self._guard = guard
        self._caller = caller
        self._cluster = cluster
        self._owner = caller.principal.name

    def _to(self, verb: str, topic: str | None, group: str) -> Access:
        return Access(verb, self._cluster, topic, group)

    def check_group(self, group: str) -> None:
        """Raise Forbidden if the caller may do nothing with instances of a group, before another daemon is asked for one."""
        verbs = ("consume", "ack", "describe")
        if not any(self._guard.allows(self._caller, self._to(verb, None, group)) for verb in verbs):
            with self._guard.begin(self._caller, self._to("consume", None, group)):
                pass  # refused, and recorded

    async def create(self, group: str, name: str | None, spec: InstanceSpec) -> str:
        """Create an instance: ``consume`` on the group, and ``ack`` if it commits by itself."""
        wanted = [self._to("consume", None, group)]
        if spec.auto_commit:
            wanted.append(self._to("ack", None, group))
        with self._guard.begin(self._caller, *wanted) as operation:
            operation.changes()
            most = self._guard.limiter.limit_of(self._caller.principal).instances
            place = self._guard.owned.place(self._owner, most)
            return await self._client.create(group, name, spec, owner=self._owner, place=place)

    async def find(self, group: str, name: str) -> object:
        """Find an instance of the caller's. Raises UnknownInstance for another's, as if there were none."""
        try:
            return await self._client.find(group, name, owner=self._owner)
        except UnknownInstance:
            with self._guard.begin_own(self._caller, self._to("consume", None, group)):
                raise  # counted; what is found is counted when it is asked

    async def ask(self, group: str, name: str, request: InstanceRequest[R]) -> R:
        """Send a request to an instance of the caller's; the rights depend on the request."""
        await self._client.find(group, name, owner=self._owner)
        rights = self._rights(group, request)
        begin = self._guard.begin if rights else self._guard.begin_own
        with begin(self._caller, *(rights or [self._to("consume", None, group)])) as operation:
            if not isinstance(request, _READS):
                operation.changes()
            return await self._client.ask(group, name, self._restricted(group, request), owner=self._owner)

    async def read(self, group: str, name: str, request: ReadRecords) -> ReadBatch:
        """Read records: ``consume`` on the group and on each topic that a record is from."""
        wanted = self._to("consume", request.topic, group)
        with self._guard.begin(self._caller, wanted, polls=True) as operation:
            batch = await self._client.read(group, name, request, owner=self._owner)
            operation.carries(lambda: sum(map(message_size, batch.records)))
        # The read may have waited longer than the credential counts, and the rules may be others than when the instance subscribed.
        if batch.records and self._guard.authenticator.again(self._caller) is None:
            batch.give_back()
            raise Unauthenticated("the credential ended while the read waited")
        for topic in {str(record.topic()) for record in batch.records}:
            if not self._guard.allows(self._caller, self._to("consume", topic, group)):
                batch.give_back()
                self._guard.check(self._caller, self._to("consume", topic, group))
        return batch

    def _rights(self, group: str, request: InstanceRequest[R]) -> list[Access]:
        if isinstance(request, _OWN):
            return []
        if isinstance(request, SubscribeTo) and request.pattern:
            # Which topics it may find is asked at each look: see `_restricted`.
            return [self._to("consume", None, group)]
        if isinstance(request, SubscribeTo):
            return self._topics("consume", group, request.topics)
        if isinstance(request, AssignPartitions):
            return self._topics("consume", group, (topic for topic, _ in request.partitions))
        if isinstance(request, SeekTo):
            return self._topics("consume", group, (topic for topic, _ in (*request.offsets, *request.times)))
        if isinstance(request, GetCommitted):
            return self._topics("describe", group, (topic for topic, _ in request.partitions))
        if isinstance(request, CommitOffsets):
            return self._topics("ack", group, (commit.topic for commit in request.commits))
        if isinstance(request, CommitPositions):
            return [self._to("ack", None, group)]
        raise Forbidden(f"{self._owner} may not ask for {type(request).__name__}")  # nobody has thought of it

    def _restricted(self, group: str, request: InstanceRequest[R]) -> InstanceRequest[R]:
        if not isinstance(request, SubscribeTo):
            return request

        def allowed(topic: str) -> bool:
            return self._guard.allows(self._caller, self._to("consume", topic, group))

        return cast("InstanceRequest[R]", replace(request, allowed=allowed))

    def _topics(self, verb: str, group: str, topics: Iterable[str]) -> list[Access]:
        return [self._to(verb, topic, group) for topic in dict.fromkeys(topics)]


__all__ = ["GuardedInstances", "message_size"]
