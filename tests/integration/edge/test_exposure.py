"""The program on an address that other hosts can reach."""

from __future__ import annotations

import signal

from tests.support import Program


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
