"""Write a dump: lines of JSON, or packets that Wireshark opens."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import IO, Any, Final, Literal

from pixy.errors import StartError, needs_extra
from pixy.escaping import json_text
from pixy.tap import events
from pixy.tap.config import Address, Bounds
from pixy.tap.dump import Side
from pixy.tap.dump_secrets import without_metadata_log
from pixy.tap.lru import LruDict

Format = Literal["json", "pcapng"]

_SEGMENT: Final = 32 * 1024
"""Bytes of a frame in one packet."""
_FIN, _SYN, _PSH, _ACK = 1, 2, 8, 16
_RAW_IP: Final = 101
"""The link type of packets that begin with an IP header."""
_SEQUENCES: Final = 1 << 32
_UNKNOWN: Final[tuple[Address, Address]] = (("0.0.0.0", 0), ("0.0.0.0", 0))


class DumpFull(OSError):
    """The dump has reached its limit of bytes."""


class Limited:
    """A file that takes so many bytes and no more.

    Args:
        file: a binary file.
        limit: bytes.
    """

    def __init__(self, file: IO[bytes], limit: int) -> None:
        self._file, self._left, self._limit = file, limit, limit

    def write(self, data: bytes) -> None:
        """Write.

        Raises:
            DumpFull: there is no room for ``data``.
            OSError: the system refuses.
        """
        if len(data) > self._left:
            raise DumpFull(f"it has reached {self._limit:,} bytes (--max-dump)")
        self._left -= len(data)
        self._file.write(data)

    def flush(self) -> None:
        """Hand what was written to the system."""
        self._file.flush()

    def close(self) -> None:
        """Close the file, also if it cannot be written any more."""
        self._file.close()


class JsonDump:
    """Write a line of JSON for each request and response."""

    decodes = True

    def __init__(self, file: Limited) -> None:
        self.file = file

    def write(self, _seen: events.FrameSeen, _side: Side, document: Callable[[], dict[str, Any]]) -> None:
        """See :class:`pixy.tap.dump.Writer`."""
        self._line(document())

    def closed(self, connection: int, at: float) -> None:
        """See :class:`pixy.tap.dump.Writer`."""

    def lost(self, frames: int, at: float) -> None:
        """Note that frames were left out, because the dump was behind."""
        self._line({"time": round(at, 6), "event": "lost", "frames": frames})

    def _line(self, document: dict[str, Any]) -> None:
        self.file.write(f"{json_text(document)}\n".encode())


class _Stream:
    """The packets of one connection: which numbers come next, to the broker and to the client."""

    __slots__ = ("next", "source", "target")

    def __init__(self, addresses: tuple[Address, Address]) -> None:
        self.source, self.target = addresses
        self.next = [1, 1]


class PcapngDump:
    """Write each frame as TCP packets of the connection's addresses, as if it were captured in plaintext at the broker.

    Frames that the dump leaves out leave no gaps, and neither do those of unknown APIs. Of a frame that is cut off, the rest is a
    gap; in place of credentials and of the metadata log's records, zeros.

    Args:
        file: takes the blocks.

    Raises:
        StartError: the library dpkt is missing.
    """

    decodes = False

    def __init__(self, file: Limited, bounds: Bounds) -> None:
        try:
            import dpkt
        except ImportError as error:
            raise StartError(needs_extra("a dump as pcapng", "pcap", error)) from None
        self.file = file
        self._dpkt: Any = dpkt
        self._streams: LruDict[int, _Stream] = LruDict(bounds.connections * 2)
        link = dpkt.pcapng.InterfaceDescriptionBlockLE(linktype=_RAW_IP, snaplen=0)
        self._blocks = dpkt.pcapng.Writer(file, shb=dpkt.pcapng.SectionHeaderBlockLE(), idb=link)

    def write(self, seen: events.FrameSeen, side: Side, _document: Callable[[], dict[str, Any]]) -> None:
        """See :class:`pixy.tap.dump.Writer`."""
        if not seen.frame:
            return
        stream = self._streams.get(seen.connection)
        if stream is None:
            stream = self._streams[seen.connection] = _Stream(_one_family(side.addresses or _UNKNOWN))
            self._begin(stream, seen.at)
        missing = seen.size - len(seen.frame)
        data = seen.size.to_bytes(4, "big") + without_metadata_log(seen)
        if 0 < missing <= _SEGMENT:
            data, missing = data + bytes(missing), 0
        forth = seen.is_request
        for at in range(0, len(data), _SEGMENT):
            self._packet(stream, seen.at, forth, _PSH | _ACK, data[at : at + _SEGMENT])
        stream.next[not forth] = (stream.next[not forth] + missing) % _SEQUENCES

    def closed(self, connection: int, at: float) -> None:
        """See :class:`pixy.tap.dump.Writer`."""
        stream = self._streams.pop(connection)
        if stream is not None:
            self._packet(stream, at, True, _FIN | _ACK)
            self._packet(stream, at, False, _FIN | _ACK)

    def lost(self, frames: int, at: float) -> None:
        """Note nothing: a capture has no place for it."""

    def _begin(self, stream: _Stream, at: float) -> None:
        stream.next = [0, 0]
        self._packet(stream, at, True, _SYN)
        self._packet(stream, at, False, _SYN | _ACK)
        self._packet(stream, at, True, _ACK)

    def _packet(self, stream: _Stream, at: float, forth: bool, flags: int, data: bytes = b"") -> None:
        own, other = (0, 1) if forth else (1, 0)
        source, target = (stream.source, stream.target) if forth else (stream.target, stream.source)
        tcp = self._dpkt.tcp.TCP(
            sport=source[1],
            dport=target[1],
            seq=stream.next[own],
            ack=stream.next[other] if flags & _ACK else 0,
            flags=flags,
            win=65_535,
            data=data,
        )
        stream.next[own] = (stream.next[own] + len(data) + bool(flags & (_SYN | _FIN))) % _SEQUENCES
        self._blocks.writepkt(bytes(self._ip(source[0], target[0], tcp)), at)

    def _ip(self, source: str, target: str, tcp: Any) -> Any:
        dpkt, ends = self._dpkt, [ipaddress.ip_address(each).packed for each in (source, target)]
        if len(ends[0]) == 4:
            return dpkt.ip.IP(src=ends[0], dst=ends[1], p=6, len=20 + len(tcp), data=tcp)
        return dpkt.ip6.IP6(src=ends[0], dst=ends[1], nxt=6, hlim=64, plen=len(tcp), data=tcp)


def _one_family(addresses: tuple[Address, Address]) -> tuple[Address, Address]:
    """Make both addresses IPv6 if one is: a packet has one kind. Drop the scope of link-local ones."""
    plain = [(host.partition("%")[0], port) for host, port in addresses]
    if any(":" in host for host, _ in plain):
        plain = [(host if ":" in host else f"::ffff:{host}", port) for host, port in plain]
    return plain[0], plain[1]


__all__ = ["DumpFull", "Format", "JsonDump", "Limited", "PcapngDump"]
