"""What stands above and below the table on the terminal: counters, anomalies, findings, explanations, the latest rebalances."""

from __future__ import annotations

import time
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from pixy.escaping import escaped
from pixy.tap import rebalances
from pixy.tap.table_rows import lag_text, plain, short_member, short_time

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

_MOST_FINDINGS: Final = 5
_MOST_ANOMALIES: Final = 5
_MOST_CLIENTS: Final = 3
_STATUSES: Final = {
    "disconnected": "its connection is closed, its session not yet over",
    "elsewhere": "does not connect through this tap",
}
_TRIGGERS: Final = {
    rebalances.JOIN: "{} joined",
    rebalances.LEAVE: "{} left",
    rebalances.HEARTBEAT_EXPIRED: "{} probably timed out",
    rebalances.SESSION_EXPIRED: "{} probably timed out",
    rebalances.SUBSCRIPTION: "{} changed its topics",
    rebalances.METADATA: "topics or partitions changed",
    rebalances.FOLLOW_UP: "second step of a cooperative rebalance",
    rebalances.REJOIN: "{} joined again",
    rebalances.UNSEEN: "its cause did not pass through the tap",
}

GAP: Final = 2


def anomalies(snapshot: dict[str, Any]) -> list[Text]:
    found = [(group["group"], each) for group in snapshot["groups"] for each in group["anomalies"]]
    lines = [
        Text.assemble(("anomaly", "red"), escaped(f" {group}: {each['kind']}: {each['detail']}"))
        for group, each in found[:_MOST_ANOMALIES]
    ]
    if len(found) > _MOST_ANOMALIES:
        lines.append(Text(f"... {len(found) - _MOST_ANOMALIES} more anomalies", style="dim"))
    return lines


def findings(snapshot: dict[str, Any]) -> list[Text]:
    """Show findings, apart from those that are anomalies, which the table shows already."""
    named = {each["kind"].replace(" ", "-") for group in snapshot["groups"] for each in group["anomalies"]}
    found = [each for each in snapshot.get("findings", ()) if each["rule"] not in named]
    lines = [
        Text.assemble(
            (each["severity"], "red" if each["severity"] == "error" else "yellow"),
            escaped(f" {short_time(each['age'])}: {each['cause']} {each['todo']}"),
        )
        for each in found[:_MOST_FINDINGS]
    ]
    if len(found) > _MOST_FINDINGS:
        lines.append(Text(f"... {len(found) - _MOST_FINDINGS} more findings: GET /findings", style="dim"))
    return lines


def clients(snapshot: dict[str, Any]) -> list[Text]:
    return [
        Text.assemble(
            ("Kafka 4", "yellow"),
            " refuses requests of "
            + escaped(f"{each['software']} {each['version']}: {', '.join(each['breaks_on_kafka_4'])}"),
        )
        for each in snapshot["clients"]
        if each["breaks_on_kafka_4"]
    ][:_MOST_CLIENTS]


def explanations(snapshot: dict[str, Any]) -> list[Text]:
    """Explain what the table shows and does not explain."""
    members = [member for group in snapshot["groups"] for member in group["members"]]
    found = []
    if any(member["partitions"] is None for member in members):
        found.append("?: joined before the tap began, or is no consumer; known after the next rebalance")
    if any(
        group["lag"] is not None and lag_text(group) != f"{group['lag']:,}" for group in snapshot["groups"]
    ):
        found.append(
            "lag (age): an end or a commit in it is that old, and later ones may have gone elsewhere; +?: of some partition it is not known"
        )
    statuses = {member["status"] for member in members}
    found += [f"{status}: {text}" for status, text in _STATUSES.items() if status in statuses]
    return [Text(text, style="dim") for text in found]


def timeline(snapshot: dict[str, Any]) -> Table:
    """Show the latest rebalances, newest first."""
    table = Table.grid(padding=(0, GAP, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for each in sorted(
        snapshot["timeline"], key=lambda each: (each["started"], each["number"]), reverse=True
    ):
        when = time.strftime("%H:%M:%S", time.localtime(each["started"]))
        table.add_row(
            Text(when, style="dim"), plain(f"rebalance of {each['group']}: {_why(each)}, {_took(each)}")
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
    who = rebalance["client_id"] or short_member(rebalance["member"]) or "a member"
    reason = f" ({rebalance['reason']})" if rebalance["reason"] else ""
    kind = str(rebalance["trigger"])
    return _TRIGGERS.get(kind, kind).format(who) + reason


def counters(snapshot: dict[str, Any]) -> str:
    counts = snapshot["counts"]
    shown = [
        f"{counts['open_connections']} connections",
        f"{counts.get('requests', 0):,} requests",
        f"{counts.get('bytes_to_broker', 0) / 1e6:,.1f} MB to brokers",
        f"{counts.get('bytes_to_client', 0) / 1e6:,.1f} MB to clients",
    ]
    shown += [f"{counts[name]:,} {name.replace('_', ' ')}" for name in _COUNTED if counts.get(name)]
    shown += [
        f"sampled {api} 1/{each['one_in']:,.1f}" if each["one_in"] else f"sampled {api}: none read"
        for api, each in counts.get("sampling", {}).items()
    ]
    return ", ".join(shown)


__all__ = ["GAP", "anomalies", "clients", "counters", "explanations", "findings", "timeline"]
