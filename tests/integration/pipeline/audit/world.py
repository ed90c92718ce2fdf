"""A topic that passed through the daemon into a lake, and copies of lake and journal with planted faults."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, Producer, TopicPartition

from pixy.config import App, Proxy
from pixy.journal import JournalBatch, Kind, Stream, decode, encode
from pixy.kafka import settings
from pixy.kafka.blocking import ClusterView
from pixy.pipeline.archive.archive import Archive
from pixy.pipeline.archive.job import Job
from pixy.pipeline.archive.subscription import Subscription
from pixy.pipeline.audit.job import audit
from pixy.pipeline.audit.request import AuditRequest
from pixy.pipeline.audit.result import AuditResult
from pixy.pipeline.audit.summary import summarize
from pixy.pipeline.lake import Entry, Lake
from tests.kafka.cluster import Cluster
from tests.support import make_config, serving

Event = dict[str, Any]


class AuditWorld:
    """Topic, journal and lake of one scenario."""

    def __init__(self, kafka: Cluster, name: str, folder: Path) -> None:
        self.kafka, self.folder = kafka, folder
        self.topic = kafka.create_topic(name, 2)
        self.journal = kafka.create_topic(f"{name}-journal", 1)
        self.lake = str(folder / "lake")

    def config(self) -> App:
        made = make_config(self.kafka.bootstrap(), ack_timeout=1.0)
        proxy = made.proxies["default"]
        proxy.client_id, proxy.journal.topic = "daemon-1", self.journal
        proxy.journal.linger = 0.05  # type: ignore[assignment]
        return made

    @property
    def proxy(self) -> Proxy:
        return self.config().proxies["default"]

    def live(self, messages: int) -> None:
        """Produce and consume through the daemon; one message is only acknowledged at its second offer."""
        asyncio.run(self._live(messages))

    async def _live(self, messages: int) -> None:
        async with serving(self.config()) as daemon:
            await asyncio.gather(
                *(daemon.produce(self.topic, b"v%d" % at, b"k%d" % at) for at in range(messages))
            )
            done: set[tuple[int, int]] = set()
            ignored: set[tuple[int, int]] = set()
            while len(done) < messages:
                message = await daemon.consume(self.topic, "g", no_ack=True)
                at = message.partition, message.offset
                if not ignored:
                    ignored.add(at)
                    continue
                await daemon.ack(self.topic, "g", message)
                done.add(at)

    def archive(self, spark: Any, lake: str = "", topic: str = "") -> None:
        """Archive the topic's present messages."""
        subscription = Subscription((topic or self.topic,), "")
        job = Job("default", self.proxy, lake or self.lake, subscription, subscription.job_name("default"))
        view = ClusterView(settings.admin(self.proxy))
        Archive(spark, job, view, lambda _progress, _manifest: None).run()

    def request(self, out: str, **more: Any) -> AuditRequest:
        given: dict[str, Any] = {
            "lake": self.lake,
            "cluster": "default",
            "proxy": self.proxy,
            "window": 3_600_000_000,
            "settle": 0.2,
        }
        return AuditRequest(str(self.folder / out), **{**given, **more})

    def audit(self, spark: Any, out: str, **more: Any) -> tuple[AuditResult, dict[str, Any]]:
        result = audit(spark, self.request(out, **more), lambda _line: None)
        return result, summarize(result)

    # -- planted faults -------------------------------------------------------------------------

    def doctored_lake(self, change: Callable[[pa.Table], pa.Table]) -> str:
        """Copy the lake with a changed first file; the copy's table lists the file as it is."""
        target = self.folder / f"doctored-{len(list(self.folder.iterdir()))}"
        shutil.copytree(self.lake, target)
        lake = Lake.open(str(target))
        old = next(iter(lake.state().files.values()))
        new = target / old.path.replace(".parquet", "-changed.parquet")
        pq.write_table(change(pq.ParquetFile(target / old.path).read()), new)
        changed = replace(old, path=str(new.relative_to(target)), size=new.stat().st_size)
        lake.publish(lake.ledger(), Entry("optimization"), [changed], [old])
        return str(target)

    def doctored_journal(self, change: Callable[[list[Event]], list[Event]]) -> str:
        """Create a journal topic with changed events."""
        batches = [decode(value) for value in self.journal_values()]
        events = change([event for batch in batches for event in batch.events()])
        topic = self.kafka.create_topic(f"{self.journal}-doctored", 1)
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap()[0]})
        first, last = batches[0], batches[-1]
        producer.produce(topic, _encoded(first, 0, events, final=False), first.client)
        producer.produce(topic, _encoded(last, 1, [], final=True), first.client)
        producer.flush()
        return topic

    def journal_values(self) -> list[bytes]:
        """Return the values of the journal's records."""
        consumer = Consumer({"bootstrap.servers": self.kafka.bootstrap()[0], "group.id": "unused"})
        _, end = consumer.get_watermark_offsets(TopicPartition(self.journal, 0), timeout=10)
        consumer.assign([TopicPartition(self.journal, 0, 0)])
        values = []
        while len(values) < end:
            message = consumer.poll(10)
            assert message is not None
            values.append(message.value())
        consumer.close()
        return values


def _encoded(batch: JournalBatch, sequence: int, events: list[Event], *, final: bool) -> bytes:
    streams: dict[tuple[Any, ...], Stream] = {}
    rows = []
    for event in events:
        key = event["topic"], event["partition"], event["group"], event["generation"]
        stream = streams.setdefault(key, Stream(*key))
        rows.append(
            (
                int(event["kind"]),
                event["time"],
                stream,
                event["offset"],
                event["attempt"],
                event["timestamp"],
                event["took"],
                event["code"],
                event["flags"],
            )
        )
    return encode(
        batch.client, batch.epoch, sequence, rows, time=batch.time, heartbeat=batch.heartbeat, final=final
    )


def event_of(events: list[Event], kind: Kind, partition: int, offset: int) -> Event:
    """Return the first event of a kind about a message."""
    return next(
        event
        for event in events
        if (event["kind"], event["partition"], event["offset"]) == (kind, partition, offset)
    )
