"""Clients of consumer instances (REST v2): they read batches and commit what they have received.

Such a client must not lose records that were handed out in an answer it never got. So after a request with
an unknown outcome it gives its instance up and makes a new one, which begins at the committed offsets.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import time
from typing import Any

import msgspec

from tests.chaos.kit.clients import PAUSE, Clients
from tests.chaos.kit.consumers import name_of
from tests.chaos.kit.plan import DAEMONS, Group, Topic
from tests.chaos.kit.producers import LOOK, partitions_of

V2 = "application/vnd.kafka.v2+json"
BINARY = "application/vnd.kafka.binary.v2+json"
READ = "/records?timeout=1000&max_bytes=60000"


class InstanceReader:
    """One client, bound to one daemon."""

    def __init__(self, clients: Clients, topic: Topic, group: Group, daemon: int, number: int) -> None:
        self._clients = clients
        self._topic = topic.name
        self._group = group.name
        self._daemon = daemon
        self._name = f"{group.name}-{daemon}{number}"
        self._about = {"group": group.name, "topic": topic.name, "d": daemon}
        self._base = ""
        self._lives = itertools.count()
        self._orphans: list[str] = []
        self._refused: dict[int, int] = {}
        """Positions that the instance did not commit: in the end no later message comes that would commit them."""

    async def run(self) -> None:
        """Consume until told to stop."""
        while self._clients.consuming:
            if not self._base and not await self._create():
                await asyncio.sleep(5 * PAUSE)
                continue
            await self._before_read()
            if self._base and self._refused and not self._clients.producing:
                await self._commit_again()
            if self._base:
                await self._read()
            await self._bury()
        if self._base:
            await self._clients.call("DELETE", self._base)

    async def _create(self) -> bool:
        name = f"{self._name}.{next(self._lives)}"
        url = self._clients.url(self._daemon, f"/consumers/{self._group}")
        options = {"name": name, "auto.offset.reset": "earliest", "auto.commit.enable": "false"}
        base = f"{url}/instances/{name}"
        if await self._post(url, options) != 200:
            self._orphans.append(base)
            return False
        if not await self._begin(base):
            self._orphans.append(base)
            return False
        self._clients.records.event("instance made", group=self._group, name=name, d=self._daemon)
        self._base = base
        return True

    async def _begin(self, base: str) -> bool:
        """Let a new instance consume; return whether it does."""
        return await self._post(f"{base}/subscription", {"topics": [self._topic]}) in (200, 204)

    async def _before_read(self) -> None:
        """Do what is due before the next read."""

    def _must_give_up(self, status: int) -> bool:
        """Return whether an instance that answered a read with a failure is left: members of a group do it at once."""
        return True

    async def _post(self, url: str, document: Any) -> int:
        status, _ = await self._clients.call(
            "POST", url, data=msgspec.json.encode(document), headers={"Content-Type": V2}
        )
        return status

    async def _read(self) -> None:
        t0 = time.time()
        status, body = await self._clients.call("GET", self._base + READ, headers={"Accept": BINARY})
        t1 = time.time()
        if status != 200:
            text = f"{status}: {body.decode(errors='replace')[:200]}"
            result = "unknown" if status == 0 else "refused"
            self._clients.records.write("polls", t0=t0, t1=t1, **self._about, result=result, text=text)
            if self._must_give_up(status):
                self._give_up(text)
            await asyncio.sleep(PAUSE)
            return
        found = msgspec.json.decode(body)
        if not found:
            self._clients.records.write("polls", t0=t0, t1=t1, **self._about, result="empty", text="")
            return
        records, positions = [], {}
        for each in found:
            value = base64.b64decode(each["value"] or "")
            name = name_of(value, ())
            records.append([each["partition"], each["offset"], name])
            positions[each["partition"]] = each["offset"]
        self._clients.records.write(
            "delivered", t0=t0, t1=t1, **self._about, reader=self._name, records=records
        )
        await self._commit(positions)

    async def _commit_again(self) -> None:
        """Commit what was refused, as while the group rebalances, in those partitions that the instance still has."""
        refused, self._refused = self._refused, {}
        status, body = await self._clients.call("GET", f"{self._base}/assignments")
        if status != 200:
            self._refused = refused
            return
        held = {each["partition"] for each in msgspec.json.decode(body)["partitions"]}
        if left := {partition: offset for partition, offset in refused.items() if partition in held}:
            await self._commit(left)

    async def _commit(self, positions: dict[int, int]) -> None:
        offsets = [
            {"topic": self._topic, "partition": partition, "offset": offset}
            for partition, offset in positions.items()
        ]
        t0 = time.time()
        status = await self._post(f"{self._base}/offsets", {"offsets": offsets})
        t1 = time.time()
        result = "ok" if status == 200 else "unknown" if status == 0 else "refused"
        for partition, offset in positions.items():
            self._clients.records.write(
                "acks", t0=t0, t1=t1, **self._about, partition=partition, offset=offset, result=result
            )
            self._refused.pop(partition, None)
        if result == "refused":
            self._refused |= positions
        elif result == "unknown":
            self._give_up("a commit with an unknown outcome")

    def _give_up(self, why: str) -> None:
        self._clients.records.event(
            "instance given up",
            group=self._group,
            name=self._base.rpartition("/")[2],
            d=self._daemon,
            why=why,
        )
        self._orphans.append(self._base)
        self._base = ""
        self._refused = {}

    async def _bury(self) -> None:
        """Delete instances that were given up; one that cannot be reached ends by itself when it is idle."""
        for base in self._orphans[:3]:
            status, _ = await self._clients.call("DELETE", base)
            if status in (204, 404):
                self._orphans.remove(base)


class ChosenReader(InstanceReader):
    """One client whose instance has chosen partitions: each third one, and another third for each daemon.

    It keeps its instance also when reads fail, and chooses again when its share has more partitions than before, but only
    now and then when it has fewer: reading on without those that are gone is the instance's affair.
    """

    def __init__(self, clients: Clients, topic: Topic, group: Group, daemon: int, number: int) -> None:
        super().__init__(clients, topic, group, daemon, number)
        self._rng = clients.rng(self._name)
        self._share: list[int] = []
        """Of the partitions that the topic had at the last look."""
        self._next_look = 0.0

    async def _look(self) -> list[int]:
        self._next_look = time.monotonic() + LOOK
        found = await partitions_of(self._clients, self._daemon, self._topic)
        return sorted(number for number in found if number % DAEMONS == self._daemon - 1)

    async def _begin(self, base: str) -> bool:
        share = await self._look()
        return bool(share) and await self._choose(base, share) in (200, 204)

    async def _choose(self, base: str, share: list[int]) -> int:
        wanted = [{"topic": self._topic, "partition": number} for number in share]
        status = await self._post(f"{base}/assignments", {"partitions": wanted})
        if status in (200, 204):
            self._share = share
            self._clients.records.event(
                "partitions chosen", group=self._group, d=self._daemon, partitions=share
            )
        return status

    async def _before_read(self) -> None:
        if time.monotonic() < self._next_look:
            return
        share = await self._look()
        if not share or share == self._share:
            return
        if set(share) < set(self._share) and self._rng.random() < 0.5:
            self._share = share  # the instance has partitions that are gone
        elif await self._choose(self._base, share) == 0:
            self._give_up("an assignment with an unknown outcome")

    def _must_give_up(self, status: int) -> bool:
        return status in (0, 404)


def start(clients: Clients, topic: Topic, group: Group) -> None:
    """Start the clients of a group, so many for each daemon."""
    reader = ChosenReader if group.chosen else InstanceReader
    for daemon in range(1, DAEMONS + 1):
        for number in range(group.readers):
            clients.run(reader(clients, topic, group, daemon, number).run())


__all__ = ["start"]
