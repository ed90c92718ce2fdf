"""The rows of the table on the terminal: what each cell shows of a group and its members."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

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
COLUMNS: Final = (
    "GROUP",
    "STATE",
    "GEN",
    "ASSIGNOR",
    "MEMBER",
    "CLIENT",
    "SOFTWARE",
    "PARTITIONS",
    "RECORDS",
    "LAG",
    "SEEN BY",
)
"""The table's columns, from left to right."""
_MEMBER: Final = 24
"""Characters of a member's id."""
_OLD: Final = 30
"""Seconds from which on the age of a lag is shown."""

Row = dict[str, Text]
"""What a row shows, by column; also ID, the group's name, in each of the group's rows, and STATUS, the member's."""


def group_rows(group: dict[str, Any]) -> Iterator[Row]:
    """Make a group's rows. What concerns the group stands in the first one."""
    lag = lag_text(group)
    name = plain(group["group"])
    head = {
        "GROUP": name,
        "STATE": _coloured(group["state"]),
        "GEN": Text(str(max(group["generation"], 0) or "")),
        "ASSIGNOR": plain(_assignor(group)),
        "LAG": Text(lag),
    }
    empty = {**dict.fromkeys((*COLUMNS, "STATUS"), Text("")), "ID": name}
    if not group["members"]:
        yield empty | head
    for member in group["members"]:
        yield (
            empty
            | head
            | {
                "MEMBER": plain(member["member"]),
                "STATUS": _coloured("" if member["status"] == "stable" else member["status"]),
                "CLIENT": plain(f"{member['client_id']} {member['host']}".strip()),
                "SOFTWARE": plain(member["software"]),
                "PARTITIONS": plain(partitions(member["partitions"])),
                "RECORDS": plain(_records(member)),
                "SEEN BY": plain(member["path"]),
            }
        )
        head = {}


def lag_text(group: dict[str, Any]) -> str:
    """Show the lag, how old it is unless that is short, and that some partition's is not known."""
    if group["lag"] is None:
        return ""
    more = "+?" if group["lag_unknown"] or group["lag_uncertain"] else ""
    age = group["lag_age"] or 0
    return f"{group['lag']:,}{more}" + (f" ({short_time(age)})" if age >= _OLD else "")


def _records(member: dict[str, Any]) -> str:
    """Show the records that a member of a share group has taken and acknowledged."""
    if "acquired" not in member:
        return ""
    done = [f"{count:,} {name}" for name, count in member["acknowledged"].items()]
    return ", ".join([f"{member['acquired']:,} taken", *done])


def short_time(seconds: float) -> str:
    """Show a time in its greatest unit, such as ``45s``, ``3m`` or ``2h``."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def _assignor(group: dict[str, Any]) -> str:
    """Show the assignor of a consumer group, and of others their type."""
    if group["protocol_name"] and group.get("type", "unknown") in {"consumer", "unknown"}:
        return str(group["protocol_name"])
    if group["type"] == "consumer":
        return "KIP-848" if group["kind"] == "consumer" else ""
    return "" if group["type"] in {"offsets", "unknown"} else str(group["type"])


def cell(row: Row, name: str) -> Text:
    """Return what a row shows in a column. A member's status is shown unless it is as it should be."""
    if name != "MEMBER":
        return row[name]
    shown = Text(short_member(row[name].plain))
    return Text.assemble(shown, " ", row["STATUS"]) if row["STATUS"].plain else shown


def short_member(member: str) -> str:
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


def plain(text: str, style: str = "") -> Text:
    """Show a text of clients or brokers as it is: neither markup nor control characters."""
    return Text(escaped(text), style=style)


def _coloured(state: str) -> Text:
    return plain(state, _COLOURS.get(state, ""))


__all__ = [
    "COLUMNS",
    "Row",
    "cell",
    "group_rows",
    "lag_text",
    "partitions",
    "plain",
    "short_member",
    "short_time",
]
