"""The table on the terminal: groups with members and partitions, anomalies, the latest rebalances.

What a narrow terminal has no room for goes, whole columns in the order of :data:`_FIRST_TO_GO`; then a group's name gets a line of its own, above its
members. Names and partitions are broken into lines where they must, and never cut.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Console, Group as Lines, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pixy.escaping import escaped
from pixy.tap import rebalances

_COLOURS: Final = {
    "Stable": "green",
    "stable": "green",
    "PreparingRebalance": "yellow",
    "CompletingRebalance": "yellow",
    "Reconciling": "yellow",
    "joining": "yellow",
    "Empty": "dim",
    "disconnected": "red",
    "elsewhere": "dim",
}
_COUNTED: Final = (
    "undecodable",
    "unknown",
    "lost_sync",
    "tls",
    "not_observed",
    "lost_events",
    "rewrite_failed",
    "defects",
)


_COLUMNS: Final = (
    "GROUP",
    "STATE",
    "GEN",
    "ASSIGNOR",
    "MEMBER",
    "CLIENT",
    "SOFTWARE",
    "PARTITIONS",
    "LAG",
    "SEEN BY",
)
_FIRST_TO_GO: Final = ("SOFTWARE", "ASSIGNOR", "SEEN BY", "CLIENT")
_OF_MEMBERS: Final = ("MEMBER", "CLIENT", "SOFTWARE", "PARTITIONS", "SEEN BY")
_PARTITIONS: Final = 24
"""Characters that partitions get, if they need them, before other columns do."""
_MEMBER: Final = 24
"""Characters of a member's id."""
_GAP: Final = 2
_FEWEST_ROWS: Final = 3
_MOST_ANOMALIES: Final = 5
_MOST_CLIENTS: Final = 3
_STATUSES: Final = {
    "disconnected": "its connection is closed, its session not yet over",
    "elsewhere": "does not connect through this tap",
}
_TRIGGERS: Final = {
    rebalances.JOIN: "{} joined",
    rebalances.LEAVE: "{} left",
    rebalances.TIMEOUT: "{} sent no heartbeat in time",
    rebalances.SUBSCRIPTION: "{} changed its topics",
    rebalances.METADATA: "topics or partitions changed",
    rebalances.FOLLOW_UP: "second step of a cooperative rebalance",
    rebalances.REJOIN: "{} joined again",
    rebalances.UNSEEN: "its cause did not pass through the tap",
}

Row = dict[str, Text]


def render(
    snapshot: dict[str, Any], console: Console, listening: Sequence[str], notes: Sequence[str] = ()
) -> RenderableType:
    """Render a snapshot for a terminal's width and height.

    Args:
        snapshot: the ``table`` view.
        console: the terminal.
        listening: the addresses, for the first line.
        notes: what to know as long as there is no group.
    """
    title = f"kafka-pixy tap  {listening[0] if listening else ''}"
    more = f" and {len(listening) - 1} more" if len(listening) > 1 else ""
    above: list[RenderableType] = [
        Text(escaped(title + more), style="bold", overflow="fold"),
        Text(_counters(snapshot), style="dim", overflow="fold"),
    ]
    rows = [row for group in snapshot["groups"] for row in _group_rows(group)]
    hints = [Text(escaped(note), style="dim", overflow="fold") for note in notes] if not rows else []
    below: list[RenderableType] = [
        *hints,
        *_anomalies(snapshot),
        *_clients(snapshot),
        *_explanations(snapshot),
    ]
    if snapshot["timeline"]:
        below.append(_timeline(snapshot))
    room = console.height - 1 - _height(console, *above, *below)
    shown = max(_FEWEST_ROWS, room)
    while True:
        groups = _groups(rows, shown, console.width)
        over = _height(console, groups) - room
        if over <= 0 or shown <= _FEWEST_ROWS:
            return Lines(*above, groups, *below)
        shown = max(_FEWEST_ROWS, min(shown, len(rows)) - over)


def _height(console: Console, *parts: RenderableType) -> int:
    return sum(len(console.render_lines(part, pad=False)) for part in parts)


