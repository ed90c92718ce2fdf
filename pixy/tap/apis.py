"""API keys by what the tap does with their frames."""

from __future__ import annotations

from typing import Final

from pixy.wire import messages, schema

MAX_FRAME: Final = 1 << 30
"""The longest frame, in bytes: a connection with a greater length does not speak Kafka and is no longer observed."""

PRODUCE, FETCH, JOIN, SYNC, SASL_HANDSHAKE, API_VERSIONS = 0, 1, 11, 14, 17, 18
SASL_AUTHENTICATE, SHARE_FETCH, SHARE_ACKNOWLEDGE = 36, 78, 79
CAPTURED_REQUESTS: Final = frozenset(
    {2, 8, 9, 11, 12, 13, 14, 18, 22, 26, 28, 47, 68, 76, SHARE_FETCH, SHARE_ACKNOWLEDGE, 88}
)
"""API keys whose requests the observer reads."""
SECRET: Final = frozenset({SASL_HANDSHAKE, SASL_AUTHENTICATE, 38, 39, 40, 41, 50, 51})
"""API keys whose bodies carry credentials: SASL, delegation tokens, SCRAM."""
CAPTURED_RESPONSES: Final = (
    frozenset(range(1_000)) - SECRET - {PRODUCE, FETCH, SHARE_FETCH, SHARE_ACKNOWLEDGE}
)
"""API keys whose responses the observer reads: of most of them, error codes and throttle times only."""
WAITING: Final = frozenset({JOIN, SYNC})
"""APIs that wait for other members: the timeline of rebalances shows them, the list of slow requests does not."""
REWRITTEN_RESPONSES: Final = frozenset({3, 10, 18, 60})
"""API keys whose responses name brokers (Metadata, FindCoordinator, DescribeCluster) or versions (ApiVersions)."""
PRODUCE_ENDPOINTS, FETCH_ENDPOINTS = 10, 16
"""The first versions whose responses name brokers."""


def load_tables() -> None:
    """Load the message tables, which takes a tenth of a second, before the first request needs them."""
    for key in sorted(schema.keys()):
        known(key, 0)
        messages.response_header_version(key, 0)


def known(key: int, version: int) -> bool:
    """Tell whether the tap knows a version of an API."""
    name = schema.keys().get(key)
    return name is not None and version in messages.versions(f"{name}Request")
