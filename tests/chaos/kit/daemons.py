"""The daemons as processes of their own, which are started again when they end, as an orchestrator would."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import yaml

from tests.chaos.kit.links import Link
from tests.chaos.kit.plan import Plan, configuration
from tests.chaos.kit.record import Recorder
from tests.kafka.cluster import free_port

ROOT = Path(__file__).resolve().parents[3]
RESTART_AFTER = 0.5
START_WITHIN = 60.0


class Daemon:
    """One daemon: its process, and the links by which its clients reach it.

    Args:
        number: 1, 2, ...
        plan: the run.
        beyond: its links to the brokers, and the one to ZooKeeper.
        records: gets its starts and ends.
    """

    def __init__(self, number: int, plan: Plan, beyond: Sequence[Link], records: Recorder) -> None:
        self.number = number
        self._beyond = beyond
        self.grpc, self.rest = Link(f"clients-d{number}-grpc"), Link(f"clients-d{number}-rest")
        self._plan = plan
        self._records = records
        self._folder = records.folder
        self._control = f"/tmp/chaos-{os.getpid()}-{number}.sock"
        self._process: asyncio.subprocess.Process | None = None
        self._wanted = False
        self._ending = ""
        self._kills = self._crashes = 0
        self._keeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open the links and start the process; it is kept running until :meth:`stop`."""
        for link in (self.grpc, self.rest):
            await link.listen()
            link.target = free_port()
        document = configuration(
            self._plan,
            self.number,
            [link.port for link in self._beyond[:-1]],
            self._beyond[-1].port,
            self.grpc.target,
            self.rest.target,
            self.rest.port,
        )
        self._config = self._folder / f"d{self.number}.yaml"
        self._config.write_text(yaml.safe_dump(document))
        self._wanted = True
        self._keeper = asyncio.ensure_future(self._keep())
        await self.ready()

    async def _keep(self) -> None:
        while self._wanted:
            self._ending = ""
            with (self._folder / f"d{self.number}.log").open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "tests.chaos.kit.daemon",
                    self._control,
                    self._plan.plant_of(self.number),
                    "--config",
                    str(self._config),
                    cwd=ROOT,
                    stdout=log,
                    stderr=log,
                )
            self._records.event("daemon started", d=self.number, pid=self._process.pid)
            code = await self._process.wait()
            self._records.event("daemon ended", d=self.number, code=code, by=self._ending or "itself")
            await asyncio.sleep(RESTART_AFTER)

    async def ready(self) -> None:
        """Wait until its REST API answers; raise TimeoutError after a minute."""
        url = f"http://127.0.0.1:{self.rest.target}/_ping"
        async with asyncio.timeout(START_WITHIN), aiohttp.ClientSession() as http:
            while True:
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    async with http.get(url, timeout=aiohttp.ClientTimeout(total=2)) as answer:
                        if answer.status == 200:
                            return
                await asyncio.sleep(0.1)

    def signal(self, number: int, why: str = "") -> None:
        """Send a signal to the process.

        Args:
            number: the signal.
            why: the fault that ends the process by it, for the records.
        """
        if self._process is None or self._process.returncode is not None:
            return
        if number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT):
            self._signal_all(number, why)
            return
        self._ending = why or self._ending
        self._process.send_signal(number)

    def _signal_all(self, number: int, why: str) -> None:
        """Send what no process can handle to the whole daemon; every other time kill one of its workers only."""
        assert self._process is not None
        found = _children(self._process.pid)
        if number == signal.SIGKILL and self._plan.workers > 1 and found:
            self._kills += 1
            if self._kills % 2:
                chosen = found[self._kills % len(found)]
                self._records.event("worker killed", d=self.number, pid=chosen, by=why)
                os.kill(chosen, number)
                return
        self._ending = why or self._ending
        for each in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, number)
        self._process.send_signal(number)

    async def leave(self, why: str, seconds: float) -> None:
        """Stop the process cleanly, and start it again after a pause.

        Args:
            why: the fault, for the records.
            seconds: the pause.
        """
        keeper, self._wanted = self._keeper, False
        self.signal(signal.SIGTERM, why)
        if keeper is not None:
            await keeper
        await asyncio.sleep(seconds)
        self._wanted = True
        self._keeper = asyncio.ensure_future(self._keep())

    async def crash(self, pattern: str) -> str:
        """Make an actor fail; return its path, or why none did.

        Args:
            pattern: shell pattern of its path.
        """
        try:
            async with asyncio.timeout(6):
                self._crashes += 1
                of_worker = f"-{self._crashes % self._plan.workers + 1}" if self._plan.workers > 1 else ""
                reader, writer = await asyncio.open_unix_connection(self._control + of_worker)
                writer.write(f"crash {pattern}\n".encode())
                answer = (await reader.readline()).decode().strip()
                writer.close()
                return answer or "missed"
        except (OSError, TimeoutError) as error:
            return f"missed: {type(error).__name__}"

    async def stop(self) -> None:
        """End the process for good and close the links."""
        self._wanted = False
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM, "the end of the run")
        if self._keeper is not None:
            try:
                await asyncio.wait_for(asyncio.shield(self._keeper), 30)
            except TimeoutError:
                self.signal(signal.SIGKILL, "the end of the run, not ended in 30 s")
                await self._keeper
        for link in (self.grpc, self.rest):
            await link.close()
        for left in Path(self._control).parent.glob(Path(self._control).name + "*"):
            left.unlink(missing_ok=True)


def _children(pid: int) -> list[int]:
    """Return the processes that a daemon has started: Envoy, or its workers."""
    with contextlib.suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


__all__ = ["Daemon"]
