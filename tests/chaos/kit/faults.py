"""Does the faults of :mod:`tests.chaos.kit.kinds`, heals them, and writes down when."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tests.chaos.kit.actor_faults import ActorFaults
from tests.chaos.kit.brokers import SMALL_DISK, UNREACHABLE, Brokers
from tests.chaos.kit.clients import Clients
from tests.chaos.kit.daemons import Daemon
from tests.chaos.kit.kinds import KINDS
from tests.chaos.kit.links import Link
from tests.chaos.kit.record import Recorder
from tests.chaos.kit.remade_faults import RemadeFaults
from tests.chaos.kit.schedule import Planned
from tests.chaos.kit.topic_faults import TopicFaults

HEAL_WITHIN = 400.0
"""Seconds for a fault and its end; longer is a failure of the kit."""
TURN_WITHIN = 10.0
"""Seconds that a fault waits for another one of the same daemon, or of the brokers; then it is left out."""


class Faults:
    """The faults of a run.

    Args:
        brokers: to break.
        daemons: to break.
        clients: to disturb, and for requests of its own.
        records: get every fault.
    """

    def __init__(
        self, brokers: Brokers, daemons: Sequence[Daemon], clients: Clients, records: Recorder
    ) -> None:
        self._brokers = brokers
        self._daemons = daemons
        self._clients = clients
        self._records = records
        self._acts: dict[str, Callable[[Planned], Awaitable[str]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.done = 0
        """Faults that are over, and had an effect."""
        self.missed = 0
        """Faults that found nothing to break."""
        self.active: list[str] = []
        self.transactions_until = 0.0
        """Wall-clock time at which the transactions are over that nobody ends."""
        # The schedule keeps these apart, but a fault may take longer than it is planned to.
        self._locks: dict[object, asyncio.Lock] = {"broker": asyncio.Lock()}
        self._locks |= {daemon.number: asyncio.Lock() for daemon in daemons}
        parts = (
            self,
            TopicFaults(brokers, clients, records),
            RemadeFaults(brokers, clients, records),
            ActorFaults(daemons, clients),
        )
        for part in parts:
            for kind in KINDS:
                act = getattr(part, kind.replace("-", "_"), None)
                if act is not None:
                    self._acts[kind] = act
        assert set(self._acts) == set(KINDS), set(KINDS) - set(self._acts)

    async def run(self, schedule: Sequence[Planned], started: float) -> None:
        """Do the faults at their times.

        Args:
            schedule: the faults.
            started: when the run began, on the monotonic clock.
        """
        for planned in schedule:
            await asyncio.sleep(max(0.0, started + planned.at - time.monotonic()))
            task = asyncio.ensure_future(self._do(planned))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is None:
            self._tasks.discard(task)

    async def settle(self) -> None:
        """Wait for the end of all faults. Raises what went wrong in the kit itself."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=HEAL_WITHIN)
        for task in tuple(self._tasks):
            if task.done():
                task.result()
            task.cancel()
            raise TimeoutError(f"not healed in {HEAL_WITHIN} s: {self.active}")

    async def _do(self, planned: Planned) -> None:
        kind = KINDS[planned.kind]
        t0, note = time.time(), "interrupted"
        self.active.append(planned.kind)
        try:
            async with contextlib.AsyncExitStack() as held:
                if await self._turn(planned, held):
                    t0 = time.time()
                    self._records.event(
                        "fault begins", kind=planned.kind, d=planned.daemon, broker=planned.broker
                    )
                    note = await self._acts[planned.kind](planned)
                else:
                    note = "missed: another fault goes on"
        except UNREACHABLE as error:
            note = f"missed: {error}"  # another fault is in the way
        finally:
            self.active.remove(planned.kind)
            if note.startswith("missed"):
                self.missed += 1
            else:
                self.done += 1
            of_daemon = kind.uses == "daemon" or planned.kind.startswith("crash-")
            daemon = planned.daemon if of_daemon else 0
            if planned.kind == "open-transaction":
                self.transactions_until = time.time() + kind.recovery
            self._records.write("faults", kind=planned.kind, daemon=daemon, t0=t0, t1=time.time(), note=note)

    async def _turn(self, planned: Planned, held: contextlib.AsyncExitStack) -> bool:
        """Wait until no other fault breaks the same daemon, or a broker."""
        try:
            async with asyncio.timeout(TURN_WITHIN):
                for lock in self._locks_of(planned):
                    await held.enter_async_context(lock)
        except TimeoutError:
            return False
        return True

    def _locks_of(self, planned: Planned) -> list[asyncio.Lock]:
        uses = KINDS[planned.kind].uses
        if uses == "daemons":
            return [self._locks[daemon.number] for daemon in self._daemons]
        name = planned.daemon if uses == "daemon" else uses
        return [self._locks[name]] if name in self._locks else []

    def _daemon(self, planned: Planned) -> Daemon:
        return self._daemons[planned.daemon - 1]

    # -- daemons ----------------------------------------------------------------------------------

    async def daemon_kill(self, planned: Planned) -> str:
        """Kill a daemon; it is started again."""
        daemon = self._daemon(planned)
        daemon.signal(signal.SIGKILL, planned.kind)
        await asyncio.sleep(1)
        await daemon.ready()
        return f"d{planned.daemon}"

    async def daemon_restart(self, planned: Planned) -> str:
        """Stop a daemon as an operator does; it is started again."""
        daemon = self._daemon(planned)
        await daemon.leave(planned.kind, 0.0)
        await daemon.ready()
        return f"d{planned.daemon}"

    async def rolling_restart(self, planned: Planned) -> str:
        """Stop and start one daemon after the other."""
        for daemon in self._daemons:
            await daemon.leave(planned.kind, 0.0)
            await daemon.ready()
        return "all daemons"

    async def daemon_leave(self, planned: Planned) -> str:
        """Stop a daemon, and start it some seconds later."""
        daemon = self._daemon(planned)
        await daemon.leave(planned.kind, planned.seconds)
        await daemon.ready()
        return f"d{planned.daemon} for {planned.seconds} s"

    async def daemon_freeze(self, planned: Planned) -> str:
        """Freeze a daemon for less than a session."""
        daemon = self._daemon(planned)
        daemon.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(planned.seconds)
        finally:
            daemon.signal(signal.SIGCONT)
        return f"d{planned.daemon} for {planned.seconds} s"

    session_expiry = daemon_freeze
    """The same, for longer than a session."""

    # -- brokers ----------------------------------------------------------------------------------

    async def broker_kill(self, planned: Planned) -> str:
        """Kill a broker; start it again."""
        return await self._kill(planned.broker, planned.seconds)

    async def leader_loss(self, planned: Planned) -> str:
        """Kill the leader of a partition."""
        leaders = sorted(set((await asyncio.to_thread(self._brokers.partitions, "single")).values()) - {-1})
        if not leaders:
            return "missed: no leader"
        return await self._kill(leaders[int(planned.dice * len(leaders))], planned.seconds)

    async def coordinator_loss(self, planned: Planned) -> str:
        """Kill the coordinator of a group."""
        group = ("g-grpc", "g-rest", "g-instances")[int(planned.dice * 3)]
        node = await asyncio.to_thread(self._brokers.coordinator, group)
        return f"of {group}: {await self._kill(node, planned.seconds)}" if node > 0 else "missed"

    async def _kill(self, node: int, seconds: float) -> str:
        cluster = self._brokers.cluster
        await asyncio.to_thread(cluster.kill, node)
        try:
            await asyncio.sleep(seconds)
        finally:
            cluster.start(node)
        await asyncio.to_thread(self._brokers.wait_ready)
        return f"broker {node} for {seconds} s"

    async def broker_restart(self, planned: Planned) -> str:
        """Stop a broker as an operator does; start it again."""
        cluster, node = self._brokers.cluster, planned.broker
        try:
            await asyncio.to_thread(cluster.stop, node)
            await asyncio.sleep(planned.seconds)
        finally:
            cluster.start(node)
        await asyncio.to_thread(self._brokers.wait_ready)
        return f"broker {node}"

    async def broker_freeze(self, planned: Planned) -> str:
        """Freeze a broker."""
        cluster, node = self._brokers.cluster, planned.broker
        cluster.signal(node, signal.SIGSTOP)
        try:
            await asyncio.sleep(planned.seconds)
        finally:
            cluster.signal(node, signal.SIGCONT)
        await asyncio.to_thread(self._brokers.wait_ready)
        return f"broker {node} for {planned.seconds} s"

    async def disk_full(self, planned: Planned) -> str:
        """Fill the disk of a broker, which then ends; make room and start it again."""
        brokers, cluster = self._brokers, self._brokers.cluster
        if brokers.disk is None:
            return "missed: this machine does not let us mount a small disk"
        try:
            await asyncio.to_thread(brokers.fill_disk)
            for _ in range(100):
                if not cluster.running(SMALL_DISK):
                    break
                await asyncio.sleep(0.2)
            await asyncio.sleep(planned.seconds)
        finally:
            brokers.free_disk()
            ended = not cluster.running(SMALL_DISK)
            if ended:
                cluster.start(SMALL_DISK)
        await asyncio.to_thread(self._brokers.wait_ready)
        return f"broker {SMALL_DISK} {'ended' if ended else 'kept running'}"

    # -- network ----------------------------------------------------------------------------------

    async def _broken(self, links: Sequence[Link], seconds: float, act: str, *args: Any) -> str:
        for link in links:
            getattr(link, act)(*args)
        try:
            await asyncio.sleep(seconds)
        finally:
            for link in links:
                link.heal()
        return f"{', '.join(link.name for link in links)} for {seconds} s"

    async def cut_broker(self, planned: Planned) -> str:
        """Cut the connections of a daemon with one broker."""
        return await self._broken([self._one(planned)], planned.seconds, "cut")

    async def hold_broker(self, planned: Planned) -> str:
        """Forward nothing between a daemon and one broker."""
        return await self._broken([self._one(planned)], planned.seconds, "hold")

    def _one(self, planned: Planned) -> Link:
        return self._brokers.links[planned.daemon, planned.broker]

    async def cut_zookeeper(self, planned: Planned) -> str:
        """Cut the connection of a daemon with ZooKeeper."""
        return await self._broken(self._brokers.beyond(planned.daemon)[-1:], planned.seconds, "cut")

    async def hold_zookeeper(self, planned: Planned) -> str:
        """Forward nothing between a daemon and ZooKeeper."""
        return await self._broken(self._brokers.beyond(planned.daemon)[-1:], planned.seconds, "hold")

    async def cut_brokers(self, planned: Planned) -> str:
        """Cut the connections of a daemon with all brokers, and with ZooKeeper."""
        return await self._broken(self._brokers.beyond(planned.daemon), planned.seconds, "cut")

    async def hold_brokers(self, planned: Planned) -> str:
        """Forward nothing between a daemon and all brokers, and ZooKeeper."""
        return await self._broken(self._brokers.beyond(planned.daemon), planned.seconds, "hold")

    async def silent_coordinator(self, planned: Planned) -> str:
        """Forward nothing between a daemon and the coordinator of an instance that begins again."""
        node = await asyncio.to_thread(self._brokers.coordinator, "g-chosen")
        if node <= 0:
            return "missed: no coordinator"
        link = self._brokers.links[planned.daemon, node]
        link.hold()
        try:
            for _ in range(3):  # its client may be busy with another request
                crashed = await self._daemon(planned).crash("/service/main/instances/g-chosen.*")
                if not crashed.startswith("missed"):
                    break
            await asyncio.sleep(planned.seconds)
        finally:
            link.heal()
        return f"{link.name} for {planned.seconds} s, {crashed}"

    async def slow_brokers(self, planned: Planned) -> str:
        """Slow the connections of a daemon with all brokers down."""
        latency, rate = 0.05 + planned.dice * 0.3, 200_000.0
        return await self._broken(
            self._brokers.beyond(planned.daemon), planned.seconds, "slow", latency, rate
        )

    def _client_links(self, planned: Planned) -> list[Link]:
        daemon = self._daemon(planned)
        return [daemon.grpc, daemon.rest]

    async def cut_clients(self, planned: Planned) -> str:
        """Cut the connections of a daemon with its clients."""
        return await self._broken(self._client_links(planned), planned.seconds, "cut")

    async def hold_clients(self, planned: Planned) -> str:
        """Forward nothing between a daemon and its clients."""
        return await self._broken(self._client_links(planned), planned.seconds, "hold")

    async def slow_clients(self, planned: Planned) -> str:
        """Slow the connections of a daemon with its clients down."""
        latency = 0.02 + planned.dice * 0.2
        return await self._broken(self._client_links(planned), planned.seconds, "slow", latency, 100_000.0)


__all__ = ["Faults"]
