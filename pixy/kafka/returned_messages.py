"""Messages that landed without an offset: they are sent again, because nothing proves that the log has them.

If a request of an idempotent producer fails and a later one of its partition succeeds, librdkafka takes the messages of
the first for written: a broker that knows the producer would have refused the later one. But a broker accepts any first
sequence number of a producer that it does not know on a partition (KAFKA-15591, until Kafka 4.5): a partition is new, or
its leader has lost that memory. Then librdkafka reports messages as delivered that no log has. What it reports so has no
offset.

And messages that were taken back from a producer: the one that replaces it sends them, in the order of the numbers that they got when
librdkafka was handed them. The order in which they come back says nothing: requests fail, what waits is purged, what fails meanwhile
is queued again and purged later, and librdkafka's threads report each of these when they get the processor.

And those whose partition does not exist any more, because their topic was made again with fewer: they go to another one, unless their
callers asked for that one.

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
from operator import attrgetter
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException

from pixy.kafka.errors import PRODUCER_CODES
from pixy.kafka.library_calls import may_move
from pixy.kafka.producer_messages import Landed, Message, Returned, Unsent

logger = logging.getLogger("pixy.kafka")

MOST_RETURNS = 5
"""The most times that a message is sent again. Each return needs another failure at just the wrong moment, so more are not
to be expected.
"""
_order = attrgetter("order")
_TAKEN_BACK = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})

_NO_OFFSET = "landed without an offset and are sent again"
_MOVED = "go to other partitions: theirs do not exist any more"

_SENT, _FAILED, _NO_ROOM = range(3)
"""The outcomes of handing a message to librdkafka."""


class Produce(Protocol):
    """Hands a message to librdkafka; see :func:`pixy.kafka.library_calls.send_one`."""

    def __call__(self, topic: str, item: Message, partition: int, report: Landed) -> bool: ...


GateOf = Callable[[str, bytes | None, int], int | None]


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
        self.rest: deque[Returned] = deque()
        self.probing = self.proved = self.announced = False


class ReturnedMessages:
    """Sends messages again. All methods but :meth:`adopt` are called in the producer's thread.

    Args:
        produce: hands a message to librdkafka.
        patience: seconds after which a message that came back is not sent once more to a new producer.
        gate_of: returns the gate of a topic's key and partition; see :func:`pixy.kafka.partition_gates.gate_of`.
        probes: gets the result of each partition that :meth:`busy` has named; see
            :meth:`pixy.kafka.gated_sender.GatedSender.landed`.
        alone: takes over a message whose batch was refused (see :mod:`pixy.kafka.lone_messages`), if the error says that; else it
            returns False.
        idempotent: whether a message that is written has an offset.

    Attributes:
        failed: how many messages have failed after they came back.
    """

    def __init__(
        self,
        produce: Produce,
        patience: float = 300.0,
        gate_of: GateOf = lambda *_: None,
        probes: list[tuple[Any, ...]] | None = None,
        alone: Callable[[Returned, Any], bool] = lambda *_: False,
        *,
        idempotent: bool = True,
    ) -> None:
        self._produce = produce
        self._patience = patience
        self._gate_of = gate_of
        self._probes = [] if probes is None else probes
        self._alone = alone
        self._idempotent = idempotent
        self.failed = 0
        self._lanes: dict[tuple[str, int], _Lane] = {}
        # librdkafka's queue is full, or its producer is being replaced.
        self._waiting: deque[Returned] = deque()
        self._adopted: deque[Returned] = deque()
        self._held = self._fatal = False
        self._back: list[Returned] = []  # while held
        self._counts: Counter[tuple[str, str]] = Counter()

    def __len__(self) -> int:
        """Return the number of messages that wait: for room in librdkafka's queue, or for its new producer."""
        here = len(self._waiting) + len(self._adopted) + len(self._back)
        return here + sum(len(lane.rest) for lane in self._lanes.values())

    @property
    def held(self) -> bool:
        """True if :meth:`hold` is in force."""
        return self._held

    def adopt(self, topic: str, item: Message, partition: int, landed: Landed, order: int) -> None:
        """Take over a message that the producer refused because of its fatal error. Called on the loop.

        Args:
            topic: of the message.
            item: the message.
            partition: -1 leaves it to librdkafka's partitioner.
            landed: hears of the final result.
            order: the number of the message.
        """
        self._adopted.append(self._returned(item, Unsent(topic, partition), landed, order))

    def _returned(self, item: Message, message: Any, landed: Landed, order: int) -> Returned:
        """Return a message that came back for the first time."""
        return Returned(item, message, landed, order, 0, time.monotonic() + self._patience)

    def add(self, item: Message, message: Any, landed: Landed, order: int, why: str = _NO_OFFSET) -> None:
        """Send a message to its partition again, behind those that librdkafka already has.

        Args:
            item: what was sent.
            message: what confluent-kafka's delivery callback got.
            landed: hears of the final result.
            order: the number of the message.
            why: for the log, behind "messages".
        """
        self._add(self._returned(item, message, landed, order).again(), why)

    def _add(self, returned: Returned, why: str = _NO_OFFSET) -> None:
        self._counts[returned.message.topic(), why] += 1
        if self._held:
            self._back.append(returned)
            return
        self._waiting.append(returned)
        if len(self._waiting) == 1:
            self.send()

    def take_back(self, item: Message, error: Any, message: Any, landed: Landed, order: int) -> bool:
        """Send a failed message again: the producer which is being replaced gives it back, its partition does not exist, or its batch
        was refused.

        Args:
            item: what was sent.
            error: what confluent-kafka's delivery callback got.
            message: what it got.
            landed: hears of the final result.
            order: the number of the message.

        Returns:
            False if that is the message's final result.
        """
        return self._take_back(self._returned(item, message, landed, order), error)

    def _take_back(self, returned: Returned, error: Any) -> bool:
        code, message, again = error.code(), returned.message, returned.returns < MOST_RETURNS
        if again and may_move(returned.item, message.partition(), error):
            self._add(returned.again()._replace(message=Unsent(message.topic(), -1)), _MOVED)
        elif code == KafkaError._DESTROY:
            # Its partition is gone, and librdkafka speaks of its own object.
            self._settle(returned, KafkaError(KafkaError._UNKNOWN_PARTITION))
        elif self._held and code in _TAKEN_BACK:
            self._back.append(returned)
        elif self._held and self._fatal and code in PRODUCER_CODES and again:
            self._back.append(returned.again())
        else:
            return self._alone(returned, error)
        return True

    def _settle(self, returned: Returned, error: Any) -> None:
        self.failed += error is not None
        returned.landed(error, returned.message)

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
        for returned in self._waiting:
            topic, partition = returned.message.topic(), returned.message.partition()
            gate = self._gate_of(topic, returned.item.key, -1 if partition is None else partition)
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
        self._waiting.extend(sorted(self._back, key=_order))
        self._back = []
        self._held = self._fatal = False
        self.send()

    def busy(self) -> list[tuple[str, int]]:
        """Return the partitions to which one message alone is on its way. Their results will be in ``probes``."""
        for lane in self._lanes.values():
            lane.announced = True
        return list(self._lanes)

    def _gather(self) -> None:
        """Put all that waits into the order in which it was sent."""
        gathered = [*self._back, *self._waiting]
        for lane in self._lanes.values():
            gathered.extend(lane.rest)
        while self._adopted:
            gathered.append(self._adopted.popleft())
        gathered.sort(key=_order)
        self._back, self._waiting, self._lanes = [], deque(gathered), {}
        self._held = self._fatal = False

    def send(self) -> None:
        """Send what waits, in order, as far as there is room."""
        if not self._send_all(self._waiting):
            return
        for key, lane in tuple(self._lanes.items()):
            if self._held or not self._advance(key, lane):
                return

    def _send_all(self, waiting: deque[Returned]) -> bool:
        """Return whether all messages could be handed over."""
        while waiting:
            if self._held or self._hand(waiting[0], partial(self._landed, waiting[0])) == _NO_ROOM:
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

    def _hand(self, returned: Returned, report: Landed) -> int:
        message = returned.message
        if returned.deadline <= time.monotonic():
            self._settle(returned, KafkaError(KafkaError._MSG_TIMED_OUT))
            return _FAILED
        # A producer that has not learned of the topic yet gives its messages back without a partition.
        partition = -1 if message.partition() is None else message.partition()
        try:
            self._produce(message.topic(), returned.item, partition, report)
        except BufferError:
            return _NO_ROOM
        except KafkaException as error:
            if error.args[0].code() == KafkaError._FATAL:
                return _NO_ROOM  # the next poll says so
            self._settle(returned, error.args[0])
            return _FAILED
        except (TypeError, ValueError) as error:
            self._settle(returned, KafkaError(KafkaError._INVALID_ARG, str(error)))
            return _FAILED
        return _SENT

    def _probed(
        self, key: tuple[str, int], lane: _Lane, returned: Returned, error: Any, message: Any
    ) -> None:
        """Note the result of the message that went ahead."""
        lane.probing = False
        if self._is_lost(error, message) and returned.returns < MOST_RETURNS:
            self._counts[message.topic(), _NO_OFFSET] += 1
            if self._held:
                self._back.append(returned.again())
            else:
                lane.rest.appendleft(returned.again())
        else:
            lane.proved = error is None and message.offset() is not None
            self._landed(returned, error, message)
        if not self._held and self._lanes.get(key) is lane:
            self.send()

    def _end(self, key: tuple[str, int], lane: _Lane) -> None:
        del self._lanes[key]
        if lane.announced:
            self._probes.append((*key, key[1] if lane.proved else None, None))

    def give_up(self, error: Any = None) -> None:
        """Report an error for what still waits.

        Args:
            error: confluent-kafka's; None: the messages were purged.
        """
        for key, lane in self._lanes.items():
            if lane.announced:
                self._probes.append((*key, None, None))
        self._gather()
        while self._waiting:
            self._settle(self._waiting.popleft(), error or KafkaError(KafkaError._PURGE_QUEUE))

    def log(self) -> bool:
        """Log how many messages have come back since the last call, one line for each topic and reason. Return whether any have."""
        for (topic, why), count in self._counts.items():
            logger.warning("%s: %d messages %s", topic, count, why)
        any_have = bool(self._counts)
        self._counts.clear()
        return any_have

    def _is_lost(self, error: Any, message: Any) -> bool:
        return error is None and self._idempotent and message.offset() is None

    def _landed(self, returned: Returned, error: Any, message: Any) -> None:
        returned = returned._replace(message=message)
        if self._is_lost(error, message):
            if returned.returns < MOST_RETURNS:
                self._add(returned.again())
                return
            error = KafkaError(KafkaError._MSG_TIMED_OUT, "Kafka names no offset of the message")
        if error is None or not self._take_back(returned, error):
            self._settle(returned, error)
