"""Sends messages through the gates of their topics; see :mod:`pixy.kafka.partition_gates`. Runs on the event loop."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from pixy.kafka.partition_gates import Layout, TopicGates, gate_of
from pixy.kafka.producer_messages import Bulk, Landed, Message
from pixy.kafka.returned_messages import Produce

_TURN = 500
"""Held messages that are sent in one turn of the loop: less than a millisecond."""
_FULL_PAUSE = 0.01
"""Seconds after which a full librdkafka is tried again."""
_MOST_HELD = 100_000
"""Messages held for all partitions: as many as librdkafka's queue takes."""


class Sending(NamedTuple):
    """A message on its way to librdkafka: a single one, or the record ``at`` of a bulk."""

    item: Message
    partition: int
    report: Landed
    size: int
    bulk: Bulk | None = None
    at: int = -1
    deadline: float = 0.0


class GatedSender:
    """The gates of all topics, and the messages that they hold.

    Args:
        produce: hands a message to librdkafka.
        fail: reports the error of a held message.
        probes: the producer's thread appends the results of probes, as arguments of :meth:`landed`.
        max_bytes: of messages held.
        timeout: seconds that a message may be held.
        hashing: whether librdkafka hashes keys.
    """

    def __init__(
        self,
        produce: Produce,
        fail: Callable[[Sending, Any], None],
        probes: list[tuple[Any, ...]],
        *,
        max_bytes: int,
        timeout: float,
        hashing: bool,
    ) -> None:
        self._produce = produce
        self._fail = fail
        self._probes = probes
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._hashing = hashing
        self._loop = asyncio.get_running_loop()
        self._layouts: dict[str, Layout] = {}
        """Of the topics in use. Those that have gates change theirs, but not its partitions while messages wait for them."""
        self._topics: dict[str, TopicGates[Sending]] = {}
        self._held = self._held_bytes = 0
        self._nothing_held = asyncio.Event()
        self._nothing_held.set()

    def shut(self, topic: str, partitions: Sequence[int]) -> None:
        """Close the gates of a topic, unless some of them are closed already.

        Args:
            topic: its name; it is about to be written to.
            partitions: those that have a leader, sorted.
        """
        if partitions and topic not in self._topics:
            known = tuple(partitions)
            layout = self._layouts.setdefault(topic, Layout(known, known))
            self._topics[topic] = TopicGates(layout, hashing=self._hashing)

    def found(self, topic: str, layout: Layout) -> None:
        """Correct what is known of a topic, if it is in use.

        Args:
            topic: its name.
            layout: as a look-up has found it.
        """
        if topic not in self._layouts or not layout.partitions:
            return
        gates = self._topics.get(topic)
        if gates is None:
            self._layouts[topic] = layout
            return
        gone = gates.found(layout)
        self._layouts[topic] = gates.layout
        for partition in gone:
            self._release(topic, partition)

    def shut_again(self, busy: Sequence[tuple[str, int]] = ()) -> None:
        """Close all gates: there is a new producer.

        Args:
            busy: partitions to which a message is on its way already: as if it were a probe, :meth:`landed` gets its result.
        """
        taken = defaultdict[str, set[int]](set)
        for topic, partition in busy:
            taken[topic].add(partition)
        for topic, layout in self._layouts.items():
            gates = self._topics.get(topic)
            if gates is None:
                gates = self._topics[topic] = TopicGates(layout, hashing=self._hashing)
            for partition in gates.shut(taken[topic]):
                self._release(topic, partition)

    def forget(self, topic: str) -> None:
        """Remove the gates of a topic, unless messages wait before them."""
        gates = self._topics.get(topic)
        if gates is None or gates.idle():
            self._topics.pop(topic, None)
            self._layouts.pop(topic, None)

    def gate_of(self, topic: str, key: bytes | None, partition: int) -> int | None:
        """Return the gate before the messages that come after one; see :func:`pixy.kafka.partition_gates.gate_of`.

        Called in the producer's thread.

        Args:
            topic: of the message.
            key: of the message.
            partition: where it went, or was to go; -1 if librdkafka chooses.
        """
        layout = self._layouts.get(topic)
        return None if layout is None else gate_of(key, partition, layout.count, hashing=self._hashing)

    def choose(
        self, topic: str, batch: Sequence[Message], partitions: Sequence[int]
    ) -> tuple[Sequence[int], list[int] | None]:
        """Choose where messages go.

        Args:
            topic: of all messages.
            batch: the messages.
            partitions: one for each message; -1 leaves it to librdkafka's partitioner.

        Returns:
            For each message the partition for librdkafka, and the one for :meth:`put`: None if all these gates are open
            and the messages need not go through it.
        """
        gates = self._topics.get(topic)
        if gates is None:
            return partitions, None
        if partitions.count(-1) == len(partitions) and gates.all_open({item.key for item in batch}):
            # A topic with gates that stay closed has few keys, so most of its batches end here.
            return partitions, None
        choose = gates.choose
        chosen = [choose(item.key, partition) for item, partition in zip(batch, partitions, strict=True)]
        targets = [target for target, _ in chosen]
        return [partition for _, partition in chosen], None if gates.closed.isdisjoint(targets) else targets

    def put(self, topic: str, target: int, sending: Sending) -> None:
        """Send a message, or hold it.

        Args:
            topic: of the message.
            target: the partition where the message will go.
            sending: the message.

        Raises:
            BufferError: there is no room.
            KafkaException: librdkafka refused the message; also TypeError and ValueError.
        """
        gates = self._topics.get(topic)
        if gates is None or target not in gates.closed:
            self._produce(topic, sending.item, sending.partition, sending.report)
        elif gates.admit(target):
            try:
                moved = self._probe(topic, target, sending)
            except BaseException:
                gates.withdraw(target)
                raise
            if moved:
                gates.drop(target)
                self._release(topic, target)
        else:
            self._hold(topic, target, sending)

    def _probe(self, topic: str, target: int, sending: Sending) -> bool:
        """Send a probe. Return whether it goes to another partition, because its own does not exist: then it is none."""
        report = partial(self._landed, topic, target, self._topics[topic].generation, sending.report)
        return self._produce(topic, sending.item, sending.partition, report)

    def _hold(self, topic: str, target: int, sending: Sending) -> None:
        if self._held >= _MOST_HELD or (self._held and self._held_bytes + sending.size > self._max_bytes):
            raise BufferError
        self._held += 1
        self._held_bytes += sending.size
        self._nothing_held.clear()
        sending = sending._replace(deadline=self._loop.time() + self._timeout)
        if self._topics[topic].hold(target, sending):
            self._loop.call_later(self._timeout, self._expire, topic, target)

    def _let_go(self, sending: Sending) -> None:
        self._held -= 1
        self._held_bytes -= sending.size
        if not self._held:
            self._nothing_held.set()

    def _landed(
        self, topic: str, target: int, generation: object, report: Landed, error: Any, message: Any
    ) -> None:
        """Note the result of a probe. Called in the producer's thread."""
        report(error, message)
        known = error is None and message.offset() is not None
        self._probes.append((topic, target, message.partition() if known else None, generation))

    def landed(self, topic: str, target: int, actual: int | None, generation: object = None) -> None:
        """Continue after a probe; see :meth:`pixy.kafka.partition_gates.TopicGates.landed`.

        Args:
            topic: of the probe.
            target: the partition where it was expected to go.
            actual: where it has an offset; None if it failed.
            generation: of the gates that sent it; None for a message that was on its way when they were shut.
        """
        gates = self._topics.get(topic)
        if gates is None or target not in gates.probing() or generation not in (None, gates.generation):
            return
        for partition in gates.landed(target, actual):
            self._release(topic, partition)

    def _release(self, topic: str, partition: int) -> None:
        gates = self._topics.get(topic)
        if gates is None:
            return
        for _ in range(_TURN):
            found = gates.next(partition)
            if found is None:
                if not gates.closed:
                    self._layouts[topic] = gates.layout
                    del self._topics[topic]
                return
            sending, is_probe = found
            moved = False
            try:
                if is_probe:
                    moved = self._probe(topic, partition, sending)
                else:
                    self._produce(topic, sending.item, sending.partition, sending.report)
            except BufferError:
                gates.put_back(partition, sending)
                self._loop.call_later(_FULL_PAUSE, self._release, topic, partition)
                return
            except (KafkaException, TypeError, ValueError) as error:
                is_probe = False
                self._fail(sending, error)
            self._let_go(sending)
            if moved:
                gates.drop(partition)
            elif is_probe:
                gates.sent(partition)
                return
        self._loop.call_soon(self._release, topic, partition)

    def _expire(self, topic: str, partition: int) -> None:
        """Fail the messages that have been held too long: their partition has no leader."""
        gates = self._topics.get(topic)
        held = None if gates is None else gates.held(partition)
        while held:
            if held[0].deadline > self._loop.time():
                self._loop.call_at(held[0].deadline, self._expire, topic, partition)
                return
            self._give_up(held.popleft(), KafkaError._MSG_TIMED_OUT)

    def _give_up(self, sending: Sending, code: int) -> None:
        self._let_go(sending)
        self._fail(sending, KafkaError(code))

    async def drain(self, timeout: float) -> int:
        """Wait until nothing is held, then fail what still is. Return how many messages that are.

        Args:
            timeout: seconds to wait.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._nothing_held.wait()
        except TimeoutError:
            pass
        count = self._held
        for gates in self._topics.values():
            for partition in gates.probing():
                held = gates.held(partition)
                while held:
                    self._give_up(held.popleft(), KafkaError._PURGE_QUEUE)
        return count
