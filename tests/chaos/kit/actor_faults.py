"""Crashes of actors, through the control socket of the kit's own daemon."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tests.chaos.kit.clients import Clients
from tests.chaos.kit.daemons import Daemon
from tests.chaos.kit.schedule import Planned

_GROUPS = (("g-grpc", "single"), ("g-rest", "single"), ("g-auto", "automatic"), ("g-odd", "odd"))


class ActorFaults:
    """See :class:`tests.chaos.kit.faults.Faults`."""

    def __init__(self, daemons: Sequence[Daemon], clients: Clients) -> None:
        self._daemons = daemons
        self._clients = clients

    async def _crash(self, planned: Planned, pattern: str, *provoke: str) -> str:
        """Make an actor fail; ``provoke`` are paths to ask for, so that it gets a message."""
        crash = asyncio.ensure_future(self._daemons[planned.daemon - 1].crash(pattern))
        while not crash.done():
            for path in provoke:
                await self._clients.call("GET", self._clients.url(planned.daemon, path))
            await asyncio.wait((crash,), timeout=0.1)
        return f"{crash.result()} in d{planned.daemon}"

    @staticmethod
    def _group(planned: Planned) -> tuple[str, str]:
        return _GROUPS[int(planned.dice * len(_GROUPS))]

    async def crash_owner(self, planned: Planned) -> str:
        """Crash the owner of a partition."""
        group, topic = self._group(planned)
        return await self._crash(planned, f"/service/main/{group}/{topic}.*")

    async def crash_committer(self, planned: Planned) -> str:
        """Crash the committer of a group."""
        return await self._crash(planned, f"/service/main/{self._group(planned)[0]}/committer")

    async def crash_group(self, planned: Planned) -> str:
        """Crash a group."""
        return await self._crash(planned, f"/service/main/{self._group(planned)[0]}")

    async def crash_producer(self, planned: Planned) -> str:
        """Crash the producer of a topic."""
        topic = ("single", "bulk", "recreated", "chosen")[int(planned.dice * 4)]
        return await self._crash(planned, f"/service/main/{topic}.producer")

    async def crash_instance(self, planned: Planned) -> str:
        """Crash a consumer instance."""
        group = ("g-instances", "g-chosen")[planned.dice < 0.5]
        return await self._crash(planned, f"/service/main/instances/{group}.*")

    async def crash_instances(self, planned: Planned) -> str:
        """Crash the registry of the consumer instances."""
        return await self._crash(
            planned, "/service/main/instances", "/consumers/g-instances/instances/none/subscription"
        )

    async def crash_admin(self, planned: Planned) -> str:
        """Crash the admin."""
        return await self._crash(planned, "/service/main/admin", "/topics/single/offsets?group=g-grpc")

    async def crash_fetcher(self, planned: Planned) -> str:
        """Crash the reader by offset."""
        path = "/rest/topics/single/partitions/0/records?offset=0&max_bytes=100&timeout=100"
        return await self._crash(planned, "/service/main/fetcher", path)

    async def crash_cluster(self, planned: Planned) -> str:
        """Crash the cluster itself, which has all the others as children."""
        return await self._crash(
            planned, "/service/main", "/topics/single/offsets?group=g-grpc", "/topics/odd/messages?group=g-x"
        )


__all__ = ["ActorFaults"]
