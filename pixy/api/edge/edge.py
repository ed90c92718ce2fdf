"""What all listeners of a process share at the edge."""

from __future__ import annotations

import logging

from pixy.api.edge.connections import Book, bounds
from pixy.api.edge.heads import Heads
from pixy.config.model import Connections

logger = logging.getLogger("pixy.api")


class Edge:
    """The bounds of connections, and what counts against them.

    Args:
        settings: the section ``connections``.
    """

    def __init__(self, settings: Connections) -> None:
        found = bounds(settings)
        if found.cut:
            logger.warning("%s", found.cut)
        self.most_grpc = found.grpc
        """gRPC's core counts its connections by itself."""
        self.book = Book(found.http, found.per_address)
        self.heads = Heads(settings.max_unfinished_headers)
