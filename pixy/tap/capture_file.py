"""Read the TCP segments of a capture file: pcap and pcapng, of which a damaged one costs one line."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable, Iterator
from typing import IO, Any, Final

from pixy.errors import StartError, needs_extra
from pixy.tap.capture import Segment

_PCAPNG: Final = b"\x0a\x0d\x0d\x0a"
_LARGEST: Final = 1 << 28
"""Bytes of a block or packet, at most."""
_LATEST: Final = 253_402_300_799.0
"""The last second of the year 9999: a later time cannot be shown."""


class _File:
    """A file that knows where its last block begins, and whether it has come to an end.

    Args:
        file: the file, read from.
        head: what was read of it already.
    """

    def __init__(self, file: IO[bytes], head: bytes) -> None:
        self._file, self._head, self._at = file, head, 0
        self.last, self.before = 0, 0
        """Where the last read began and the one before: a block takes two, its header and the rest."""
        self.ended = False

    def read(self, size: int) -> bytes:
        """Read.

        Raises:
            StartError: the length of a block cannot be.
        """
        if not 0 <= size <= _LARGEST:
            raise StartError(f"the block at byte {self.last} has an impossible length")
        self.before, self.last = self.last, self._at
        found, self._head = self._head[:size], self._head[size:]
        if len(found) < size:
            found += self._file.read(size - len(found))
        self.ended = self.ended or len(found) < size
        self._at += len(found)
        return found

    def damage(self, error: Exception) -> str:
        """Describe an error in the block that was read last."""
        return f"the block at byte {self.before} is damaged: {str(error) or type(error).__name__}"


def segments(file: IO[bytes]) -> Iterator[Segment]:
    """Iterate over the TCP segments of a capture file.

    A file that ends in the middle of a packet, because the capture was stopped there, is read up to that packet.

    Args:
        file: a file in the format of pcap or pcapng, of Ethernet, Linux cooked, loopback or raw IP packets.

    Raises:
        StartError: the library dpkt is missing, or the file has another format, or is damaged.
    """
    try:
        import dpkt
    except ImportError as error:
        raise StartError(needs_extra("reading captures", "pcap", error)) from None
    head = file.read(len(_PCAPNG))
    whole = _File(file, head)
    try:
        reader = (dpkt.pcapng if head == _PCAPNG else dpkt.pcap).Reader(whole)
    except StartError:
        raise
    except Exception as error:  # whatever dpkt makes of bytes that are no capture
        what = whole.damage(error) if head == _PCAPNG else f"not a capture file: {error}"
        raise StartError(what) from error
    unpack = _unpacker(dpkt, reader.datalink())
    packets = iter(reader)
    while True:
        try:
            found = next(packets, None)
        except StartError:
            raise
        except Exception as error:
            if whole.ended:
                return
            raise StartError(whole.damage(error)) from error
        if found is None:
            return
        segment = _segment(dpkt, unpack, *found)
        if segment is not None:
            yield segment


def _segment(dpkt: Any, unpack: Callable[[bytes], Any], at: float, packet: bytes) -> Segment | None:
    """Return a packet's TCP segment, None if it has none."""
    try:
        ip = unpack(packet)
    except (dpkt.Error, struct.error, ValueError, IndexError):
        return None
    tcp = getattr(ip, "data", None)
    if not (isinstance(ip, dpkt.ip.IP | dpkt.ip6.IP6) and isinstance(tcp, dpkt.tcp.TCP)):
        return None
    return Segment(
        min(float(at), _LATEST),
        (str(ipaddress.ip_address(ip.src)), tcp.sport),
        (str(ipaddress.ip_address(ip.dst)), tcp.dport),
        tcp.seq,
        tcp.flags,
        bytes(tcp.data),
    )


def _unpacker(dpkt: Any, link: int) -> Callable[[bytes], Any]:
    """Return a function from a packet to its IP packet, for a type of link."""
    if link == dpkt.pcap.DLT_EN10MB:
        return lambda packet: dpkt.ethernet.Ethernet(packet).data
    if link == dpkt.pcap.DLT_LINUX_SLL:
        return lambda packet: dpkt.sll.SLL(packet).data
    if link == dpkt.pcap.DLT_LINUX_SLL2:
        return lambda packet: dpkt.sll2.SLL2(packet).data
    if link in (dpkt.pcap.DLT_NULL, dpkt.pcap.DLT_LOOP):
        return lambda packet: _ip(dpkt, packet[4:])
    if link in (dpkt.pcap.DLT_RAW, 101, 228, 229):
        return lambda packet: _ip(dpkt, packet)
    raise StartError(f"packets of link type {link} cannot be read")


def _ip(dpkt: Any, packet: bytes) -> Any:
    return dpkt.ip6.IP6(packet) if packet[:1] and packet[0] >> 4 == 6 else dpkt.ip.IP(packet)


__all__ = ["segments"]
