"""The table on the terminal: groups with members and partitions, anomalies, the latest rebalances."""

from __future__ import annotations

import time
from typing import Any, Final

from rich.console import Group as Lines, RenderableType
from rich.markup import escape as without_markup
from rich.table import Table
from rich.text import Text

from pixy.escaping import escaped

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


def escape(text: str) -> str:
    """Show a text of clients or brokers as it is: neither markup nor control characters."""
    return without_markup(escaped(text))


def render(snapshot: dict[str, Any], height: int, listening: str) -> RenderableType:
    """Render a snapshot.

    Args:
        snapshot: the ``table`` view.
        height: lines of the terminal.
        listening: the addresses, for the first line.
    """
    below = [_anomalies(snapshot), _clients(snapshot), _timeline(snapshot)]
    used = 4 + sum(len(each) for each in below)
    parts: list[RenderableType] = [
        Text(f"kafka-pixy tap  {listening}", style="bold", no_wrap=True, overflow="ellipsis"),
        Text(_counters(snapshot), style="dim", no_wrap=True, overflow="ellipsis"),
        _groups(snapshot, max(5, height - used)),
    ]
    for each in below:
        parts.extend(Text.from_markup(line, overflow="ellipsis") for line in each)
    for part in parts:
        if isinstance(part, Text):
            part.no_wrap = True
    return Lines(*parts)


def _groups(snapshot: dict[str, Any], limit: int) -> Table:
    table = Table(
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
        box=None,
        pad_edge=False,
        header_style="bold",
    )
    rows = [row for group in snapshot["groups"] for row in _group_rows(group)]
    for row in rows[:limit]:
        table.add_row(*row)
    if len(rows) > limit:
        table.add_row(f"[dim]... {len(rows) - limit} more rows: GET /groups shows all[/dim]")
    if not rows:
        table.add_row("[dim]no group yet: point a client at the tap[/dim]")
    return table


def _group_rows(group: dict[str, Any]) -> list[tuple[str, ...]]:
    lag = "" if group["lag"] is None else f"{group['lag']:,}"
    head = (
        escape(group["group"]),
        _coloured(group["state"]),
        str(max(group["generation"], 0) or ""),
        escape(group["protocol_name"] or ("KIP-848" if group["kind"] == "consumer" else "")),
    )
    if not group["members"]:
        return [(*head, "", "", "", "", lag, "")]
    rows: list[tuple[str, ...]] = []
    for member in group["members"]:
        rows.append(
            (
                *head,
                f"{escape(_short(member['member']))} {_coloured(member['status'])}",
                escape(f"{member['client_id']} {member['host']}".strip()),
                escape(member["software"]),
                escape(partitions(member["partitions"])),
                lag,
                escape(member["path"]),
            )
        )
        head, lag = ("", "", "", ""), ""
    return rows


def partitions(owned: dict[str, list[int]] | None) -> str:
    """Format partitions as ``orders 0-3,7; payments 1``, and unknown ones as a question mark."""
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
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def _short(member: str) -> str:
    return member if len(member) <= 24 else f"{member[:11]}..{member[-8:]}"


def _coloured(state: str) -> str:
    colour = _COLOURS.get(state)
    return f"[{colour}]{state}[/{colour}]" if colour else escape(state)


def _anomalies(snapshot: dict[str, Any]) -> list[str]:
    return [
        f"[red]anomaly[/red] {escape(group['group'])}: {escape(each['kind'])}: {escape(each['detail'])}"
        for group in snapshot["groups"]
        for each in group["anomalies"]
    ][:5]


def _clients(snapshot: dict[str, Any]) -> list[str]:
    return [
        f"[yellow]Kafka 4[/yellow] refuses requests of {escape(each['software'])} {escape(each['version'])}: "
        + escape(", ".join(each["breaks_on_kafka_4"]))
        for each in snapshot["clients"]
        if each["breaks_on_kafka_4"]
    ][:3]


def _timeline(snapshot: dict[str, Any]) -> list[str]:
    found = []
    for each in reversed(snapshot["timeline"]):
        when = time.strftime("%H:%M:%S", time.localtime(each["started"]))
        member = f" by {each['client_id'] or _short(each['member'])}" if each["member"] else ""
        reason = f" ({each['reason']})" if each["reason"] else ""
        took = (
            f"{each['seconds']:.3f} s" if each["finished"] is not None else f"{each['seconds']:.1f} s so far"
        )
        found.append(
            f"[dim]{when}[/dim] rebalance of {escape(each['group'])}: {escape(each['trigger'])}{escape(member)}"
            f"{escape(reason)}, generation {each['generation_before']} to {each['generation']}, {took}"
        )
    return found


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
