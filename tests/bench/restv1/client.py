"""A lean HTTP client: ``python -m tests.bench.restv1.client HOST:PORT PATH CONNECTIONS RECORDS REQUESTS``.

It implements only the HTTP that keeps the server busy, so it takes little processor time compared with the
server. Prints one JSON document: records per second and latencies in milliseconds.
"""

from __future__ import annotations

import asyncio
import base64
import json
import statistics
import sys
import time

VALUE = b"x" * 64


def request(target: str, path: str, records: int) -> bytes:
    """Encode a produce request.

    Args:
        target: host and port of the server.
        path: the topic's path.
        records: records in the request.
    """
    value = base64.b64encode(VALUE).decode()
    body = json.dumps({"records": [{"value": value}] * records}).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {target}\r\n"
        "Content-Type: application/vnd.kafka.binary.v2+json\r\nAccept: application/vnd.kafka.v2+json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Connection(asyncio.Protocol):
    """Sends a request, and the same again after each answer, while requests are left."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._got = bytearray()
        self._begun = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self.send()

    def send(self) -> None:
        if self._run.take():
            self._begun = time.perf_counter()
            self._transport.write(self._run.request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        got = self._got
        got += data
        end = got.find(b"\r\n\r\n")
        if end < 0:
            return
        if not got.startswith(b"HTTP/1.1 200 "):
            self._run.fail(bytes(got))
            return
        at = got.find(b"Content-Length: ") + len(b"Content-Length: ")
        if len(got) < end + 4 + int(got[at : got.index(b"\r\n", at)]):
            return
        if b'"error_code":5' in got:
            self._run.fail(bytes(got))
        got.clear()
        self._run.answered(time.perf_counter() - self._begun)
        self.send()


class Run:
    """A number of requests, shared by all connections."""

    def __init__(self, payload: bytes, requests: int) -> None:
        self.request = payload
        self.took: list[float] = []
        self._left = self._wanted = requests
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take(self) -> bool:
        self._left -= 1
        return self._left >= 0

    def answered(self, took: float) -> None:
        self.took.append(took)
        if len(self.took) == self._wanted:
            self._done.set_result(None)

    def fail(self, what: bytes) -> None:
        if not self._done.done():
            self._done.set_exception(RuntimeError(what[:500].decode("utf-8", "replace")))

    async def over(self, host: str, port: int, connections: int) -> float:
        """Make the requests; return the seconds that they took.

        Args:
            host: the server's.
            port: the server's.
            connections: each makes one request at a time.
        """
        loop = asyncio.get_running_loop()
        begun = time.perf_counter()
        for _ in range(connections):
            await loop.create_connection(lambda: Connection(self), host, port)
        await self._done
        return time.perf_counter() - begun


async def main(target: str, path: str, connections: int, records: int, requests: int) -> None:
    """Measure produce requests, after a tenth of them for warming up; print records per second and latencies as JSON.

    Args:
        target: ``host:port``.
        path: of the requests.
        connections: each makes one request at a time.
        records: in a request.
        requests: in all.
    """
    host, _, port = target.partition(":")
    payload = request(target, path, records)
    await Run(payload, max(connections, requests // 10)).over(host, int(port), connections)
    run = Run(payload, requests)
    took = await run.over(host, int(port), connections)
    ordered = sorted(run.took)
    print(
        json.dumps(
            {
                "per_second": requests * records / took,
                "p50_ms": statistics.median(ordered) * 1e3,
                "p99_ms": ordered[int(len(ordered) * 0.99)] * 1e3,
            }
        )
    )


if __name__ == "__main__":
    TARGET, PATH, CONNECTIONS, RECORDS, REQUESTS = sys.argv[1:]
    runner: object = asyncio
    try:
        import uvloop as runner  # type: ignore[no-redef]
    except ImportError:
        pass
    runner.run(main(TARGET, PATH, int(CONNECTIONS), int(RECORDS), int(REQUESTS)))  # type: ignore[attr-defined]
