"""Decode the frames of a dump and choose those that its filter takes. No IO, no clock.

A response belongs to its request: if either matches, both are shown, the request first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from pixy.tap import events
from pixy.tap.apis import SECRET, known
from pixy.tap.config import Address, Bounds
from pixy.tap.dump_filter import DumpFilter, names_in
from pixy.tap.latency import api_name
from pixy.tap.lenient import decode_response
from pixy.tap.lru import LruDict
from pixy.tap.topics import Topics
from pixy.tap.traffic import error_name, errors_in
from pixy.wire import batch_header, frames
from pixy.wire.compression import Codec
from pixy.wire.consumer_protocol import decode_assignment, decode_subscription
from pixy.wire.exceptions import WireError
from pixy.wire.json_form import to_json

METADATA: Final = 3
SASL_HANDSHAKE: Final = 17
HIDDEN: Final = (SECRET | {33, 44, 58, 59}) - {SASL_HANDSHAKE}
"""API keys of which a dump shows no body: those with credentials; AlterConfigs, whose values may be passwords; Envelope, which
holds any other request and its sender's principal; FetchSnapshot, which holds the secrets of SCRAM."""
_PLAUSIBLE: Final = 1_000
"""API keys and versions from here on are bytes of something else, such as a bare SASL token."""
_HEADER: Final = 8
_ALL: Final = 1 << 31
_WAITING: Final = 10_000
"""Requests that wait for their response."""
_KEPT: Final = 16 * 1024
"""Bytes of a request that does not match, at most, to be kept until its response is known."""
_BATCHES: Final = 100
"""Record batches of one partition whose headers are shown."""

Body = dict[str, Any]
DumpEvent = events.Opened | events.Connected | events.FrameSeen | events.Closed


@dataclass(slots=True)
class Side:
    """The two ends of a connection, as host:port, and the client's id."""

    client: str = ""
    broker: str = ""
    client_id: str = ""
    addresses: tuple[Address, Address] | None = None
    """The client's and the broker's IP address and port."""


class Writer(Protocol):
    """Writes what a dump shows."""

    decodes: bool
    """Whether :meth:`write` uses the document."""

    def write(self, seen: events.FrameSeen, side: Side, document: Callable[[], Body]) -> None:
        """Write a frame; ``document`` describes it as JSON."""

    def closed(self, connection: int, at: float) -> None:
        """Note that a connection has ended."""


class _Decoded(NamedTuple):
    body: Body | None
    """None if it is hidden, cut off or cannot be decoded."""
    why: Body
    """What to show instead of the body."""
    groups: list[str]
    topics: list[str]


@dataclass(slots=True)
class _Asked:
    """A request that waits for its response."""

    shown: bool
    seen: events.FrameSeen | None
    """The request, if it is kept because its response may match."""
    decoded: _Decoded | None
    groups: list[str]
    topics: list[str]


class Dump:
    """Call :meth:`take` with each event.

    Args:
        wanted: which frames to show.
        writer: shows them.
        bounds: limits of connections and topics.
    """

    def __init__(self, wanted: DumpFilter, writer: Writer, bounds: Bounds) -> None:
        self._wanted, self._writer = wanted, writer
        self._topics = Topics(bounds)
        self._sides: LruDict[int, Side] = LruDict(bounds.connections * 2)
        self._asked: LruDict[tuple[int, int], _Asked] = LruDict(_WAITING)

    def take(self, event: DumpEvent) -> None:
        """Process one event.

        Raises:
            OSError: the writer cannot write; also DumpFull, at its limit.
        """
        if isinstance(event, events.FrameSeen):
            (self._request if event.is_request else self._response)(event)
        elif isinstance(event, events.Opened):
            self._sides[event.connection] = Side(event.client, event.broker)
        elif isinstance(event, events.Connected):
            side = self._sides.get_or_create(event.connection, Side)
            side.addresses = event.client, event.broker
        elif isinstance(event, events.Closed):
            self._sides.pop(event.connection)
            self._writer.closed(event.connection, event.at)

    def _request(self, seen: events.FrameSeen) -> None:
        side = self._sides.get_or_create(seen.connection, Side)
        if not _hidden(seen.key, seen.version):
            side.client_id = _client_id(seen.frame) or side.client_id
        may = self._wanted.takes_api(seen.key) and self._wanted.takes_client(side.client_id)
        decoded = self._decode(seen) if may and self._decodes else None
        groups, topics = (decoded.groups, decoded.topics) if decoded else ([], [])
        shown = may and self._wanted.takes_names(groups, topics)
        kept = may and not shown and len(seen.frame) <= _KEPT
        self._asked[seen.connection, seen.number] = _Asked(
            shown, seen if kept else None, decoded if kept else None, groups, topics
        )
        if shown:
            self._show(seen, side, decoded, groups, topics)

    def _response(self, seen: events.FrameSeen) -> None:
        side = self._sides.get_or_create(seen.connection, Side)
        asked = self._asked.pop((seen.connection, seen.number)) or _Asked(False, None, None, [], [])
        decoded = self._decode(seen) if seen.key == METADATA or self._decodes else None
        if decoded is not None and decoded.body is not None and seen.key == METADATA:
            self._topics.learn(decoded.body["Topics"])
        groups = _union(asked.groups, decoded.groups if decoded else [])
        topics = _union(asked.topics, decoded.topics if decoded else [])
        if not asked.shown:
            if not (
                self._wanted.takes_api(seen.key)
                and self._wanted.takes_client(side.client_id)
                and self._wanted.takes_names(groups, topics)
            ):
                return
            if asked.seen is not None:
                self._show(asked.seen, side, asked.decoded, asked.groups, asked.topics)
        self._show(seen, side, decoded, groups, topics)

    @property
    def _decodes(self) -> bool:
        return self._writer.decodes or self._wanted.needs_names

    def _show(
        self,
        seen: events.FrameSeen,
        side: Side,
        decoded: _Decoded | None,
        groups: list[str],
        topics: list[str],
    ) -> None:
        self._writer.write(
            seen, side, lambda: _document(seen, side, decoded or self._decode(seen), groups, topics)
        )

    def _decode(self, seen: events.FrameSeen) -> _Decoded:
        if _hidden(seen.key, seen.version):
            return _Decoded(None, {"hidden": True}, [], [])
        if len(seen.frame) < seen.size:
            return _Decoded(None, {"truncated": len(seen.frame)}, [], [])
        try:
            if seen.is_request:
                body = frames.decode_request(seen.frame).body
            else:
                body = decode_response(seen.frame, seen.key, seen.version)[1]
        except WireError as error:
            return _Decoded(None, {"error": str(error)}, [], [])
        _open_up(body)
        groups, topics = names_in(body)
        return _Decoded(body, {}, groups, [self._topics.show(each) for each in topics])