def _groups(rows: list[Row], limit: int, width: int) -> RenderableType:
    if not rows:
        return Text("no group yet: point a client at the tap", style="dim")
    shown = rows[:limit]
    columns = _fitting(shown, _COLUMNS, width)
    fits = _total(shown, columns) <= width
    parts: list[RenderableType] = [_table(shown, columns)] if fits else [*_blocks(shown, width)]
    if len(rows) > limit:
        parts.append(
            Text(f"... {len(rows) - limit} more rows: GET /groups shows all (--metrics)", style="dim")
        )
    return Lines(*parts)


def _blocks(rows: list[Row], width: int) -> Iterator[RenderableType]:
    """Show each group as a line, with its members below."""
    columns = _fitting(rows, _OF_MEMBERS, width - _GAP)
    widths = {name: _natural(rows, name) for name in columns if name != "PARTITIONS"}
    for _, found in itertools.groupby(rows, lambda row: row["ID"].plain):
        first, *more = found
        line = Text.assemble((first["ID"].plain, "bold"), "  ", first["STATE"])
        for text in (first["GEN"].plain and f"generation {first['GEN']}", first["ASSIGNOR"].plain):
            line.append(f"  {text}" if text else "")
        line.append(f"  lag {first['LAG']}" if first["LAG"].plain else "")
        line.overflow = "fold"
        yield line
        if first["MEMBER"].plain:
            yield Padding(_table([first, *more], columns, widths), (0, 0, 0, _GAP))


def _table(rows: Sequence[Row], columns: Sequence[str], widths: dict[str, int] | None = None) -> Table:
    """Make a table, without a heading if the widths are given."""
    table = Table(
        box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold", show_header=widths is None
    )
    for name in columns:
        table.add_column(
            name,
            justify="right" if name in ("GEN", "LAG") else "left",
            no_wrap=name != "PARTITIONS",
            overflow="fold",
            min_width=(widths or {}).get(name),
        )
    for row in rows:
        table.add_row(*(_cell(row, name) for name in columns))
    return table


def _fitting(rows: Sequence[Row], wanted: Sequence[str], width: int) -> list[str]:
    """Choose the columns for a width."""
    columns = list(wanted)
    for name in _FIRST_TO_GO:
        if _total(rows, columns) <= width:
            break
        if name in columns:
            columns.remove(name)
    return columns


def _total(rows: Sequence[Row], columns: Sequence[str]) -> int:
    """Return the width that columns need."""
    needed = _GAP * (len(columns) - 1)
    for name in columns:
        natural = _natural(rows, name)
        needed += min(natural, _PARTITIONS) if name == "PARTITIONS" else natural
    return needed


def _natural(rows: Sequence[Row], name: str) -> int:
    return max(cell_len(name), *(cell_len(_cell(row, name).plain) for row in rows))


def _group_rows(group: dict[str, Any]) -> Iterator[Row]:
    """Make a group's rows. What concerns the group stands in the first one."""
    lag = "" if group["lag"] is None else f"{group['lag']:,}"
    name = _text(group["group"])
    head = {
        "GROUP": name,
        "STATE": _coloured(group["state"]),
        "GEN": Text(str(max(group["generation"], 0) or "")),
        "ASSIGNOR": _text(group["protocol_name"] or ("KIP-848" if group["kind"] == "consumer" else "")),
        "LAG": Text(lag),
    }
    empty = {**dict.fromkeys((*_COLUMNS, "STATUS"), Text("")), "ID": name}
    if not group["members"]:
        yield empty | head
    for member in group["members"]:
        yield (
            empty
            | head
            | {
                "MEMBER": _text(member["member"]),
                "STATUS": _coloured("" if member["status"] == "stable" else member["status"]),
                "CLIENT": _text(f"{member['client_id']} {member['host']}".strip()),
                "SOFTWARE": _text(member["software"]),
                "PARTITIONS": _text(partitions(member["partitions"])),
                "SEEN BY": _text(member["path"]),
            }
        )
        head = {}


def _cell(row: Row, name: str) -> Text:
    """Return what a row shows in a column. A member's status is shown unless it is as it should be."""
    if name != "MEMBER":
        return row[name]
    shown = Text(_short(row[name].plain))
    return Text.assemble(shown, " ", row["STATUS"]) if row["STATUS"].plain else shown


