"""Log to console, JSON and syslog, each with its own severity, from a separate thread."""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import logging.handlers
import queue
import re
import socket
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from typing import Any

from pixy.cli.repeats import Repeats
from pixy.cli.streams import stuck
from pixy.config.addresses import split_address
from pixy.config.model import SYSLOG, Logger
from pixy.errors import ConfigError, PixyError, reason_of
from pixy.escaping import escaped, json_text

QUEUE_BOUND = 10_000
"""The most log records that wait for the writer; more are dropped and counted."""

ON_STDERR = "on_stderr"
"""The attribute of a record (``extra={ON_STDERR: True}``) whose text the program prints to standard error, too."""

_current: list[logging.Handler] = []
"""The handlers of the context that :func:`configured` has entered."""
_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_PLAIN = re.compile(r"[A-Za-z0-9.-]+\Z")
_ACTOR = re.compile(r"(/[^\s:]+)(?:: | )(.*)", re.S)


_worker = 0
"""The number of this process among the daemon's workers; 0: it is none."""


def name_worker(number: int) -> None:
    """Let each line of this process name its worker."""
    global _worker
    _worker = number


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = getattr(record, "fields", {})
    return {**found, "worker": _worker} if _worker else found


def _split(record: logging.LogRecord) -> tuple[str, str]:
    """Split a message into the actor that it begins with (else the logger's name) and the rest."""
    text = record.getMessage()
    if isinstance(record.args, tuple) and record.args and str(record.msg).startswith("%s"):
        path = str(record.args[0])  # the name of a group, at its end, may have blanks and colons
        for gap in (": ", " "):
            if path.startswith("/") and text.startswith(path + gap):
                return path, text[len(path + gap) :]
    match = _ACTOR.match(text)
    return (match[1], match[2]) if match else (record.name, text)


class ConsoleFormatter(logging.Formatter):
    """``2022-07-27 10:00:00.000000 Z info </service/default> "some text" k=v``"""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line; a traceback, or the record's ``block``, follows on further lines."""
        moment = time.localtime(record.created)
        zone = "Z" if moment.tm_gmtoff == 0 else f"{moment.tm_gmtoff // 3600:+03d}"
        micros = int(record.created % 1 * 1e6)
        actor, text = _split(record)
        fields = "".join(f" {key}={_field(value)}" for key, value in sorted(_fields_of(record).items()))
        line = (
            f"{time.strftime('%Y-%m-%d %H:%M:%S', moment)}.{micros:06d} {zone} "
            f"{record.levelname.lower()} <{actor}> {json.dumps(text, ensure_ascii=False)}{fields}"
        )
        line = escaped(line)
        if block := getattr(record, "block", ""):
            line = f"{line}\n{textwrap.indent(escaped(block, keep=chr(10)), '  ')}"
        if not record.exc_info:
            return line
        # An exception's text may contain what looks like a line of this log: its lines are indented.
        trace = escaped(self.formatException(record.exc_info), keep="\n\t")
        return f"{line}\n{textwrap.indent(trace, '  ')}"


def _field(value: Any) -> str:
    text = str(value)
    return text if _PLAIN.match(text) else json.dumps(text, ensure_ascii=False)


class JsonFormatter(logging.Formatter):
    """Format records as JSON, one document a line, with the original's field names.

    Args:
        encoding: of the stream; None is UTF-8.
    """

    def __init__(self, encoding: str | None = None) -> None:
        super().__init__()
        self._encoding = encoding

    def format(self, record: logging.LogRecord) -> str:
        """Format a record."""
        actor, text = _split(record)
        document: dict[str, Any] = {
            "context": _nested(_fields_of(record)),
            "category": actor,
            "appname": "kafka-pixy",
            "hostname": socket.gethostname(),
            "logLevel": record.levelname,
            "filename": record.filename,
            "funcName": record.funcName,
            "lineno": record.lineno,
            "message": text,
            "timestamp": record.created,
            "pid": record.process,
            "tid": record.thread,
        }
        if block := getattr(record, "block", ""):
            document["block"] = block
        if record.exc_info and record.exc_info[0] is not None:
            document["excType"] = record.exc_info[0].__name__
            document["excValue"] = str(record.exc_info[1])
            document["excText"] = self.formatException(record.exc_info)
        return json_text(document, self._encoding, default=str)


