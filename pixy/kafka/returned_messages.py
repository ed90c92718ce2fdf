"""Messages that landed without an offset: they are sent again, because nothing proves that the log has them.

If a request of an idempotent producer fails and a later one of its partition succeeds, librdkafka takes the messages of
the first for written: a broker that knows the producer would have refused the later one. But a broker accepts any first
sequence number of a producer that it does not know on a partition (KAFKA-15591, until Kafka 4.5): a partition is new, or
its leader has lost that memory. Then librdkafka reports messages as delivered that no log has. What it reports so has no
offset.

And messages that were taken back from a producer: the one that replaces it sends them. A producer is replaced because it
sends to the wrong brokers, or because Kafka accepts no more of its sequence numbers, its fatal error. Then the first requests come back
with that error, those behind them are queued again, and the queue comes back at once. So what fails goes first, and then what came back
last.

No leader knows the new producer. So of the messages that have a gate (:mod:`pixy.kafka.partition_gates`) one goes ahead to each partition,
alone, and the others follow when it has an offset. Meanwhile the gate is shut for new messages. Where new messages pass without a gate, all
are sent at once.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

from confluent_kafka import KafkaError, KafkaException

from pixy.kafka.errors import PRODUCER_CODES
from pixy.kafka.producer_messages import Landed, Message, Unsent

logger = logging.getLogger("pixy.kafka")

MOST_RETURNS = 5
"""How often a message is sent again, at most. Each return needs another failure at just the wrong moment, so more are not
to be expected.
"""
_TAKEN_BACK = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})

_SENT, _FAILED, _NO_ROOM = range(3)
"""What becomes of a message that is handed to librdkafka."""


class Produce(Protocol):
    """Hands a message to librdkafka; see ``ProducerClient``. Raises BufferError and KafkaException."""

    def __call__(self, topic: str, item: Message, partition: int, report: Landed) -> None: ...


GateOf = Callable[[str, bytes | None, int], int | None]


class _History(NamedTuple):
    """What a message has been through.

    Attributes:
        returns: how often it has landed without an offset, or made a producer fail.
        deadline: when it is not sent once more (``time.monotonic``).
    """

    returns: int
    deadline: float


class _Returned(NamedTuple):
    item: Message
    message: Any
    landed: Landed
    history: _History


class _Lane:
    """The messages of one partition that a new producer sends.

    Attributes:
        rest: what waits, in order.
        probing: whether one message is on its way, alone.
        proved: whether a message has an offset, so that the rest may follow.
        announced: whether the loop waits for the result.
    """

    __slots__ = ("announced", "probing", "proved", "rest")

    def __init__(self) -> None:
        self.rest: deque[_Returned] = deque()
        self.probing = self.proved = self.announced = False


class ReturnedMessages:
    """Sends messages again. All methods but :meth:`adopt` are called in the producer's thread.

    Args:
        produce: hands a message to librdkafka.
        patience: seconds after which a message that came back is not sent once more to a new producer.
        gate_of: returns the gate of a topic's key and partition; see :func:`pixy.kafka.partition_gates.gate_of`.
        probes: gets the result of each partition that :meth:`busy` has named; see
            :meth:`pixy.kafka.gated_sender.GatedSender.landed`.
    """

    def __init__(
        self,
        produce: Produce,
        patience: float = 300.0,
        gate_of: GateOf = lambda *_: None,
        probes: list[tuple[str, int, int | None]] | None = None,
    ) -> None:
        self._produce = produce
        self._patience = patience
        self._gate_of = gate_of
        self._probes = [] if probes is None else probes
        self._lanes: dict[tuple[str, int], _Lane] = {}
        # librdkafka's queue is full, or its producer is being replaced.
        self._waiting: deque[_Returned] = deque()
        self._adopted: deque[_Returned] = deque()
        self._held = self._fatal = False
        # While held. Requests that failed; then, since next_round(), whether a request was under way; and the rounds.
        self._failed: list[_Returned] = []
        self._taken: list[tuple[bool, _Returned]] = []
        self._rounds: list[list[_Returned]] = []
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        """The number of messages that wait: for room in librdkafka's queue, or for its new producer."""
        here = len(self._waiting) + len(self._adopted) + len(self._failed) + len(self._taken)
        here += sum(len(lane.rest) for lane in self._lanes.values())
        return here + sum(map(len, self._rounds))

    @property
    def held(self) -> bool:
        """Whether :meth:`hold` is in force."""
        return self._held

    def adopt(self, topic: str, item: Message, partition: int, landed: Landed) -> None:
        """Take over a message that the producer refused because of its fatal error. Called on the loop.

        Args:
            topic: of the message.
            item: the message.
            partition: -1 leaves it to librdkafka's partitioner.
            landed: the delivery callback.
        """
        self._adopted.append(_Returned(item, Unsent(topic, partition), landed, self._begin()))

    def _begin(self, returns: int = 0) -> _History:
        return _History(returns, time.monotonic() + self._patience)

    def add(self, item: Message, message: Any, landed: Landed) -> None:
        """Send a message that landed without an offset to its partition again, behind those that librdkafka already has.

        Args:
            item: what was sent.
            message: what confluent-kafka's delivery callback got.
            landed: that callback; it hears of the final result.
        """
        self._add(_Returned(item, message, landed, self._begin(1)))

    def _add(self, returned: _Returned) -> None:
        self._counts[returned.message.topic()] += 1
        if self._held:
            self._failed.append(returned)  # those behind it come back, or will have an offset
            return
        self._waiting.append(returned)
        if len(self._waiting) == 1:
            self.send()

    def take_back(
        self, item: Message, error: Any, message: Any, landed: Landed, history: _History | None = None
    ) -> bool:
        """Keep a message that the producer which is being replaced gives back.

        Args:
            item: what was sent.
            error: what confluent-kafka's delivery callback got.
            message: what it got.
            landed: that callback; it hears of the final result.
            history: None if the message came back for the first time.

        Returns:
            False if that is the message's final result.
        """
        if not self._held:
            return False
        code, history = error.code(), history or self._begin()
        if code in _TAKEN_BACK:
            under_way = code == KafkaError._PURGE_INFLIGHT
            self._taken.append((under_way, _Returned(item, message, landed, history)))
            return True
        if self._fatal and code in PRODUCER_CODES and history.returns < MOST_RETURNS:
            history = history._replace(returns=history.returns + 1)
            self._failed.append(_Returned(item, message, landed, history))
            return True
        return False

    def next_round(self) -> None:
        """What has been taken back so far was behind what will be: that is in requests which have not ended."""
        if self._taken:
            # Of what was taken at once, requests are before the queue.
            self._taken.sort(key=lambda entry: not entry[0])
            self._rounds.append([returned for _, returned in self._taken])
            self._taken = []

    def hold(self, *, fatal: bool = False) -> None:
        """Send nothing until :meth:`release`.

        Args:
            fatal: keep messages that fail with the producer's fatal error, too.
        """
        self._held = True
        self._fatal = self._fatal or fatal

    def release(self) -> None:
        """Send what waits, to the new producer, in order. What waits for too long fails."""
        self._gather()
        self._sort()
        self.send()

    def _sort(self) -> None:
        """Put the messages of partitions that have gates aside: one goes ahead to each."""
        places = []
        at_once: set[tuple[str, int | None]] = set()
        for item, message, _, _ in self._waiting:
            topic, partition = message.topic(), message.partition()
            gate = self._gate_of(topic, item.key, -1 if partition is None else partition)
            places.append((topic, gate))
            if gate is None:
                at_once.add((topic, partition))
        unsorted, self._waiting = self._waiting, deque()
        for returned, (topic, gate) in zip(unsorted, places, strict=True):
            if gate is None or (topic, gate) in at_once:
                self._waiting.append(returned)
            else:
                self._lanes.setdefault((topic, gate), _Lane()).rest.append(returned)

    def release_late(self) -> None:
        """Send what the producer before the present one gave back, behind what the present one has."""
        self.next_round()
        self._waiting.extend(self._failed)
        while self._rounds:
            self._waiting.extend(self._rounds.pop())
        self._failed, self._held, self._fatal = [], False, False
        self.send()

    def busy(self) -> list[tuple[str, int]]:
        """Return the partitions to which one message alone is on its way. Their results will be in ``probes``."""
        for lane in self._lanes.values():
            lane.announced = True
        return list(self._lanes)

    def _gather(self) -> None:
        """Put what waits into the order in which it was sent: what still waited to be sent is last."""
        self.next_round()
        gathered = deque(self._failed)
        while self._rounds:
            gathered.extend(self._rounds.pop())
        for lane in self._lanes.values():
            gathered.extend(lane.rest)
        gathered.extend(self._waiting)
        while self._adopted:
            gathered.append(self._adopted.popleft())
        self._waiting, self._failed, self._lanes = gathered, [], {}
        self._held = self._fatal = False

    def send(self) -> None:
        """Send what waits, in order, as far as there is room."""
        if not self._send_all(self._waiting):
            return
        for key, lane in tuple(self._lanes.items()):
            if self._held or not self._advance(key, lane):
                return

    def _send_all(self, waiting: deque[_Returned]) -> bool:
        """Return whether all messages could be handed over."""
        while waiting:
            item, _, landed, history = waiting[0]
            if self._held or self._hand(waiting[0], partial(self._landed, item, landed, history)) == _NO_ROOM:
                return False
            waiting.popleft()
        return True

    def _advance(self, key: tuple[str, int], lane: _Lane) -> bool:
        """Send the messages of a partition that may be sent now. Return whether there was room."""
        if lane.proved and not self._send_all(lane.rest):
            return False
        while lane.rest and not lane.probing:
            result = self._hand(lane.rest[0], partial(self._probed, key, lane, lane.rest[0]))
            if result == _NO_ROOM:
                return False
            lane.rest.popleft()
            lane.probing = result == _SENT
        if not lane.probing:
            self._end(key, lane)
        return True

    def _hand(self, returned: _Returned, report: Landed) -> int:
        item, message, landed, history = returned
        if history.deadline <= time.monotonic():
            landed(KafkaError(KafkaError._MSG_TIMED_OUT), message)
            return _FAILED
        # A producer that has not learned of the topic yet gives its messages back without a partition.
        partition = -1 if message.partition() is None else message.partition()
        try:
            self._produce(message.topic(), item, partition, report)
        except BufferError:
            return _NO_ROOM
        except KafkaException as error:
            if error.args[0].code() == KafkaError._FATAL:
                return _NO_ROOM  # the next poll says so
            landed(error.args[0], message)
            return _FAILED
        except (TypeError, ValueError) as error:
            landed(KafkaError(KafkaError._INVALID_ARG, str(error)), message)
            return _FAILED
        return _SENT

    def _probed(
        self, key: tuple[str, int], lane: _Lane, returned: _Returned, error: Any, message: Any
    ) -> None:
        """Note the result of the message that went ahead."""
        lane.probing = False
        item, _, landed, history = returned
        if error is None and message.offset() is None and history.returns < MOST_RETURNS:
            history = history._replace(returns=history.returns + 1)
            self._counts[message.topic()] += 1
            waiting = self._failed if self._held else lane.rest
            waiting.insert(len(waiting) if self._held else 0, returned._replace(history=history))
        else:
            lane.proved = error is None and message.offset() is not None
            self._landed(item, landed, history, error, message)
        if not self._held and self._lanes.get(key) is lane:
            self.send()

    def _end(self, key: tuple[str, int], lane: _Lane) -> None:
        del self._lanes[key]
        if lane.announced:
            self._probes.append((*key, key[1] if lane.proved else None))

    def give_up(self, error: Any = None) -> None:
        """Report an error for what still waits.

        Args:
            error: confluent-kafka's; None: the messages were purged.
        """
        self._gather()
        while self._waiting:
            returned = self._waiting.popleft()
            returned.landed(error or KafkaError(KafkaError._PURGE_QUEUE), returned.message)

    def log(self) -> None:
        """Log how many messages have come back since the last call, one line a topic."""
        for topic, count in self._counts.items():
            logger.warning("%s: %d messages landed without an offset and are sent again", topic, count)
        self._counts.clear()

    def _landed(self, item: Message, landed: Landed, history: _History, error: Any, message: Any) -> None:
        if error is None and message.offset() is None:
            if history.returns < MOST_RETURNS:
                history = history._replace(returns=history.returns + 1)
                self._add(_Returned(item, message, landed, history))
                return
            error = KafkaError(KafkaError._MSG_TIMED_OUT, "Kafka names no offset of the message")
        if error is None or not self.take_back(item, error, message, landed, history):
            landed(error, message)