def _short(member: str) -> str:
    """Shorten an id in its middle."""
    half = (_MEMBER - 2) // 2
    return member if len(member) <= _MEMBER else f"{member[:half]}..{member[-half:]}"


def partitions(owned: dict[str, list[int]] | None) -> str:
    """Format partitions as ``orders 0-3, 7; payments 1``, and unknown ones as a question mark."""
    if owned is None:
        return "?"
    return "; ".join(f"{topic} {_ranges(numbers)}" for topic, numbers in owned.items()) or "none"


def _ranges(numbers: list[int]) -> str:
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def _text(text: str, style: str = "") -> Text:
    """Show a text of clients or brokers as it is: neither markup nor control characters."""
    return Text(escaped(text), style=style)


def _coloured(state: str) -> Text:
    return _text(state, _COLOURS.get(state, ""))


def _anomalies(snapshot: dict[str, Any]) -> list[Text]:
    found = [(group["group"], each) for group in snapshot["groups"] for each in group["anomalies"]]
    lines = [
        Text.assemble(("anomaly", "red"), escaped(f" {group}: {each['kind']}: {each['detail']}"))
        for group, each in found[:_MOST_ANOMALIES]
    ]
    if len(found) > _MOST_ANOMALIES:
        lines.append(Text(f"... {len(found) - _MOST_ANOMALIES} more anomalies", style="dim"))
    return lines


def _clients(snapshot: dict[str, Any]) -> list[Text]:
    return [
        Text.assemble(
            ("Kafka 4", "yellow"),
            " refuses requests of "
            + escaped(f"{each['software']} {each['version']}: {', '.join(each['breaks_on_kafka_4'])}"),
        )
        for each in snapshot["clients"]
        if each["breaks_on_kafka_4"]
    ][:_MOST_CLIENTS]


def _explanations(snapshot: dict[str, Any]) -> list[Text]:
    """Explain what the table shows and does not explain."""
    members = [member for group in snapshot["groups"] for member in group["members"]]
    found = []
    if any(member["partitions"] is None for member in members):
        found.append("?: joined before the tap began, or is no consumer; known after the next rebalance")
    statuses = {member["status"] for member in members}
    found += [f"{status}: {text}" for status, text in _STATUSES.items() if status in statuses]
    return [Text(text, style="dim") for text in found]


def _timeline(snapshot: dict[str, Any]) -> Table:
    """Show the latest rebalances, newest first."""
    table = Table.grid(padding=(0, _GAP, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for each in sorted(
        snapshot["timeline"], key=lambda each: (each["started"], each["number"]), reverse=True
    ):
        when = time.strftime("%H:%M:%S", time.localtime(each["started"]))
        table.add_row(
            Text(when, style="dim"), _text(f"rebalance of {each['group']}: {_why(each)}, {_took(each)}")
        )
    return table


def _took(rebalance: dict[str, Any]) -> str:
    before, after = rebalance["generation_before"], rebalance["generation"]
    generations = (
        f"generation {before} to {after}"
        if before >= 0 and after >= 0
        else f"generation {max(before, after)}"
    )
    if rebalance["finished"] is None:
        return f"{generations}, {rebalance['seconds']:.1f} s so far"
    return f"{generations}, {rebalance['seconds']:.3f} s"


def _why(rebalance: dict[str, Any]) -> str:
    who = rebalance["client_id"] or _short(rebalance["member"]) or "a member"
    reason = f" ({rebalance['reason']})" if rebalance["reason"] else ""
    kind = str(rebalance["trigger"])
    return _TRIGGERS.get(kind, kind).format(who) + reason


def _counters(snapshot: dict[str, Any]) -> str:
    counts = snapshot["counts"]
    shown = [
        f"{counts['open_connections']} connections",
        f"{counts.get('requests', 0):,} requests",
        f"{counts.get('bytes_to_broker', 0) / 1e6:,.1f} MB to brokers",
        f"{counts.get('bytes_to_client', 0) / 1e6:,.1f} MB to clients",
    ]
    shown += [f"{counts[name]:,} {name.replace('_', ' ')}" for name in _COUNTED if counts.get(name)]
    return ", ".join(shown)