class SyslogFormatter(logging.Formatter):
    """Format records as one line, a traceback included."""

    def __init__(self) -> None:
        super().__init__("kafka-pixy[%(process)d]: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Format a record."""
        return escaped(super().format(record))


def _nested(fields: dict[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in fields.items():
        *parents, last = name.split(".")
        place = nested
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return nested


class _BoundedQueueHandler(logging.handlers.QueueHandler):
    """Queue records without waiting: a slow terminal must not stop the event loop."""

    dropped = 0

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            self.dropped += 1

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record  # formatted by the writer's thread; nothing leaves the process


class _Stdout(logging.StreamHandler[Any]):
    """Writes to standard output. Records that it does not take are counted, not answered with a traceback each."""

    lost = 0
    error: BaseException | None = None

    def handleError(self, record: logging.LogRecord) -> None:
        """Count a record that was not written; what is no error of output is a mistake of ours."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            self.lost, self.error = self.lost + 1, error
        else:
            super().handleError(record)


class _Syslog(logging.handlers.SysLogHandler):
    """Sends a record's ``block`` line by line: a datagram is short."""

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        for line in getattr(record, "block", "").splitlines():
            part = copy.copy(record)
            part.msg, part.args = "%s", (line,)
            super().emit(part)


def _is_no_answer(record: logging.LogRecord) -> bool:
    """Return whether a record of the actor runtime is more than an error that answers a request, which its caller gets."""
    error = record.exc_info[1] if record.exc_info else None
    return not (record.levelno <= logging.INFO and isinstance(error, PixyError))


def _is_not_on_stderr(record: logging.LogRecord) -> bool:
    """Return whether a record is not printed to standard error as well: on a terminal a person would read it twice."""
    return not getattr(record, ON_STDERR, False)


def make_handlers(loggers: Sequence[Logger]) -> list[logging.Handler]:
    """Make the handlers of the configured loggers. Unknown names are ignored, as in the original. Raises ConfigError."""
    handlers: list[logging.Handler] = []
    names = {logger.name for logger in loggers}
    for logger in loggers:
        handler: logging.Handler
        if logger.name == "json" or (logger.name == "console" and "json" not in names):
            handler = _Stdout(sys.stdout)
            if logger.name == "json":
                handler.setFormatter(JsonFormatter(sys.stdout.encoding))
            else:
                handler.setFormatter(ConsoleFormatter())
                if sys.stdout.isatty() and sys.stderr.isatty():
                    handler.addFilter(_is_not_on_stderr)
        elif logger.name == "syslog":
            handler = _syslog(logger.params.get("addr", SYSLOG))
            handler.setFormatter(SyslogFormatter())
        else:
            continue
        handler.setLevel(_LEVELS[logger.severity])
        handler.name = logger.name
        handlers.append(handler)
    return handlers


def _syslog(address: str) -> _Syslog:
    """Make the handler of a syslog server. Raises ConfigError."""
    host, port = split_address(address)
    try:
        return _Syslog(address=(host or "", port))
    except OSError as error:
        raise ConfigError(
            f"logging addr {address} of syslog: {reason_of(error)}: name the host and the port of a syslog server"
        ) from None


def set_severities(loggers: Sequence[Logger]) -> None:
    """Change the severities of the loggers that :func:`configured` has set up."""
    severities = {logger.name: _LEVELS[logger.severity] for logger in loggers}
    for handler in _current:
        handler.setLevel(severities.get(handler.name or "", handler.level))
    if _current:
        logging.getLogger().setLevel(min(handler.level for handler in _current))


@contextlib.contextmanager
def configured(loggers: Sequence[Logger]) -> Iterator[None]:
    """Log as configured for as long as the context lasts."""
    handlers = make_handlers(loggers)
    root = logging.getLogger()
    before = root.handlers[:], root.level
    records: queue.Queue[logging.LogRecord] = queue.Queue(QUEUE_BOUND)
    front = _BoundedQueueHandler(records)
    writer = logging.handlers.QueueListener(records, *handlers, respect_handler_level=True)
    root.handlers[:] = [front]
    _current[:] = handlers
    root.setLevel(min((handler.level for handler in handlers), default=logging.CRITICAL + 1))
    library = logging.getLogger("pixy.kafka.librdkafka")
    repeats = Repeats()
    library.addFilter(repeats)
    actors = logging.getLogger("pykka")  # where the runtime logs what handlers raise
    actors.addFilter(_is_no_answer)
    writer.start()
    try:
        yield
    finally:
        library.removeFilter(repeats)
        actors.removeFilter(_is_no_answer)
        writer.stop()
        _current.clear()
        root.handlers[:], root.level = before[0], before[1]
        _say_lost(front, handlers)


def _say_lost(front: _BoundedQueueHandler, handlers: Sequence[logging.Handler]) -> None:
    """Say on standard error how many records were not written, and keep the exit code: the daemon's work is done."""
    lines = [f"kafka-pixy: {front.dropped} log records were dropped"] if front.dropped else []
    lines += [
        f"kafka-pixy: standard output: {getattr(each.error, 'strerror', '') or each.error}; "
        f"{each.lost} log records were not written"
        for each in handlers
        if isinstance(each, _Stdout) and each.lost
    ]
    with contextlib.suppress(OSError):
        sys.stderr.writelines(f"{line}\n" for line in lines)
    stuck()


__all__ = [
    "ConsoleFormatter",
    "JsonFormatter",
    "SyslogFormatter",
    "configured",
    "make_handlers",
    "set_severities",
]
