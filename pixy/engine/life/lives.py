"""The entrance: tells the life of a message, and finds messages, for callers who may hear it.

Whoever may ``console`` a topic may ask. Groups are shown to whom may ``console`` them, key and headers to whom may ``consume`` the topic;
a search is for those as well. The value of a message is never shown.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from pixy.auth.rules import Access
from pixy.config.model import App, Tracing
from pixy.engine.guard import Guard
from pixy.engine.inspector import Inspector
from pixy.engine.life import journal
from pixy.engine.life.groups import Clock, Message, standings
from pixy.engine.life.search import Wanted, search
from pixy.engine.life.story import Event, Standing, Story, Unknown
from pixy.engine.topic_names import check_topic
from pixy.errors import InvalidParameter, KafkaError, OffsetOutOfRange, PixyError, TooManyRequests
from pixy.kafka import settings
from pixy.kafka.log_reader import Budget, LogReader
from pixy.kafka.threads import KafkaThreads

LAKE: Final = "archive and replays"
"""The question that the daemon never answers: it does without the pipeline."""
_AGO: Final = 86_400.0
"""Seconds before the present at which the journal is begun if the message's own time is not known."""
_SEARCHED: Final = 3_600.0
"""Seconds before the present at which a search begins unless somebody says otherwise."""
_END, _BEGINNING = -1, -2


