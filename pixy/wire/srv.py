"""Bootstrap addresses from an SRV record (RFC 2782): a question to the system's name servers, nothing more.

Python's standard library has no lookup of SRV records. Answers that do not fit a datagram are asked for over TCP.
"""

from __future__ import annotations

import secrets
import socket
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pixy.wire.exceptions import DecodeError, TruncatedError, WireError

RESOLV_CONF: Final = Path("/etc/resolv.conf")
_HEADER: Final = struct.Struct(">HHHHHH")
_RECORD: Final = struct.Struct(">HHIH")
_SRV: Final = 33
_TRUNCATED: Final = 0x0200
_ERRORS: Final = {1: "format error", 2: "server failure", 3: "no such name", 5: "refused"}


def lookup(name: str, *, servers: Sequence[tuple[str, int]] | None = None, timeout: float = 5.0) -> list[str]:
    """The addresses ``host:port`` of an SRV record, those of the least priority number first.

    ``servers`` are the system's name servers by default, asked one after the other; each has its share
    of ``timeout`` seconds. Raises WireError if there are no addresses.
    """
    deadline = time.monotonic() + timeout
    problem = "no name server"
    asked = system_servers() if servers is None else servers
    for left, server in zip(range(len(asked), 0, -1), asked, strict=True):
        now = time.monotonic()
        try:
            return _ask(name, server, now + (deadline - now) / left)
        except (OSError, DecodeError) as error:
            problem = f"{server[0]}: {error}"
    raise WireError(f"SRV record of {name}: {problem}")


def system_servers(path: Path = RESOLV_CONF) -> list[tuple[str, int]]:
    """The name servers that the system's configuration lists."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [(words[1], 53) for words in map(str.split, lines) if len(words) > 1 and words[0] == "nameserver"]


def _ask(name: str, server: tuple[str, int], deadline: float) -> list[str]:
    identifier = secrets.randbits(16)
    question = _HEADER.pack(identifier, 0x0100, 1, 0, 0, 0) + _encode_name(name) + struct.pack(">HH", _SRV, 1)
    answer = _over_udp(question, server, deadline)
    if len(answer) >= 4 and int.from_bytes(answer[2:4], "big") & _TRUNCATED:
        answer = _over_tcp(question, server, deadline)
    found = parse(answer, identifier)
    if not found:
        raise WireError(f"SRV record of {name}: there is none")
    return [f"{host}:{port}" for _, host, port in sorted(found)]


def _over_udp(question: bytes, server: tuple[str, int], deadline: float) -> bytes:
    family = socket.AF_INET6 if ":" in server[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as udp:
        udp.connect(server)
        udp.send(question)
        while True:
            udp.settimeout(max(deadline - time.monotonic(), 0.001))
            answer = udp.recv(65535)
            if answer[:2] == question[:2]:  # not the late answer to another question
                return answer


def _over_tcp(question: bytes, server: tuple[str, int], deadline: float) -> bytes:
    with socket.create_connection(server, max(deadline - time.monotonic(), 0.001)) as tcp:
        tcp.sendall(len(question).to_bytes(2, "big") + question)
        data = b""
        while len(data) < 2 or len(data) < 2 + int.from_bytes(data[:2], "big"):
            tcp.settimeout(max(deadline - time.monotonic(), 0.001))
            chunk = tcp.recv(65537)
            if not chunk:
                raise TruncatedError("the name server closed the connection", len(data))
            data += chunk
    return data[2:]


def parse(answer: bytes, identifier: int) -> list[tuple[int, str, int]]:
    """(priority, host, port) of the SRV records in a DNS message. Raises DecodeError, and WireError for a refusal."""
    try:
        found, flags, questions, answers, _, _ = _HEADER.unpack_from(answer)
        if found != identifier or not flags & 0x8000:
            raise DecodeError("not the answer to this question", 0)
        if flags & 0xF:
            raise WireError(f"name server: {_ERRORS.get(flags & 0xF, f'error {flags & 0xF}')}")
        pos = _HEADER.size
        for _ in range(questions):
            pos = _read_name(answer, pos)[1] + 4
        records = []
        for _ in range(answers):
            pos = _read_name(answer, pos)[1]
            kind, _, _, length = _RECORD.unpack_from(answer, pos)
            pos += _RECORD.size
            if kind == _SRV:
                priority, _, port = struct.unpack_from(">HHH", answer, pos)
                records.append((priority, _read_name(answer, pos + 6)[0], port))
            pos += length
        return [each for each in records if each[1]]  # the root stands for "no such service"
    except (struct.error, IndexError):
        raise TruncatedError("DNS message: it ends too early", len(answer)) from None


def _encode_name(name: str) -> bytes:
    try:
        labels = [
            label.encode("idna") if not label.startswith("_") else label.encode("ascii")
            for label in name.rstrip(".").split(".")
        ]
    except UnicodeError:
        labels = [b""]
    if not all(0 < len(label) < 64 for label in labels) or sum(map(len, labels)) + len(labels) > 254:
        raise WireError(f"not a host name: {name!r}")
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def _read_name(data: bytes, pos: int) -> tuple[str, int]:
    """A name, which may go on elsewhere (RFC 1035, 4.1.4); where it ends here."""
    labels: list[str] = []
    end, start = -1, pos
    while length := data[pos]:
        if length >= 0xC0:
            target = (length & 0x3F) << 8 | data[pos + 1]
            end = pos + 2 if end < 0 else end
            if target >= start:  # only backwards, so that it comes to an end
                raise DecodeError("DNS name that points forward", pos)
            pos = start = target
            continue
        if length > 63 or len(labels) > 127:
            raise DecodeError("DNS name that is too long", pos)
        labels.append(data[pos + 1 : pos + 1 + length].decode("ascii", "replace"))
        pos += 1 + length
    return ".".join(labels), pos + 1 if end < 0 else end
