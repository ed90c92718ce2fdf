"""Bounds on what one request may hold, beside its bytes. What exceeds them would hold up the event loop, or serves nobody."""

from __future__ import annotations

from typing import Final

MOST_HEADERS: Final = 1_000
"""Headers of a message; a megabyte of empty ones takes 1.4 s of processor."""
MOST_OFFSETS: Final = 10_000
"""Partitions whose offsets one request sets; as many JSON objects are parsed in some 10 ms."""
MOST_TOPICS: Final = 1_000
"""Topics that one request names."""
MOST_COMMAS: Final = 100_000
"""Commas in a document of such lists: what has more is not even parsed, for empty elements are small and many."""
MOST_LISTED: Final = 6 << 20
"""Bytes of such a document over REST v1 and v2; as many take some 15 ms, whatever is in them."""
MOST_RECORDS: Final = 10_000
"""Messages that one gRPC request writes or reads."""
MOST_HEADERS_TOGETHER: Final = 100_000
"""Headers of all messages of one gRPC request; in REST, ``rest.max_request_records`` bounds them."""
STEP: Final = 1_000
"""Records and headers that are built, or rendered, before other requests have their turn: a millisecond or two."""
MOST_PARAMETERS: Final = 1_000
"""Parameters of a query or a form."""
