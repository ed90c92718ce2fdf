"""Rewrite broker addresses in Metadata, FindCoordinator and DescribeCluster responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pixy.tap.config import Address
from pixy.tap.lenient import decode_response
from pixy.wire import frames
from pixy.wire.exceptions import WireError

METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER = 3, 10, 60
MapAddress = Callable[[Address, int], Address]
"""Map (a broker's address, number of brokers in the response) to the address that clients are given."""

_LISTS: Final = {METADATA: "Brokers", FIND_COORDINATOR: "Coordinators", DESCRIBE_CLUSTER: "Brokers"}


def rewrite(frame: bytes, key: int, version: int, map_address: MapAddress) -> bytes | None:
    """Replace the address of each broker in a response.

    Args:
        frame: the response, without its length.
        key: the API key, one of those in this module.
        version: the version of the request.
        map_address: gives the address that replaces a broker's.

    Returns:
        The changed response with its length, or None if the response cannot be decoded.
    """
    try:
        correlation_id, body, rest = decode_response(frame, key, version)
        nodes: list[dict[str, Any]] = body.get(_LISTS[key]) or []
        if key == FIND_COORDINATOR and "Host" in body:
            nodes = [body]
        count = len(nodes) if key != FIND_COORDINATOR else 0
        for node in nodes:
            if node["Host"] and node["Port"] > 0:  # an error response names no address
                node["Host"], node["Port"] = map_address((node["Host"], node["Port"]), count)
        return frames.frame(frames.encode_response(key, version, correlation_id, body)[4:] + rest)
    except (WireError, OSError):
        return None
