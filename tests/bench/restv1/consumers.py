"""Rows of consumer instances: a backlog, a waiting read, commits while reads wait, idle instances.

The backlog is read by processes of their own: ``python -m tests.bench.restv1.consumers bare|ours ...``.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
import uuid
from typing import TYPE_CHECKING, Any

import aiohttp
from confluent_kafka import Consumer, Producer

from tests.bench.report import ROOT, console
from tests.bench.restv1.client import VALUE

if TYPE_CHECKING:
    from tests.bench.restv1.suite import Bench

BACKLOG = 600_000
ROUNDS = 5
IDLE = 1000
TRIES = 5
WAITING = 200
COMMIT_ROUNDS = 5
ARRIVALS = 220
MAX_BYTES = 1_048_576
V2 = {"Content-Type": "application/vnd.kafka.v2+json", "Accept": "application/vnd.kafka.v2+json"}
BINARY = {"Accept": "application/vnd.kafka.binary.v2+json"}
TICKS = os.sysconf("SC_CLK_TCK")


# -- reading a backlog, in a process of its own ---------------------------------------------------


def bare(bootstrap: str, topic: str, count: int) -> float:
    """Measure records per second of confluent-kafka's ``consume(1000)``, from the first record on."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.queue.backoff.ms": 10,
        }
    )
    consumer.subscribe([topic])
    got = 0
    while not got:
        got = len(consumer.consume(1, 0.1))
    begun = time.perf_counter()
    while got < count:
        got += len(consumer.consume(1000, 1.0))
    took = time.perf_counter() - begun
    consumer.close()
    return (count - 1) / took


class Reader:
    """A minimal HTTP client that reads in a tight loop."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self._host = f"{host}:{port}"

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(*self._address, limit=2**26)

    async def call(self, method: str, path: str, body: bytes = b"", accept: str = "") -> tuple[int, bytes]:
        """Make a request; return status and body.

        Args:
            method: of HTTP.
            path: with its query.
            body: JSON, encoded.
            accept: the media type to ask for; empty: v2's.
        """
        self._writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\nAccept: {accept or V2['Accept']}\r\n"
            f"Content-Type: {V2['Content-Type']}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        head = await self._reader.readuntil(b"\r\n\r\n")
        at = head.find(b"Content-Length: ")
        size = int(head[at + 16 : head.index(b"\r\n", at)]) if at > 0 else 0
        return int(head[9:12]), await self._reader.readexactly(size)


async def ours(host: str, port: int, topic: str, count: int) -> dict[str, float]:
    """Read the backlog over REST in binary format; measure from the first answer with records on."""
    reader = Reader(host, port)
    await reader.connect()
    group = uuid.uuid4().hex
    base = f"/consumers/{group}/instances/c"
    await reader.call("POST", f"/consumers/{group}", b'{"name":"c","auto.offset.reset":"earliest"}')
    await reader.call("POST", f"{base}/subscription", json.dumps({"topics": [topic]}).encode())
    got = first = reads = 0
    begun = 0.0
    while got < count:
        status, body = await reader.call(
            "GET", f"{base}/records?max_bytes={MAX_BYTES}", accept=BINARY["Accept"]
        )
        if status != 200:
            raise RuntimeError(body)
        got += body.count(b'"offset":')
        reads += 1
        if not first and got:
            first, begun = got, time.perf_counter()
    took = time.perf_counter() - begun
    await reader.call("DELETE", base)
    return {"per_second": (got - first) / took, "a_read": got / reads}


def main(kind: str, *args: str) -> None:
    """Measure one reader of a backlog and print the result as JSON.

    Args:
        kind: ``bare`` or ``ours``.
        args: of :func:`bare` or :func:`ours`, as texts.
    """
    if kind == "bare":
        print(json.dumps({"per_second": bare(args[0], args[1], int(args[2]))}))
        return
    runner: Any = asyncio
    try:
        import uvloop as runner  # type: ignore[no-redef]
    except ImportError:
        pass
    print(json.dumps(runner.run(ours(args[0], int(args[1]), args[2], int(args[3])))))


def child(*args: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.restv1.consumers", *args],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, float] = json.loads(done.stdout)
    return found


# -- rows -----------------------------------------------------------------------------------------


def fill(bootstrap: str, topic: str, count: int) -> None:
    """Write messages to the four partitions of a topic in turn, with many in a request."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": count + 1}
    )
    for at in range(count):
        producer.produce(topic, VALUE, partition=at % 4)
    producer.flush()


