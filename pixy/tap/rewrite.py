"""Rewrite broker addresses in Metadata, FindCoordinator and DescribeCluster responses, and cap the versions in ApiVersions.

A client uses the newest version that the broker and it have in common. One that is newer than this library cannot be decoded,
so its addresses would lead the client past the tap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pixy.tap.config import Address
from pixy.tap.lenient import decode_response
from pixy.wire import frames, messages
from pixy.wire.exceptions import WireError
from pixy.wire.frames import UNSUPPORTED_VERSION

METADATA, FIND_COORDINATOR, API_VERSIONS, DESCRIBE_CLUSTER = 3, 10, 18, 60
CAPPED: Final = frozenset({0, 1, METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER, 78, 79})
"""API keys whose responses name brokers: these, and Produce, Fetch, ShareFetch and ShareAcknowledge after a move."""
MapAddress = Callable[[Address, int], Address]
"""Map (a broker's address, number of brokers in the response) to the address that clients are given."""

_LISTS: Final = {METADATA: "Brokers", FIND_COORDINATOR: "Coordinators", DESCRIBE_CLUSTER: "Brokers"}


def rewrite(frame: bytes, key: int, version: int, map_address: MapAddress) -> bytes | None:
    """Replace the address of each broker in a response.

    Args:
        frame: the response, without its length.
        key: the API key of a response that names brokers, or of ApiVersions.
        version: the version of the request.
        map_address: gives the address that replaces a broker's.

    Returns:
        The changed response with its length, or None if the response cannot be decoded.
    """
    if key == API_VERSIONS:
        return _cap_versions(frame, version)
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


def _cap_versions(frame: bytes, version: int) -> bytes | None:
    """Limit the versions of :data:`CAPPED` to those that can be decoded; drop an API that has no such version."""
    try:
        correlation_id, body, rest = decode_response(frame, API_VERSIONS, version)
        found = [capped for each in body["ApiKeys"] if (capped := _capped(each)) is not None]
        if body["ErrorCode"] == UNSUPPORTED_VERSION or found == body["ApiKeys"]:
            return frames.frame(frame)
        body["ApiKeys"] = found
        return frames.frame(frames.encode_response(API_VERSIONS, version, correlation_id, body)[4:] + rest)
    except WireError:
        return None


def _capped(api: dict[str, Any]) -> dict[str, Any] | None:
    if api["ApiKey"] not in CAPPED:
        return api
    newest = messages.versions(messages.response_name(api["ApiKey"]))[-1]
    if api["MaxVersion"] <= newest:
        return api
    return None if api["MinVersion"] > newest else {**api, "MaxVersion": newest}