def _hidden(key: int, version: int) -> bool:
    """Tell whether a dump shows no body: also if nobody knows what it is."""
    return key in HIDDEN or not known(key, version)


def limit(wanted: DumpFilter, key: int, version: int) -> int | None:
    """Return how many bytes of a frame a dump needs, by API key and version; None if it is to leave the frame out.

    Of an unknown API or version it needs no byte, and only says that there was a frame. A SASL token (key -1) is left out.
    Metadata is needed also if the filter leaves it out: it names the topics that Fetch and Produce have the ids of.
    """
    if not (0 <= key < _PLAUSIBLE and 0 <= version < _PLAUSIBLE):
        return None
    if not (wanted.takes_api(key) or (wanted.topics and key == METADATA)):
        return None
    if _hidden(key, version):
        return _HEADER if known(key, version) else 0
    return _ALL


def _document(
    seen: events.FrameSeen, side: Side, decoded: _Decoded, groups: list[str], topics: list[str]
) -> Body:
    found: Body = {
        "time": round(seen.at, 6),
        "event": "request" if seen.is_request else "response",
        "connection": seen.connection,
        "number": seen.number,
        "client": side.client,
        "broker": side.broker,
        "client_id": side.client_id,
        "api": api_name(seen.key),
        "version": seen.version,
        "size": seen.size,
        "groups": groups,
        "topics": topics,
    }
    if not seen.is_request:
        found["seconds"] = round(max(0.0, seen.at - seen.asked), 6)
        if decoded.body is not None:
            codes = {code for _, code in errors_in(decoded.body)}
            found["errors"] = [error_name(code) for code in sorted(codes)]
    return found | decoded.why | {"body": to_json(decoded.body)}


def _client_id(frame: bytes) -> str:
    """Return the client id in the header of a request, empty if there is none."""
    size = int.from_bytes(frame[8:10], "big", signed=True)
    return frame[10 : 10 + max(size, 0)].decode("utf-8", "replace")


def _union(one: list[str], other: list[str]) -> list[str]:
    return list(dict.fromkeys([*one, *other]))


def _open_up(value: Body) -> None:
    """Replace records by the headers of their batches, and the members' subscriptions and assignments by what they say."""
    for name, each in value.items():
        if name == "Records" and isinstance(each, bytes | bytearray | memoryview):
            value[name] = _batches(each)
        elif name in {"Metadata", "Assignment"} and isinstance(each, bytes | memoryview):
            value[name] = _embedded(name, bytes(each))
        elif isinstance(each, dict):
            _open_up(each)
        elif isinstance(each, list):
            for one in each:
                if isinstance(one, dict):
                    _open_up(one)


def _batches(records: Any) -> Body:
    """Describe a record set without its keys and values."""
    found: list[Body] = []
    shown: Body = {"bytes": len(records), "batches": found}
    try:
        for each in batch_header.scan(records, check_crc=False):
            if len(found) == _BATCHES:
                shown["more"] = True
                break
            codec = each.codec
            found.append(
                {
                    "base_offset": each.base_offset,
                    "records": each.records_count,
                    "codec": codec.name.lower() if isinstance(codec, Codec) else codec,
                    "max_timestamp": each.max_timestamp,
                    "producer_id": each.producer_id,
                    "producer_epoch": each.producer_epoch,
                    "base_sequence": each.base_sequence,
                    "transactional": bool(each.attributes & batch_header.TRANSACTIONAL),
                    "control": bool(each.attributes & batch_header.CONTROL),
                }
            )
    except WireError as error:
        shown["error"] = str(error)
    return shown


def _embedded(name: str, data: bytes) -> Any:
    """Decode a member's subscription or assignment; other protocols' bytes stay as they are."""
    if not data:
        return data
    try:
        return (decode_subscription if name == "Metadata" else decode_assignment)(data).body
    except WireError:
        return data


__all__ = ["HIDDEN", "Dump", "DumpEvent", "Side", "Writer", "limit"]
