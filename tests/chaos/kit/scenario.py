"""One run: start everything, disturb it, heal it, let the groups catch up, take the final picture."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException

from tests.chaos.kit import consumers, instances, producers
from tests.chaos.kit.brokers import Brokers
from tests.chaos.kit.clients import Clients
from tests.chaos.kit.daemons import Daemon
from tests.chaos.kit.faults import Faults
from tests.chaos.kit.kinds import kinds_of
from tests.chaos.kit.odd import OddProducer
from tests.chaos.kit.plan import DAEMONS, Plan
from tests.chaos.kit.record import Recorder, starved_seconds
from tests.chaos.kit.schedule import draw
from tests.chaos.kit.snapshot import OFFSETS, write_commits, write_log
from tests.chaos.kit.zookeeper_groups import ZookeeperGroups

PROGRESS = 10.0
"""Seconds between two lines on screen."""
LOOK = 0.5
"""Seconds between two looks whether enough messages are delivered."""
SETTLE = 2.0
"""Seconds for the last commits."""
LOOKS = 20
"""The most looks at the ends of the logs, until nothing is produced any more."""
STILL = 4.0
"""Seconds without a new record, after which none will come: whatever failed is tried again each second."""


class Scenario:
    """One run of the kit.

    Args:
        plan: what to do.
        records: gets everything.
        say: prints a line.
    """

    def __init__(self, plan: Plan, records: Recorder, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._records = records
        self._say = say
        self._brokers = Brokers(plan)
        self._daemons: list[Daemon] = []
        self._clients: Clients
        self._faults: Faults
        self._started = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        """Run to the end, or until ``stop`` is set; then heal, drain and take the picture all the same.

        Raises:
            Exception: the kit itself failed, or a fault did not heal.
        """
        kinds = self._plan.faults or kinds_of(self._plan.membership)
        schedule = draw(self._plan.seed, self._plan.minutes, kinds)
        self._records.write("plan", **self._plan.document())
        self._say(f"{len(schedule)} faults in {self._plan.minutes:g} minutes: {self._plan.command()}")
        try:
            await self._start()
            await self._disturb(schedule, stop)
            await self._finish()
        finally:
            await self._close()

    async def _start(self) -> None:
        self._say("starting three brokers and three daemons ...")
        await self._brokers.start()
        for topic in self._plan.topics:
            await asyncio.to_thread(self._brokers.create, topic, topic.partitions)
        await asyncio.sleep(1)
        self._daemons = [
            Daemon(number, self._plan, self._brokers.beyond(number), self._records)
            for number in range(1, DAEMONS + 1)
        ]
        await asyncio.gather(*(daemon.start() for daemon in self._daemons))
        self._clients = Clients(self._plan, self._records, self._daemons)
        await self._clients.open()
        self._faults = Faults(self._brokers, self._daemons, self._clients, self._records)
        if self._plan.membership == "zookeeper":
            names = [group.name for topic in self._plan.topics for group in topic.groups]
            watch = ZookeeperGroups(self._brokers.cluster.zookeeper, names, self._records)
            self._clients.run(watch.run(lambda: self._clients.consuming))
        for topic in self._plan.topics:
            producers.start(self._clients, topic)
            if topic.odd:
                self._clients.run(OddProducer(self._clients, topic, self._brokers.bootstrap).run())
            for group in topic.groups:
                start = instances.start if group.mode == "instance" else consumers.start
                start(self._clients, topic, group)

    async def _disturb(self, schedule: Any, stop: asyncio.Event) -> None:
        self._started = time.monotonic()
        self._starved = starved_seconds()
        faults = asyncio.ensure_future(self._faults.run(schedule, self._started))
        end = self._started + self._plan.minutes * 60
        wanted = self._plan.messages or float("inf")
        while time.monotonic() < end and self._records.delivered < wanted and not stop.is_set():
            line = min(end, time.monotonic() + PROGRESS)
            while (left := line - time.monotonic()) > 0 and self._records.delivered < wanted:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), min(LOOK, left))
                    break
            self._report()
            self._clients.check()
        faults.cancel()
        await asyncio.gather(faults, return_exceptions=True)

    def _report(self) -> None:
        self._records.flush()
        active = f"; now {', '.join(self._faults.active)}" if self._faults.active else ""
        self._say(
            f"{time.monotonic() - self._started:5.0f} s  produced {self._records.produced:8,}  "
            f"delivered {self._records.delivered:8,}  faults {self._faults.done:3}{active}"
        )

    async def _finish(self) -> None:
        self._say("healing; waiting for the groups to catch up ...")
        await self._faults.settle()
        self._clients.producing = False
        healed, bootstrap = time.time(), self._brokers.bootstrap
        self._records.event("healed")
        ends = await asyncio.to_thread(write_log, self._records, bootstrap, await self._settled())
        left = await self._drain(ends)
        self._say(left or f"caught up {time.time() - healed:.0f} s after the last fault")
        self._records.event("drained", seconds=time.time() - healed, left=left)
        share = (starved_seconds() - self._starved) / (time.monotonic() - self._started)
        self._records.event("processor", waited=round(share, 3))
        await asyncio.sleep(SETTLE)
        await self._clients.close()
        await asyncio.gather(*(daemon.stop() for daemon in self._daemons))
        offsets = await asyncio.to_thread(self._brokers.partitions, OFFSETS)
        await asyncio.to_thread(write_commits, self._records, bootstrap, len(offsets))

    async def _settled(self) -> list[tuple[str, int]]:
        """Wait until nothing more is written, and transactions are over that nobody ends; return all partitions."""
        await asyncio.sleep(max(0.0, self._faults.transactions_until - time.time()))
        before: dict[Any, Any] = {}
        for _ in range(LOOKS):
            found = {
                (topic.name, partition): end  # not the beginning: retention moves it
                for topic in self._plan.topics
                for partition, (_, end) in (await asyncio.to_thread(self._brokers.bounds, topic.name)).items()
            }
            if found == before:
                return list(found)
            before = found
            await asyncio.sleep(STILL)
        raise TimeoutError("something still produces, although all producers have been told to stop")

    async def _drain(self, ends: dict[Any, int]) -> str:
        """Wait until every group has committed everything; return what is left."""
        deadline = time.monotonic() + self._plan.drain
        while True:
            left, committed = [], {}
            for topic in self._plan.topics:
                for group in topic.groups:
                    try:
                        found = await asyncio.to_thread(self._brokers.committed, group.name, topic.name)
                    except KafkaException as error:
                        left.append(f"{group.name}: {error}")
                        continue
                    committed[group.name] = found
                    left += [
                        f"{group.name} {name}/{partition} at {found.get(partition)} of {end}"
                        for (name, partition), end in ends.items()
                        if name == topic.name and end and found.get(partition, -1) < end
                    ]
            if not left or time.monotonic() > deadline:
                for topic in self._plan.topics:
                    for group in topic.groups:
                        self._records.write(
                            "final",
                            group=group.name,
                            topic=topic.name,
                            committed=list(committed.get(group.name, {}).items()),
                        )
                return (
                    f"not caught up {self._plan.drain:g} s after the last fault: {'; '.join(left)}"
                    if left
                    else ""
                )
            await asyncio.sleep(1)

    async def _close(self) -> None:
        for link in self._brokers.all:
            link.heal()
        if hasattr(self, "_clients"):
            await self._clients.close()
        await asyncio.gather(*(daemon.stop() for daemon in self._daemons), return_exceptions=True)
        await self._brokers.close()
        self._records.close()


__all__ = ["Scenario"]