class Lives:
    """Tells lives of messages. One object serves all callers.

    Args:
        inspector: asks the engine and Kafka.
        guard: knows rights; None: everybody may everything.
        config: the whole configuration.
        now: the loop's time.
        wall: seconds since 1970.
    """

    def __init__(
        self,
        inspector: Inspector,
        guard: Guard | None,
        config: App,
        now: Callable[[], float],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._inspector = inspector
        self._guard = guard
        self._config = config
        self._limits: Tracing = config.tracing
        self._now, self._wall = now, wall
        self._threads = KafkaThreads("kafka-trace", self._limits.max_searches)
        self._busy = 0

    async def trace(self, message: Message, group: str = "", since: float | None = None) -> Story:
        """Tell the life of a message.

        Args:
            message: which.
            group: only this group; empty for all.
            since: where to begin in the journal, in seconds since 1970; None: the message's own timestamp.

        Raises:
            Forbidden: the caller may not.
            UnknownTopic: there is no such topic or partition.
            TooManyRequests: others ask at this moment.
        """
        check_topic(message.topic)
        if not 0 <= message.offset < 2**63 or not 0 <= message.partition < 2**31:
            raise InvalidParameter(f"bad message: {message} is no partition and offset")
        with self._permitted(message.cluster, message.topic), self._place():
            return await self._tell(message, group, since)

    async def search(
        self,
        cluster: str,
        topic: str,
        wanted: Wanted,
        partition: int | None = None,
        since: float | None = None,
    ) -> dict[str, Any]:
        """Find messages by key or header value; arguments and errors as in :meth:`trace`.

        Args:
            cluster: its name.
            topic: where to look.
            wanted: what to look for.
            partition: the only one to look into; None for all.
            since: where to begin, in seconds since 1970; None: an hour ago.
        """
        check_topic(topic)
        if wanted.key is None and wanted.header is None:
            raise InvalidParameter("name an offset, a key or a header to look for")
        with self._permitted(cluster, topic, "consume"), self._place():
            begin = self._wall() - _SEARCHED if since is None else since
            ranges = await self._ranges(cluster, topic, begin)
            if partition is not None:
                if partition not in ranges:
                    raise InvalidParameter(f"bad partition: topic {topic} has no partition {partition}")
                ranges = {partition: ranges[partition]}
            job = partial(search, self._reader(cluster), topic, ranges, wanted, self._budget())
            found = await self._threads.run(job)
            return {"cluster": cluster, "topic": topic, "since": begin, **found.document()}

    # -- rights and bounds --------------------------------------------------------------------------

    @contextlib.contextmanager
    def _permitted(self, cluster: str, topic: str, *verbs: str) -> Iterator[None]:
        guard = self._guard
        if guard is None:
            yield
            return
        caller = guard.caller()
        guard.admit(caller, cluster)
        with guard.begin(caller, *(Access(verb, cluster, topic) for verb in ("console", *verbs))):
            yield

    def _allowed(self, access: Access) -> bool:
        return self._guard is None or self._guard.allows(self._guard.caller(), access)

    @contextlib.contextmanager
    def _place(self) -> Iterator[None]:
        if self._busy >= self._limits.max_searches:
            raise TooManyRequests("tracing.max_searches")
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1

    def _budget(self) -> Budget:
        limits = self._limits
        return Budget(limits.search_records, limits.search_bytes, float(limits.search_timeout))

    def _reader(self, cluster: str) -> LogReader:
        return LogReader(settings.admin(self._config.proxies[cluster]))

    async def _ranges(self, cluster: str, topic: str, since: float) -> dict[int, tuple[int, int]]:
        """Return where each partition begins at a time, and its end."""
        starts = await self._inspector.at_time(cluster, topic, max(0, int(since * 1000)))
        ends = await self._inspector.at_time(cluster, topic, _END)
        found = {number: (at, ends[number]) for number, at in starts.items() if number in ends}
        nothing = found and all(start == end for start, end in found.values())
        reader = self._reader(cluster)
        if nothing and await self._threads.run(partial(_ignores_times, reader, topic, ends, since)):
            starts = await self._inspector.at_time(cluster, topic, _BEGINNING)
            found = {number: (at, ends[number]) for number, at in starts.items() if number in ends}
        return found

    # -- one message --------------------------------------------------------------------------------

    async def _tell(self, message: Message, group: str, since: float | None) -> Story:
        clock = Clock(self._now(), self._wall())
        story = Story(
            clock.wall, message.cluster, message.topic, message.partition, message.offset,
            with_content=self._allowed(Access("consume", message.cluster, message.topic)),
        )  # fmt: skip
        await self._record(message, story)
        visible = self._visible(message)
        story.groups, unknown = await standings(self._inspector, message, group, visible, clock)
        story.unknown += unknown
        await self._journal(message, story, since, lambda name: group in ("", name) and visible(name))
        _add_live(story)
        if any(each.committed is not None for each in story.groups):
            story.unknown.append(
                Unknown("when it was committed", "Kafka keeps no history of committed offsets")
            )
        story.unknown.append(
            Unknown(LAKE, "the daemon does not know the lake: kafka-pixy trace --lake looks there")
        )
        return story

    def _visible(self, message: Message) -> Callable[[str], bool]:
        known: dict[str, bool] = {}

        def visible(group: str) -> bool:
            if group not in known:
                known[group] = self._allowed(Access("console", message.cluster, message.topic, group))
            return known[group]

        return visible

    async def _record(self, message: Message, story: Story) -> None:
        begin, end = await self._inspector.bounds(message.cluster, message.topic, message.partition)
        why = "its offset is a marker of a transaction, or compaction has removed the message"
        if message.offset < begin:
            why = f"the log begins at offset {begin}: retention or DeleteRecords has removed the message"
        elif message.offset >= end:
            why = f"the log ends at offset {end}: it is not written yet, or the topic was made again"
        else:
            where = message.topic, message.partition, message.offset
            try:
                story.record = await self._threads.run(lambda: self._reader(message.cluster).read(*where))
            except (KafkaError, OffsetOutOfRange) as error:
                why = f"the log cannot be read: {error}"
        if story.record is None:
            story.unknown.append(Unknown("the message itself", why))
            return
        stamp = story.record.record.timestamp
        if stamp >= 0:
            batch = story.record.batch
            set_by = "the broker" if batch is not None and batch.append_time else "the producer"
            story.events.append(Event(stamp / 1000, "written", "log", detail={"time_set_by": set_by}))

    async def _journal(
        self, message: Message, story: Story, since: float | None, visible: Callable[[str], bool]
    ) -> None:
        what = "who produced it, offers, retries and acks of the past"
        topic = self._config.proxies[message.cluster].journal.topic
        if not topic:
            key = f"proxies.{message.cluster}.journal.topic"
            story.unknown.append(Unknown(what, f"the journal is off ({key})"))
            return
        begin = self._wall() - _AGO
        if story.record is not None and 0 <= story.record.record.timestamp / 1000 <= self._wall():
            begin = story.record.record.timestamp / 1000
        begin = begin if since is None else since
        try:
            ranges = await self._ranges(message.cluster, topic, begin)
            where = message.topic, message.partition, message.offset
            job = partial(
                journal.read_journal, self._reader(message.cluster), topic, ranges, where, self._budget()
            )
            scan = await self._threads.run(job)
        except PixyError as error:
            story.unknown.append(Unknown(what, f"the journal {topic} cannot be read: {error}"))
            return
        story.events += [each for each in scan.events if not each.group or visible(each.group)]
        story.unknown += _gaps(scan, topic, begin)
        if not any(each.event == "produced" for each in story.events):
            why = f"the journal has no such event since {_utc(begin)}: another program wrote it, or the event waits for journal.linger"
            story.unknown.append(Unknown("who produced it", why))


def _ignores_times(reader: LogReader, topic: str, ends: Mapping[int, int], since: float) -> bool:
    """Return whether the brokers look no times up, as those of the sandbox: the last message is younger than where they say to begin."""
    for partition, end in ends.items():
        if end > 0:
            last = reader.read(topic, partition, end - 1)
            return last is not None and last.record.timestamp >= since * 1000
    return False


def _gaps(scan: journal.JournalScan, topic: str, begin: float) -> list[Unknown]:
    """Say what the journal does not say."""
    found = []
    if scan.read_until is not None:
        until = _utc(scan.read_until) if scan.read_until else "its first message"
        why = f"the journal was read from {_utc(begin)} to {until}: tracing.search_* bounds it"
        found.append(Unknown("later events", why))
    if scan.full:
        found.append(Unknown("further events", f"only {journal.MOST_EVENTS} are shown"))
    if scan.lost:
        found.append(
            Unknown("some events", f"daemons had to drop {scan.lost} of all messages (journal.buffer_events)")
        )
    if scan.damaged:
        found.append(Unknown("some events", f"{scan.damaged} messages of {topic} are no journal"))
    if scan.failed:
        found.append(Unknown("some events", f"a part of {topic} cannot be read: {scan.failed}"))
    return found


def _utc(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def _add_live(story: Story) -> None:
    """Add what owners know of offers, and clients to the offers that the journal has."""
    for each in story.groups:
        attempts = each.detail.get("attempts")
        if not attempts:
            continue
        offers = {1: each.detail["first_offered"], attempts: each.detail["last_offered"]}
        for attempt, at in offers.items():
            client = {"client": each.detail["client"]} if attempt == attempts else {}
            noted = _offer(story.events, each, attempt, at)
            if noted is None:
                detail: Mapping[str, Any] = {"attempt": attempt, **client}
                story.events.append(Event(at, "offered", "live", "", each.group, dict(detail)))
            else:
                noted.detail.update(client)


def _offer(events: list[Event], standing: Standing, attempt: int, at: float) -> Event | None:
    """Return the journal's event of an offer that an owner knows: it may be the newest of several with this number."""
    return next(
        (
            each
            for each in events
            if each.event == "offered"
            and each.group == standing.group
            and each.detail.get("attempt") == attempt
            and abs(each.time - at) < 1.0
        ),
        None,
    )


__all__ = ["LAKE", "Lives"]
