"""Bounds and logs at the edge that all listeners of a process share."""

from __future__ import annotations

import functools
import logging
import time

from pixy.api.edge.browsers import Browsers
from pixy.api.edge.budget import Budget
from pixy.api.edge.connections import Book, bounds
from pixy.api.edge.deadline import Deadline
from pixy.api.edge.heads import Heads
from pixy.api.edge.pace import HANDSHAKES, STEPS, Pace
from pixy.api.edge.pieces import AT_ONCE
from pixy.api.edge.proxies import TrustedProxies
from pixy.api.edge.refusals import Refusals, Refused, ignore
from pixy.api.edge.tls_records import RECORDS
from pixy.config.model import App
from pixy.engine.access_log import AccessLog
from pixy.engine.meter import Meter
from pixy.engine.workers import Worker

logger = logging.getLogger("pixy.api")


class Edge:
    """The bounds of connections, and what counts against them.

    Args:
        app: the configuration.
        access_log: takes a line for each request; None: there is none.
        meter: counts requests; None: nobody does.
        worker: this process's place among others that serve the same addresses; None: it is alone.
    """

    def __init__(
        self,
        app: App,
        access_log: AccessLog | None = None,
        meter: Meter | None = None,
        worker: Worker | None = None,
    ) -> None:
        self.meter = meter
        self.worker = worker
        settings = app.connections
        found = bounds(settings)
        if found.cut:
            logger.info("%s", found.cut)
        self.most_grpc = found.grpc
        """gRPC's core counts its connections by itself."""
        self.book = Book(found.http, found.per_address)
        self.heads = Heads(settings.max_unfinished_headers)
        self.budget = Budget(app.max_buffered_bytes, "max_buffered_bytes")
        """For the bodies of Kafka-Pixy's own API, and those that nobody reads yet."""
        self.body_deadline = Deadline(app.body_timeout)
        """For the bodies of all HTTP requests."""
        self.browsers = Browsers(app)
        self.proxies = TrustedProxies(app)
        self.refusals = Refusals(time.monotonic)
        self.pace = Pace(time.monotonic)
        """For requests that begin."""
        self.steps = Pace(time.monotonic, STEPS)
        """For long requests, and for long pieces of what arrives."""
        self.handshakes = Pace(time.monotonic, HANDSHAKES)
        self.records = Pace(time.monotonic, RECORDS)
        """For TLS records."""
        self.arrivals = Pace(time.monotonic, AT_ONCE)
        """For short requests, many of which arrive at once."""
        self.access_log = access_log

    def refused(self, listener: str) -> Refused:
        """Return the function that logs connections and half requests that a listener refuses."""
        return ignore if self.access_log is None else functools.partial(self.access_log.refused, listener)
