"""What all listeners of a process share at the edge."""

from __future__ import annotations

import logging
import time

from pixy.api.edge.browsers import Browsers
from pixy.api.edge.budget import Budget
from pixy.api.edge.connections import Book, bounds
from pixy.api.edge.heads import Heads
from pixy.api.edge.proxies import TrustedProxies
from pixy.api.edge.refusals import Refusals
from pixy.config.model import App

logger = logging.getLogger("pixy.api")


class Edge:
    """The bounds of connections, and what counts against them.

    Args:
        app: the configuration.
    """

    def __init__(self, app: App) -> None:
        settings = app.connections
        found = bounds(settings)
        if found.cut:
            logger.info("%s", found.cut)
        self.most_grpc = found.grpc
        """gRPC's core counts its connections by itself."""
        self.book = Book(found.http, found.per_address)
        self.heads = Heads(settings.max_unfinished_headers)
        self.budget = Budget(app.max_buffered_bytes, "max_buffered_bytes")
        """For the bodies of Kafka-Pixy's own API."""
        self.browsers = Browsers(app)
        self.proxies = TrustedProxies(app)
        self.refusals = Refusals(time.monotonic)
