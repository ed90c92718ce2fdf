"""Requests to the brokers of a cluster over our own wire library. Blocking.

Why not librdkafka's admin client (2.16): it ends the process when a request to a group's coordinator fails before it is sent, as
some do while a broker comes back (``rd_kafka_enq_once_del_source_return: Assertion `eonce->refcnt > 0' failed``; issue
4605, pull request 5397); it keeps a coordinator after that broker was missing from the metadata, though nothing
connects to it any more (issue 5511); and its ``list_offsets`` sends the leader epochs that it remembers: while two brokers
were restarted in turn, 116,000 of 158,000 answers were FENCED_LEADER_EPOCH. So leaders and coordinators are looked up for
each call here; only connections are kept.
"""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Final, TypeVar

from confluent_kafka import KafkaError as LibraryError

from pixy.errors import KafkaError
from pixy.kafka.errors import error_of, translate
from pixy.kafka.settings import Settings
from pixy.kafka.threads import at_once
from pixy.kafka.topics import Topics
from pixy.wire.blocking import run
from pixy.wire.connection import (
    AuthenticationError,
    Broker,
    Connection,
    Options,
    RequestTimedOutError,
    Sasl,
    Settings as WireSettings,
    TransportError,
    connect,
    parse_address,
)
from pixy.wire.errors import KafkaError as WireKafkaError
from pixy.wire.exceptions import WireError

T = TypeVar("T")

LIMIT: Final = 5.0
"""Seconds for a connection, and for each request: shorter than an election takes to be given up. Longer is only
worthwhile where no other broker can answer."""
_REQUEST_TIMEOUT: Final = 10.0
_KEPT: Final = 30.0
"""Seconds that an idle connection is used again; what lies between may forget it after minutes, and tell nobody."""
_MAX_IDLE: Final = 240.0
"""Seconds after which an idle connection is closed; a broker closes it after ten minutes."""
_PORT: Final = 9092
_NOBODY: Final = frozenset({LibraryError._TIMED_OUT, LibraryError._AUTHENTICATION})


class Brokers:
    """Asks brokers. Any thread may call.

    Args:
        settings: a client's settings in librdkafka's terms; see :mod:`pixy.kafka.settings`.
        limit: the longest time for a connection, and for each request, in seconds.
        patience: seconds in which further brokers are asked after one that did not answer.
        keep: connections to each broker that stay open for the next call; :meth:`close` closes them.
    """

    def __init__(
        self, settings: Settings, limit: float = LIMIT, patience: float = 0.0, keep: int = 0
    ) -> None:
        self._settings = settings
        self._limit, self._patience, self._keep = limit, patience, keep
        self._idle: dict[str, list[Connection]] = {}
        """By address, that used last at the end."""
        self._found: tuple[Broker, ...] = ()
        """Those of the last metadata: all bootstrap brokers may be gone."""
        self._last: Broker | None = None
        """The one that answered last; the next call does not try the dead ones first."""

    def close(self) -> None:
        """Close the connections that were kept, and keep none from now on."""
        self._keep = 0
        self._close(set(self._idle))

    def _close(self, addresses: Iterable[str]) -> None:
        for address in addresses:
            for connection in self._idle.pop(address, ()):
                connection.close()

    @cached_property
    def _wire(self) -> WireSettings:
        options = wire_options(self._settings, self._limit)
        options["conn_max_idle"] = _KEPT
        return WireSettings(bootstrap(self._settings), **options)

    def ask(self, broker: Broker, ask: Callable[[Connection], T], limit: float | None = None) -> T:
        """Ask a broker, once more if it has closed a connection that was kept.

        Args:
            broker: which.
            ask: makes the requests, which must change nothing.
            limit: a shorter one, in seconds.

        Raises:
            KafkaError: the broker did not answer, or ``ask`` has raised it.
        """
        with translated():
            while True:
                connection, kept = self._connection(broker, limit)
                try:
                    return ask(connection)
                except TransportError as error:
                    if not kept or isinstance(error, RequestTimedOutError):
                        raise
                finally:
                    self._put_back(connection)

    def change(self, broker: Broker, ask: Callable[[Connection], T]) -> T:
        """Ask a broker for a change, over a new connection, and never twice.

        Args:
            broker: which.
            ask: makes the request.

        Raises:
            KafkaError: the broker did not answer, so the change may have been made; or ``ask`` has raised it.
        """
        with translated():
            connection = run(connect(self._wire, broker))
            try:
                return ask(connection)
            finally:
                self._put_back(connection)

    def _connection(self, broker: Broker, limit: float | None) -> tuple[Connection, bool]:
        wire = self._wire
        if limit is not None:
            dial, request = min(limit, wire.dial_timeout), min(limit, wire.request_timeout)
            wire = replace(wire, dial_timeout=dial, request_timeout=request)
        idle = self._idle.get(str(broker), [])
        while True:
            try:
                kept = idle.pop()
            except IndexError:
                return run(connect(wire, broker)), False
            if not kept.expired():
                kept.settings = wire
                return kept, True
            kept.close()

    def _put_back(self, connection: Connection) -> None:
        idle = self._idle.setdefault(str(connection.broker), [])
        if not connection.closed and len(idle) < self._keep:
            idle.append(connection)
        else:
            connection.close()

    def ask_any(self, ask: Callable[[Connection], T]) -> T:
        """Ask brokers in turn until one answers.

        Args:
            ask: makes the requests.

        Raises:
            KafkaError: the one that answered refused; or none answered, then it is the last one's error.
        """
        deadline = time.monotonic() + self._patience
        waiting = self._in_turn()
        while True:
            broker = waiting.pop(0)
            try:
                answer = self.ask(broker, ask, LIMIT if waiting else None)
            except KafkaError as error:
                # An answer with an error is the cluster's; the others would say the same.
                if error.code > 0 or not waiting or time.monotonic() >= deadline:
                    raise
                self._last = None
            else:
                self._last = broker
                return answer

    def ask_each(
        self,
        asks: Mapping[Broker, Callable[[Connection], T]],
        done: Callable[[Broker, T | KafkaError], None],
    ) -> None:
        """Ask brokers at the same time, and return when all have answered or failed.

        Args:
            asks: make the requests of each; called in several threads.
            done: called with each broker's answer or error, in several threads.
        """

        def job(broker: Broker) -> None:
            outcome: T | KafkaError
            try:
                outcome = self.ask(broker, asks[broker])
            except KafkaError as error:
                outcome = error
            done(broker, outcome)

        at_once([partial(job, each) for each in asks])

    def topics(self, names: Iterable[str] | None = None) -> Topics:
        """Describe topics as some broker knows them; the request creates none.

        Args:
            names: their names; None for all topics.

        Raises:
            KafkaError: no broker answered.
        """
        wanted = None if names is None else [{"Name": each} for each in names]
        body = {"Topics": wanted, "AllowAutoTopicCreation": False}
        try:
            topics = Topics(self.ask_any(lambda connection: run(connection.call("Metadata", body))))
        except KafkaError as error:
            if error.code in _NOBODY:
                raise error_of(LibraryError._TRANSPORT) from error
            raise
        self._found = topics.brokers
        self._close(set(self._idle) - {str(each) for each in self._in_turn()})
        return topics

    def _in_turn(self) -> list[Broker]:
        last = [] if self._last is None else [self._last]
        seeds, found = [parse_address(each) for each in bootstrap(self._settings)], list(self._found)
        random.shuffle(seeds)
        random.shuffle(found)
        return list({str(each): each for each in (*last, *seeds, *found)}.values())


