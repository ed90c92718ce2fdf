"""The table on terminals of 80, 120 and 160 columns: nothing of a group's name is cut, nothing is wider or higher than the screen."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from pixy.tap import printer
from pixy.tap.printer import Show, TablePrinter
from pixy.tap.table import render

LISTENING = ["127.0.0.1:19093 -> kafka-1.example.com:9092", "127.0.0.1:19094 -> kafka-2.example.com:9092"]
LONG = "billing-service-production-eu-west"


def member(
    number: int, client: str, partitions: Any, status: str = "stable", path: str = "learnt"
) -> dict[str, Any]:
    return {
        "member": f"{client}-{number:08x}-91bd-3f60-a2c4-0c8f3a77{number:04x}",
        "client_id": client,
        "host": f"10.0.0.{number}:5103{number}",
        "software": "librdkafka 2.16.0",
        "status": status,
        "partitions": partitions,
        "path": path,
    }


def group(name: str, *members: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "group": name,
        "state": "Stable",
        "generation": 7,
        "protocol_name": "range",
        "kind": "classic",
        "type": "consumer",
        "lag": 12345,
        "lag_age": 0.5,
        "lag_unknown": 0,
        "lag_uncertain": [],
        "members": list(members),
        "anomalies": [],
    } | more


def rebalance(number: int, name: str, started: float, **more: Any) -> dict[str, Any]:
    return {
        "number": number,
        "group": name,
        "started": started,
        "finished": started + 0.148,
        "seconds": 0.148,
        "generation_before": 6,
        "generation": 7,
        "trigger": "new member",
        "member": "app-2-91bd3f60",
        "client_id": "app-2",
        "reason": None,
    } | more


def snapshot(*groups: dict[str, Any], **more: Any) -> dict[str, Any]:
    counts = {"open_connections": 4, "requests": 1204, "bytes_to_broker": 3e5, "bytes_to_client": 8.12e7}
    return {"counts": counts, "groups": list(groups), "clients": [], "timeline": []} | more


def shown(found: dict[str, Any], width: int, height: int = 40) -> str:
    console = Console(width=width, height=height, file=io.StringIO(), color_system=None)
    console.print(render(found, console, LISTENING))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= width
    return str(text)


MANY = list(range(0, 60, 2))
BUSY = snapshot(
    group(
        f"{LONG}-1",
        member(1, "app-1", {"orders": [0, 1, 2]}),
        member(2, "app-2", {"orders": [3], "paid": [0, 7]}),
    ),
    group(f"{LONG}-2", member(3, "worker", {"clicks": MANY}), lag=None, generation=12),
    timeline=[rebalance(1, f"{LONG}-2", 1e9)],
)


@pytest.mark.parametrize("width", [80, 120, 160])
def test_no_width_loses_a_group_a_member_or_a_partition(width: int) -> None:
    text = shown(BUSY, width)
    for name in (f"{LONG}-1", f"{LONG}-2"):
        assert re.search(rf"^{name}(?![-\w])", text, re.M), text
    for each in (
        "app-1-00000..c8f3a770001",
        "app-2-00000..c8f3a770002",
        "worker-0000..c8f3a770003",
        "12,345",
    ):
        assert each in text, (each, text)
    words = " ".join(text.split())
    assert "orders 3; paid 0, 7" in words
    assert {str(number) for number in MANY} <= set(re.findall(r"\d+", text.partition("clicks ")[2]))
    assert "…" not in text and "..." not in text, text


def test_software_assignor_and_source_go_first_and_whole() -> None:
    found = snapshot(
        group("bill", member(1, "app-1", {"orders": [0, 1, 2]}), member(2, "app-2", {"orders": [3]}))
    )
    columns = {width: shown(found, width).splitlines()[2].split() for width in (124, 123, 104, 94, 80)}
    everything = [
        "GROUP",
        "STATE",
        "GEN",
        "ASSIGNOR",
        "MEMBER",
        "CLIENT",
        "SOFTWARE",
        "PARTITIONS",
        "LAG",
        "SEEN",
        "BY",
    ]
    assert columns[124] == everything
    assert columns[123] == [name for name in everything if name != "SOFTWARE"]
    assert columns[104] == [name for name in everything if name not in ("SOFTWARE", "ASSIGNOR")]
    assert columns[94] == ["GROUP", "STATE", "GEN", "MEMBER", "CLIENT", "PARTITIONS", "LAG"]
    assert columns[80] == ["GROUP", "STATE", "GEN", "MEMBER", "PARTITIONS", "LAG"]
    for width in columns:
        head, *rows = shown(found, width).splitlines()[2:]
        at = head.index("PARTITIONS")
        assert [row[at:].split("  ")[0].strip() for row in rows] == ["orders 0-2", "orders 3"], width


def test_rebalances_are_sorted_by_time_and_explained() -> None:
    found = snapshot(
        timeline=[
            rebalance(2, "b", 2e9, trigger="session expired", reason="poll timeout"),
            rebalance(3, "c", 3e9, finished=None, seconds=5.25, generation=-1, trigger="unknown"),
            rebalance(1, "a", 1e9, generation_before=-1, generation=1),
        ]
    )
    lines = [
        line.partition("  ")[2].strip() for line in shown(found, 120).splitlines() if "rebalance of" in line
    ]
    assert lines == [
        "rebalance of c: its cause did not pass through the tap, generation 6, 5.2 s so far",
        "rebalance of b: app-2 probably timed out (poll timeout), generation 6 to 7, 0.148 s",
        "rebalance of a: app-2 joined, generation 1, 0.148 s",
    ]


def test_what_the_table_leaves_open_is_explained() -> None:
    calm = shown(snapshot(group("g", member(1, "a", {}))), 120)
    assert "joined before" not in calm and "elsewhere" not in calm and " stable" not in calm
    text = shown(
        snapshot(
            group(
                "g", member(1, "a", None), member(2, "b", {}, "elsewhere"), member(3, "c", {}, "disconnected")
            )
        ),
        120,
    )
    assert "?: joined before the tap began" in text
    assert "elsewhere: does not connect through this tap" in text
    assert "disconnected: its connection is closed" in text


def test_what_was_said_at_the_start_is_shown_until_there_is_a_group() -> None:
    """The alternate screen hides it."""
    note = "note: without --rewrite, clients connect to the addresses that the brokers advertise"
    for groups, wanted in (((), True), ((group("g", member(1, "a", {})),), False)):
        console = Console(width=80, height=24, file=io.StringIO(), color_system=None)
        console.print(render(snapshot(*groups), console, LISTENING, [note]))
        text = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
        assert (note in text) is wanted and ("no group yet" in text) is wanted


def test_anomalies_are_whole_and_bounded() -> None:
    anomalies = [
        {"kind": "without owner", "detail": f"{'clicks 1, ' * 12}end{number}"} for number in range(8)
    ]
    text = shown(snapshot(group("g", anomalies=anomalies)), 80)
    assert all(f"end{number}" in text for number in range(5)) and "... 3 more anomalies" in text


@pytest.mark.parametrize("width", [80, 160])
def test_it_is_never_higher_than_the_screen(width: int) -> None:
    groups = [
        group(f"{LONG}-{number}", *(member(at, "app", {"t": MANY}) for at in range(3)))
        for number in range(40)
    ]
    text = shown(snapshot(*groups, timeline=[rebalance(1, "a", 1e9)]), width, 30)
    assert len(text.splitlines()) < 30
    assert "more rows: GET /groups shows all" in text and "rebalance of a" in text


def test_a_terminal_gets_its_screen_back_and_the_last_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(terminal: bool) -> str:
        file = io.StringIO()
        console = Console(file=file, force_terminal=terminal, width=100, height=30, color_system=None)
        monkeypatch.setattr(printer, "Console", lambda **_: console)
        table = TablePrinter(LISTENING)
        for name in ("early", "late"):
            table._show(Show(snapshot(group(name, member(1, "a", {})))))
        table.on_stop()
        return file.getvalue()

    enter, leave = "\x1b[?1049h", "\x1b[?1049l"
    live, _, after = run(True).partition(leave)
    assert live.startswith(enter) and "early" in live and "Ctrl-C" not in after and "late" in live
    assert enter not in after and "late" in after and "early" not in after
    plain = run(False)
    assert "\x1b" not in plain and "late" in plain and "early" not in plain, "elsewhere only the last table"


@pytest.mark.parametrize("width", [80, 120, 160])
def test_an_old_or_incomplete_lag_says_so_at_each_width(width: int) -> None:
    found = snapshot(
        group("bill", member(1, "app-1", {"orders": [0]}), lag_age=200.0, lag_unknown=2),
        group("ship", member(2, "app-2", {"orders": [0]}), lag_uncertain=["written with acks=0"]),
    )
    text = " ".join(shown(found, width).split())
    assert "12,345+? (3m)" in text and "12,345+? " in text
    assert "lag (age): an end or a commit in it is that old" in text
    assert "lag (age)" not in shown(snapshot(group("bill", member(1, "app-1", {}))), width)


@pytest.mark.parametrize("width", [80, 120, 160])
def test_members_of_a_share_group_show_their_records_at_each_width(width: int) -> None:
    share = {"acquired": 1500, "redelivered": 20, "acknowledged": {"accepted": 1400, "released": 30}}
    found = snapshot(
        group("queue", member(1, "app-1", {"orders": [0]}) | share, kind="share", type="share", lag=None),
    )
    text = " ".join(shown(found, width).split())
    for part in ("1,500 taken", "1,400", "accepted", "30", "released", "orders 0"):
        assert part in text, (part, text)
    assert "RECORDS" not in shown(snapshot(group("bill", member(1, "app-1", {}))), width)


@pytest.mark.parametrize("width", [80, 120, 160])
def test_findings_stand_below_the_groups_at_each_width(width: int) -> None:
    finding = {
        "rule": "no-consumer",
        "severity": "error",
        "cause": "Records of orders wait for bill, which has no member.",
        "todo": "Start a consumer.",
        "age": 125.0,
        "where": {"group": "bill", "topic": "orders"},
    }
    text = shown(snapshot(group("bill", lag=5), findings=[finding] * 7), width)
    words = " ".join(text.split())
    assert "error 2m: Records of orders wait for bill, which has no member. Start a consumer." in words
    assert "... 2 more findings: GET /findings" in words