def backlog(bench: Bench) -> None:
    bench.cluster.create_topic("readbacklog", 4)
    fill(bench.bootstrap, "readbacklog", BACKLOG)
    theirs, mine, sizes = [], [], []
    for at in range(ROUNDS + 1):
        them = child("bare", bench.bootstrap, "readbacklog", str(BACKLOG))["per_second"]
        us = child("ours", "127.0.0.1", str(bench.port), "readbacklog", str(BACKLOG))
        if at:  # the first round warms the broker and the page cache
            theirs.append(them)
            mine.append(us["per_second"])
            sizes.append(us["a_read"])
    bench.report.ratio(
        "read a backlog in binary format, against confluent-kafka's consume(1000)", 0.20, mine, theirs
    )
    console.print(f"    {statistics.median(sizes):,.0f} records per read")


class Instances:
    """Requests to consumer instances over one HTTP session."""

    def __init__(self, http: aiohttp.ClientSession, port: int) -> None:
        self._http = http
        self._url = f"http://127.0.0.1:{port}"
        self.again = 0

    async def call(self, method: str, path: str, document: Any = None, **headers: str) -> Any:
        """Make a request, up to :data:`TRIES` times while the answer is 503; return its JSON. Raises RuntimeError.

        Args:
            method: of HTTP.
            path: with its query.
            document: the body as JSON; None: there is none.
            headers: beside those for v2.
        """
        status, body = await self._once(method, path, document, headers)
        for _ in range(TRIES - 1):
            if status != 503:
                break
            # A thousand groups that join at once can keep the broker busy for longer than a query's timeout.
            self.again += 1
            await asyncio.sleep(1)
            status, body = await self._once(method, path, document, headers)
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {body!r}")
        return json.loads(body) if body else None

    async def _once(
        self, method: str, path: str, document: Any, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        async with self._http.request(
            method,
            self._url + path,
            headers={**V2, **headers},
            data=None if document is None else json.dumps(document),
        ) as answer:
            return answer.status, await answer.read()

    async def make(self, group: str, topic: str, reset: str = "latest") -> str:
        """Create the instance ``c`` of a group, and return its path.

        Args:
            group: its id.
            topic: to subscribe to; empty: none.
            reset: where partitions begin: ``latest`` or ``earliest``.
        """
        base = f"/consumers/{group}/instances/c"
        await self.call("POST", f"/consumers/{group}", {"name": "c", "auto.offset.reset": reset})
        if topic:
            await self.call("POST", f"{base}/subscription", {"topics": [topic]})
        return base

    async def read(self, base: str, timeout: int) -> Any:
        """Read records in binary format.

        Args:
            base: the instance's path.
            timeout: milliseconds to wait for records.
        """
        return await self.call("GET", f"{base}/records?timeout={timeout}", **BINARY)


async def arrival(bench: Bench, made: Instances) -> None:
    """Measure how long after Kafka's acknowledgement of a record a waiting read is answered, and add the row."""
    bench.cluster.create_topic("arrive", 4)
    base = await made.make(uuid.uuid4().hex, "arrive")
    await made.read(base, 500)
    producer = Producer({"bootstrap.servers": bench.bootstrap, "linger.ms": 0})
    took = []
    for _ in range(ARRIVALS):
        read = asyncio.ensure_future(made.read(base, 5000))
        await asyncio.sleep(0.02)
        landed: list[float] = []
        producer.produce(
            "arrive", VALUE, on_delivery=lambda _e, _m, to=landed: to.append(time.perf_counter())
        )
        await asyncio.to_thread(producer.flush)
        if len(await read) != 1:
            raise RuntimeError("the read did not return exactly one record")
        took.append(time.perf_counter() - landed[0])
    await made.call("DELETE", base)
    p50 = statistics.median(took[20:]) * 1e3
    bench.report.add(
        "a record that ends a waiting read: p50 from Kafka's ack to the answer",
        f"{p50:.2f} ms",
        "<= 4 ms",
        p50 <= 4,
        f"p99 {sorted(took)[int(len(took) * 0.99)] * 1e3:.1f} ms",
    )


def memory(pid: int) -> float:
    with open(f"/proc/{pid}/status") as status:
        return int(next(line for line in status if line.startswith("VmRSS")).split()[1]) / 1024


def cpu(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def await_all(calls: list[Any], at_once: int = 16) -> float:
    """Await all calls, ``at_once`` of them concurrently; return the seconds taken."""
    begun, left = time.monotonic(), list(reversed(calls))

    async def worker() -> None:
        while left:
            await left.pop()

    await asyncio.gather(*[worker() for _ in range(at_once)])
    return time.monotonic() - begun


async def idle(bench: Bench, made: Instances, pid: int) -> None:
    """Measure what idle instances cost the daemon, without and with a subscription, and add the rows."""
    bench.cluster.create_topic("idle", 1)
    for what, topic in (("created but not subscribed", ""), ("subscribed", "idle")):
        before, spent, begun = memory(pid), cpu(pid), time.monotonic()
        await asyncio.sleep(5)
        resting = (cpu(pid) - spent) / (time.monotonic() - begun)
        groups = [uuid.uuid4().hex for _ in range(IDLE)]
        made_in = await await_all([made.make(group, topic) for group in groups])
        bases = [f"/consumers/{group}/instances/c" for group in groups]
        if topic:
            await await_all([made.read(base, 0) for base in bases])  # until they have joined
        await asyncio.sleep(5)
        spent, begun = cpu(pid), time.monotonic()
        await asyncio.sleep(10)
        share = (cpu(pid) - spent) / (time.monotonic() - begun) - resting
        grown, threads = memory(pid) - before, len(os.listdir(f"/proc/{pid}/task"))
        deleted_in = await await_all([made.call("DELETE", base) for base in bases])
        bench.report.add(
            f"{IDLE:,} idle instances, {what}: memory, CPU",
            f"{grown:.0f} MiB, {share:.0%} of a core",
            "reported",
            True,
            f"{threads:,} threads; made in {made_in:.1f} s, deleted in {deleted_in:.1f} s, "
            f"{made.again} requests repeated",
        )


async def waiting(bench: Bench, made: Instances, pid: int) -> None:
    """Measure commits while many reads wait, and add the rows."""
    bench.cluster.create_topic("wait", 1)
    bench.cluster.create_topic("committed", 1)
    fill_one(bench.bootstrap, "committed", 2000)
    bases = await asyncio.gather(*[made.make(uuid.uuid4().hex, "wait") for _ in range(WAITING)])
    for base in bases:
        await made.read(base, 0)
    active = await made.make(uuid.uuid4().hex, "committed", "earliest")
    await made.read(active, 5000)
    reads = [asyncio.ensure_future(made.read(base, 40_000)) for base in bases]
    await asyncio.sleep(1)
    took: list[float] = []
    of_waiting: list[float] = []
    spent, began = cpu(pid), time.monotonic()
    for at in range(100 * COMMIT_ROUNDS):
        offset = {"topic": "committed", "partition": 0, "offset": at}
        begun = time.perf_counter()
        await made.call("POST", f"{active}/offsets", {"offsets": [offset]})
        took.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        offset = {"topic": "wait", "partition": 0, "offset": 0}
        await made.call("POST", f"{bases[at % WAITING]}/offsets", {"offsets": [offset]})
        of_waiting.append(time.perf_counter() - begun)
    share = (cpu(pid) - spent) / (time.monotonic() - began)
    if any(read.done() for read in reads):
        raise RuntimeError("a read did not wait")
    for read in reads:
        read.cancel()
    await asyncio.gather(*reads, return_exceptions=True)
    for base in [*bases, active]:
        await made.call("DELETE", base)
    for what, found in (("another instance", took), ("a waiting instance", of_waiting)):
        rounds = [sorted(found[at : at + 100]) for at in range(0, len(found), 100)]
        p50, p99 = statistics.median(found) * 1e3, statistics.median(each[98] for each in rounds) * 1e3
        bench.report.add(
            f"commit on {what} while {WAITING} reads wait: p99",
            f"{p99:.1f} ms",
            "<= 50 ms",
            p99 <= 50,
            f"median of {COMMIT_ROUNDS} rounds of 100; p50 {p50:.1f} ms; {share:.0%} of a core",
        )


def fill_one(bootstrap: str, topic: str, count: int) -> None:
    """Write messages as :func:`fill` does, to a topic with one partition."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(count):
        producer.produce(topic, VALUE)
    producer.flush()


async def over_http(bench: Bench, pid: int) -> None:
    """Add the rows of requests to a daemon, whose process id is ``pid``."""
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
        made = Instances(http, bench.port)
        await arrival(bench, made)
        await waiting(bench, made, pid)
        await idle(bench, made, pid)


def run(bench: Bench, pid: int) -> None:
    """Run all rows of this module.

    Args:
        bench: the bench with its cluster and report.
        pid: the daemon's process id.
    """
    backlog(bench)
    asyncio.run(over_http(bench, pid))


if __name__ == "__main__":
    main(*sys.argv[1:])