@contextmanager
def translated() -> Iterator[None]:
    """Raise the errors of the wire library as ours."""
    try:
        yield
    except WireKafkaError as error:
        raise error_of(error.code) from error
    except RequestTimedOutError as error:
        raise error_of(LibraryError._TIMED_OUT) from error
    except TransportError as error:
        raise error_of(LibraryError._TRANSPORT) from error
    except AuthenticationError as error:
        raise error_of(LibraryError._AUTHENTICATION) from error
    except (WireError, OSError) as error:
        raise translate(error) from error


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, its cause, the cause's cause, and so on."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def reason(error: BaseException) -> str:
    """Say why no broker answered, with the broker's address: the error's own text is the same whatever the reason."""
    return next((str(each) for each in causes(error) if isinstance(each, WireError)), str(error))


def bootstrap(settings: Settings) -> list[str]:
    """Return the bootstrap addresses, with librdkafka's default port where none is given."""
    peers = [peer.strip().rpartition("://")[2] for peer in settings["bootstrap.servers"].split(",")]
    return [peer if peer.rpartition(":")[2].isdigit() else f"{peer}:{_PORT}" for peer in peers if peer]


def wire_options(settings: Settings, limit: float = _REQUEST_TIMEOUT) -> Options:
    """Convert a client's settings to options of the wire library. Reads certificate files.

    Args:
        settings: in librdkafka's terms; see :mod:`pixy.kafka.settings`.
        limit: the longest time for a connection, and for each request, in seconds.
    """
    protocol = settings["security.protocol"]
    options = Options(
        client_id=settings["client.id"],
        dial_timeout=min(limit, settings["socket.connection.setup.timeout.ms"] / 1000),
        request_timeout=min(limit, settings["socket.timeout.ms"] / 1000),
        conn_max_idle=_MAX_IDLE,
    )
    if protocol.endswith("SSL"):
        options["tls"] = _tls(settings)
    if protocol.startswith("SASL"):
        options["sasl"] = Sasl(
            settings["sasl.mechanisms"], settings["sasl.username"], settings["sasl.password"]
        )
    return options


def _tls(settings: Settings) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=settings.get("ssl.ca.location"))
    if settings.get("enable.ssl.certificate.verification") is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate := settings.get("ssl.certificate.location"):
        context.load_cert_chain(certificate, settings.get("ssl.key.location"))
    return context


__all__ = ["LIMIT", "Brokers", "bootstrap", "causes", "reason", "translated", "wire_options"]
