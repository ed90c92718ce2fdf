"""The program on an address that other hosts can reach."""

from __future__ import annotations

import signal

from pixy.config import App
from tests.integration.edge.raw import Raw
from tests.support import Program, serving


def test_an_open_address_is_named_in_one_line_at_start() -> None:
    with Program(
        "--tcpAddr=0.0.0.0:0", "--grpcAddr=127.0.0.1:0", "--sandbox", "--insecure", "--logging=[]"
    ) as program:
        assert program.process.stdout is not None
        line = program.process.stdout.readline()
        assert line == "kafka-pixy: insecure: anybody who can reach it is served on tcp_addr 0.0.0.0:0\n"
        while "Ctrl-C stops it" not in (line := program.process.stdout.readline()):
            assert line and "insecure" not in line
        program.process.send_signal(signal.SIGTERM)
        code, _ = program.wait()
    assert code == 0


async def test_no_answer_names_the_versions_of_what_serves_it(config: App) -> None:
    async with serving(config) as daemon:
        for request in (
            b"GET /_ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            b"GET /v3/clusters HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            b"POST /topics/t/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
            b"\x00\x01 nonsense\r\n\r\n",
        ):
            async with await Raw.to(daemon) as raw:
                await raw.send(request)
                answer = await raw.rest()
                assert answer.startswith(b"HTTP/1."), answer
                assert b"aiohttp" not in answer and b"Python" not in answer, answer
