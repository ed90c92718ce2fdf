"""Ask the brokers for what the traffic has told so far, and correct it (``--verify``).

The only requests of the tap's own: Metadata, OffsetFetch and ListOffsets, on connections that go to the brokers directly.
They find what clients do that bypass the tap: records, commits, deleted groups.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from actors import Actor, ActorDeadError, ActorError, ActorRef, Timeout, handles
from pixy.tap import events
from pixy.tap.config import TapConfig, show_address
from pixy.tap.event_queue import EventQueue
from pixy.tap.messages import GetView
from pixy.tap.observer_actor import ObserverActor
from pixy.tap.tls import Certificates
from pixy.wire import aio
from pixy.wire.exceptions import WireError

_CALL_TIMEOUT: Final = 10.0
"""Seconds of one request to a broker."""
_PARTITIONS: Final = 10_000
"""Partitions whose ends are asked for in one round; the rest keep their age."""
_ANSWER_TIMEOUT: Final = 10.0

Body = dict[str, Any]


class VerifyNow(NamedTuple):
    """To the verifier: begin a round, unless one is going on."""


class Verifier(Actor):
    """Ask the brokers every ``config.verify`` seconds.

    Args:
        config: the brokers and the interval.
        queue: takes the answers to the observer, in order with the traffic.
        observer: knows which groups and partitions to ask for.
        certificates: of connections to brokers.
    """

    mailbox_capacity = 2

    def __init__(
        self,
        config: TapConfig,
        queue: EventQueue,
        observer: ActorRef[ObserverActor],
        certificates: Certificates,
    ) -> None:
        super().__init__()
        self._config, self._queue, self._observer = config, queue, observer
        self._certificates = certificates
        self._bootstrap = [show_address(each) for each in config.brokers]

    @property
    def _options(self) -> Any:
        return {
            "client_id": "kafka-pixy-tap",
            "request_timeout": _CALL_TIMEOUT,
            "dial_timeout": _CALL_TIMEOUT,
            "tls": self._certificates.for_brokers,
        }

    def on_start(self) -> None:
        """Begin to ask."""
        self.set_timer("verify", self._config.verify, VerifyNow(), every=self._config.verify)

    @handles(VerifyNow)
    async def _verify(self, _: VerifyNow) -> None:
        try:
            found: dict[str, list[tuple[str, int]]] = await self._observer.ask(
                GetView("committed"), block=False, timeout=_ANSWER_TIMEOUT
            )
        except (ActorDeadError, ActorError, Timeout):
            return  # the observer is behind or stopping: the next round asks again
        await self._ends({each for partitions in found.values() for each in partitions})
        for group in found:
            await self._commits(group)
        self._queue.flush()

    async def _commits(self, group: str) -> None:
        """Ask a group's coordinator for all of its committed offsets."""
        asked = self._queue.clock()
        try:
            async with aio.GroupClient(self._bootstrap, group, **self._options) as client:
                answer = await client.call("OffsetFetch", {"GroupId": group, "Topics": None})
        except WireError as error:
            self._failed(f"committed offsets of {group}", error)
            return
        if answer["ErrorCode"]:
            self._failed(f"committed offsets of {group}", f"error {answer['ErrorCode']}")
            return
        offsets = tuple(
            (topic["Name"], partition["PartitionIndex"], partition["CommittedOffset"])
            for topic in answer["Topics"]
            for partition in topic["Partitions"]
            if not partition["ErrorCode"]
        )
        self._queue.put(events.CommitsVerified(0, self._queue.clock(), asked, group, offsets))

    async def _ends(self, wanted: Iterable[tuple[str, int]]) -> None:
        """Ask the leaders for the ends of partitions."""
        partitions = set(sorted(wanted)[:_PARTITIONS])
        if not partitions:
            return
        try:
            cluster = await aio.call_metadata(
                self._bootstrap, sorted({topic for topic, _ in partitions}), **self._options
            )
        except WireError as error:
            self._failed("the leaders of partitions", error)
            return
        leaders: dict[int, list[tuple[str, int]]] = {}
        for topic in cluster["Topics"]:
            for each in topic["Partitions"]:
                if (topic["Name"], each["PartitionIndex"]) in partitions:
                    leaders.setdefault(each["LeaderId"], []).append((topic["Name"], each["PartitionIndex"]))
        for found in leaders.values():
            await self._ends_of_leader(found)

    async def _ends_of_leader(self, partitions: list[tuple[str, int]]) -> None:
        topics: dict[str, list[Body]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append({"PartitionIndex": partition, "Timestamp": -1})
        body = {
            "ReplicaId": -1,
            "Topics": [{"Name": name, "Partitions": each} for name, each in topics.items()],
        }
        asked = self._queue.clock()
        try:
            async with aio.PartitionClient(self._bootstrap, *partitions[0], **self._options) as leader:
                answer = await leader.call("ListOffsets", body)
        except WireError as error:
            self._failed("ends of partitions", error)
            return
        ends = tuple(
            (topic["Name"], each["PartitionIndex"], each["Offset"])
            for topic in answer["Topics"]
            for each in topic["Partitions"]
            if not each["ErrorCode"]
        )
        self._queue.put(events.EndsVerified(0, self._queue.clock(), asked, ends))

    def _failed(self, about: str, error: object) -> None:
        self._queue.put(events.VerifyFailed(0, self._queue.clock(), about, str(error)))


__all__ = ["Verifier", "VerifyNow"]
