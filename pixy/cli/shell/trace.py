"""``kafka-pixy trace``: the life of one message, as the daemon's admin listener and, on request, the lake tell it."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import urlencode

import click

from pixy.cli.admin_client import ADMIN, DEFAULT, AdminClient, AdminError, Connection
from pixy.cli.shell.errors import EXIT_USAGE, ShellError
from pixy.cli.shell.framework import EXITS, Command, with_credentials, with_output
from pixy.cli.shell.output import Output, note, table
from pixy.cli.shell.times import duration, milliseconds, shown
from pixy.cli.shell.trace_lake import add_lake
from pixy.cli.shell.values import check_texts

EXIT_NOT_FOUND: Final = 4
"""No message has the key or header, or more than one: the table names them."""
_TARGET: Final = re.compile(r"([^/]+)(?:/(\d{1,10})(?:/(\d{1,19}))?)?\Z")
_TIMEOUT: Final = 60.0
"""Seconds: a search may take ``tracing.search_timeout``, and then groups are asked."""


@click.command(
    "trace",
    cls=Command,
    examples={
        "kafka-pixy trace orders/3/812": "topic, partition and offset",
        "kafka-pixy trace orders --key customer-7 --since 2h": "find it by its key",
        "kafka-pixy trace orders --header order-id=1234 --newest --json": "",
        "kafka-pixy trace orders/3/812 --lake /lake": "also where it was archived, and replayed to",
    },
    exits={
        **EXITS,
        EXIT_NOT_FOUND: "no message has the key or header, or several have and one must be chosen",
    },
    help="Tell the life of one message: written by whom and when, offered to whom, given back, retried, acknowledged, committed. "
    "The daemon needs an admin_addr. What is not known is said, with the reason. With auth the caller needs the verb `console` "
    "on the topic, and `consume` for keys and headers.",
)
@click.argument("message", metavar="TOPIC[/PARTITION[/OFFSET]]")
@click.option("--key", default=None, help="Find messages with this key.")
@click.option("--key-base64", default=None, metavar="TEXT", help="The same for a key of any bytes.")
@click.option("--header", default=None, metavar="NAME=VALUE", help="Find messages with this header.")
@click.option(
    "--since",
    default="",
    metavar="TIME",
    help="Where a search, or the journal, begins: 15m, 2h (ago), a date.",
)
@click.option("--newest", is_flag=True, help="If several messages are found, trace the newest one.")
@click.option("-g", "--group", default="", help="Only this group.")
@click.option(
    "--lake",
    default="",
    metavar="DIR",
    help="Look into a lake, too (a folder or URI): archived into which file, and when.",
)
@click.option(
    "--replays",
    default="",
    type=click.Path(),
    metavar="DIR",
    help="Folder with the state of replays: copied to which offset.  [default: ./replays with --lake]",
)
@click.option(
    "--cluster",
    envvar="KAFKA_PIXY_CLUSTER",
    default="",
    show_envvar=True,
    help="Of the daemon's configuration.  [default: the first one]",
)
@click.option(
    "--admin",
    envvar=ADMIN,
    default=DEFAULT,
    show_default=True,
    show_envvar=True,
    metavar="ADDR",
    help="Address or URL of the admin listener.",
)
@with_credentials
@with_output
def trace(
    message: str,
    output: str,
    as_json: bool,
    admin: str,
    newest: bool,
    lake: str,
    replays: str,
    **given: Any,
) -> int:
    """Trace a message; return the exit code."""
    check_texts(click.get_current_context())
    out = Output("json" if as_json else output)
    connection = Connection(
        **{name: given.pop(name) for name in ("tls", "ca", "cert", "cert_key", "token_file")}
    )
    try:
        client = AdminClient(admin or DEFAULT, connection)
        query = _query(message, given)
        if "offset" not in query:
            found = client.get(f"/trace?{urlencode(query)}", _TIMEOUT, has="matches")
            chosen = _choose(found, newest, out)
            if chosen is None:
                return EXIT_NOT_FOUND
            query = {name: query[name] for name in ("cluster", "topic", "group") if name in query}
            query |= {"partition": chosen["partition"], "offset": chosen["offset"]}
        story = client.get(f"/trace?{urlencode(query)}", _TIMEOUT, has="groups")
    except AdminError as error:
        raise ShellError(str(error), error.code) from None
    add_lake(story, lake, replays)
    if out.structured:
        out.document(story)
    else:
        show(story)
    return 0


def _query(message: str, given: dict[str, Any]) -> dict[str, Any]:
    match = _TARGET.match(message)
    if match is None:
        raise ShellError(f"{message!r} is not TOPIC/PARTITION/OFFSET, such as orders/3/812", EXIT_USAGE)
    topic, partition, offset = match.groups()
    sought = {name: given[name] for name in ("key", "key_base64", "header") if given[name] is not None}
    if (offset is None) == (not sought):
        problem = (
            "name an offset, or --key, --key-base64 or --header"
            if not sought
            else "an offset and a search exclude each other"
        )
        raise ShellError(
            f"{problem}: kafka-pixy trace {topic}/0/0, kafka-pixy trace {topic} --key K", EXIT_USAGE
        )
    query: dict[str, Any] = {"topic": topic, **sought}
    query |= {name: given[name] for name in ("cluster", "group") if given[name]}
    if partition is not None:
        query["partition"] = int(partition)
    if offset is not None:
        query["offset"] = int(offset)
    if given["since"]:
        query["since"] = milliseconds(given["since"], "--since") // 1000
    return query


def _choose(found: dict[str, Any], newest: bool, out: Output) -> dict[str, Any] | None:
    """Return the message to trace; None if there is none, or several: then they are shown."""
    matches = found["matches"]
    for each in found["searched"]:
        if each["failed"]:
            note(f"partition {each['partition']}: not searched: {each['failed']}")
        elif not each["complete"]:
            note(
                f"partition {each['partition']}: only offsets {each['from']} to {each['to'] - 1} were searched (tracing.search_*)"
            )
    if matches and (newest or found["total"] == 1):
        return dict(matches[0])
    if out.structured:
        out.document(found)
    elif matches:
        table(
            ("message", "timestamp"),
            [[_name(found["topic"], each), _date(each["timestamp"])] for each in matches],
        )
    if matches:
        note(f"{found['total']} messages: name one, or give --newest")
    else:
        note(f"no such message since {_date(found['since'])}: --since looks further back")
    return None


def _name(topic: str, each: dict[str, Any]) -> str:
    return f"{topic}/{each['partition']}/{each['offset']}"


def _date(at: float | None) -> str | None:
    return None if at is None else shown(round(at * 1000))


# -- for people -----------------------------------------------------------------------------------


def show(story: dict[str, Any]) -> None:
    """Print a story as tables: the record, what happened, the groups, and what is not known."""
    table(("message", _name(story["topic"], story)), _facts(story))
    if story["events"]:
        print()
        table(("when", "what", "group", "who", "more", "source"), [_event(each) for each in story["events"]])
    if story["groups"]:
        print()
        table(("group", "now", "committed", "more"), [_group(each, story["at"]) for each in story["groups"]])
    if story["unknown"]:
        print()
        table(("not known", "why"), [[each["what"], each["why"]] for each in story["unknown"]])


def _facts(story: dict[str, Any]) -> list[list[Any]]:
    rows: list[list[Any]] = [["cluster", story["cluster"]]]
    record = story["record"]
    if record is None:
        return rows
    if "key" in record:
        rows.append(["key", _bytes(record["key"])])
    rows.append(["size", f"key {_size(record['key_size'])}, value {_size(record['value_size'])}"])
    if record.get("traceparent"):
        rows.append(["trace", record["traceparent"]])
    rows += [["header", f"{each['name']}={_bytes(each)}"] for each in record.get("headers", ())]
    batch = record["batch"]
    if batch is not None:
        codec = "not compressed" if batch["codec"] == "none" else batch["codec"]
        text = f"offsets {batch['base_offset']} to {batch['last_offset']}, {batch['size']} bytes, {codec}"
        rows.append(["batch", text])
        if batch["producer_id"] >= 0:
            text = f"id {batch['producer_id']}, epoch {batch['producer_epoch']}, sequence {batch['base_sequence'] + story['offset'] - batch['base_offset']}"
            rows.append(["producer", text + (", in a transaction" if batch["transactional"] else "")])
    return rows


def _bytes(shown_bytes: dict[str, Any] | None) -> str | None:
    if shown_bytes is None:
        return None
    text = shown_bytes.get("text", shown_bytes.get("base64"))
    if "base64" in shown_bytes:
        text = f"base64 {text}"
    return f"{text}... ({shown_bytes['cut']} bytes)" if "cut" in shown_bytes else text


def _size(size: int | None) -> str:
    return "null" if size is None else f"{size} bytes"


def _event(each: dict[str, Any]) -> list[Any]:
    detail = dict(each["detail"])
    who = [
        f"client {detail.pop('client')}" if detail.get("client") else "",
        f"daemon {each['daemon']}" if each["daemon"] else "",
    ]
    return [
        _date(each["time"]),
        each["event"].replace("_", " "),
        each["group"] or None,
        ", ".join(filter(None, who)) or None,
        _details(detail),
        each["source"],
    ]


def _group(each: dict[str, Any], now: float) -> list[Any]:
    detail = dict(each["detail"])
    parts = ["owned here"] if each["owner"] else []
    if detail.get("client"):
        parts.append(f"client {detail['client']}")
    if detail.get("attempts"):
        parts.append(
            f"{detail['attempts']} attempt{'s' * (detail['attempts'] != 1)}, the last {duration(max(0.0, now - detail['last_offered']))} ago"
        )
    if detail.get("deadline"):
        parts.append(f"offered again in {duration(max(0.0, detail['deadline'] - now))}")
    if detail.get("position") is not None:
        parts.append(f"position {detail['position']}")
    return [each["group"], each["state"], each["committed"], ", ".join(parts) or None]


def _details(detail: dict[str, Any]) -> str | None:
    parts = []
    for name, value in detail.items():
        if value is None or value == "":
            continue
        if name == "took":
            parts.append(f"took {value * 1000:.1f} ms" if value < 1 else f"took {duration(value)}")
        elif isinstance(value, bool):
            parts.append(name if value else f"not {name}")
        else:
            parts.append(f"{name.replace('_', ' ')} {value}")
    return ", ".join(parts) or None


__all__ = ["show", "trace"]
