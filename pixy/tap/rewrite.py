"""Answers that name brokers, with other addresses in the place of theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pixy.tap.config import Address
from pixy.tap.lenient import decode_response
from pixy.wire import frames
from pixy.wire.exceptions import WireError

METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER = 3, 10, 60
Place = Callable[[Address, int], Address]
"""(address, number of brokers in the answer) of a broker to the address that clients are told."""

_LISTS: Final = {METADATA: "Brokers", FIND_COORDINATOR: "Coordinators", DESCRIBE_CLUSTER: "Brokers"}


def rewrite(frame: bytes, key: int, version: int, place: Place) -> bytes | None:
    """The response with its brokers where ``place`` says, as a frame with its length; None if it is not understood."""
    try:
        correlation_id, body, rest = decode_response(frame, key, version)
        nodes: list[dict[str, Any]] = body.get(_LISTS[key]) or []
        if key == FIND_COORDINATOR and "Host" in body:
            nodes = [body]
        count = len(nodes) if key != FIND_COORDINATOR else 0
        for node in nodes:
            if node["Host"] and node["Port"] > 0:  # an error's answer has none
                node["Host"], node["Port"] = place((node["Host"], node["Port"]), count)
        return frames.frame(frames.encode_response(key, version, correlation_id, body)[4:] + rest)
    except (WireError, OSError):
        return None
