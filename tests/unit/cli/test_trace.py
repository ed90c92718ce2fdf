"""``kafka-pixy trace`` without a daemon: what it asks, what it prints, and what it says of a wrong command line."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from pixy.cli.admin_client import AdminClient, AdminError
from pixy.cli.shell.app import run

HOSTILE = "\x1b[31mred\u202e"

STORY = {
    "at": 1_700_000_100.0, "cluster": "default", "topic": "orders", "partition": 3, "offset": 812,
    "record": {
        "timestamp": 1_700_000_000.0, "key_size": 2, "value_size": None, "headers_count": 1, "traceparent": "00-ab-cd-01",
        "batch": {
            "base_offset": 810, "last_offset": 815, "records": 6, "size": 700, "codec": "zstd", "producer_id": 4,
            "producer_epoch": 0, "base_sequence": 10, "leader_epoch": 1, "transactional": True, "append_time": False,
        },
        "key": {"base64": "//8="}, "headers": [{"name": HOSTILE, "text": "x" * 5, "cut": "9000"}],
    },
    "events": [
        {"time": 1_700_000_000.0, "event": "produced", "source": "journal", "daemon": "d1", "group": "",
         "detail": {"client": "key:shop", "took": 0.0025, "answered": True}},
        {"time": 1_700_000_050.0, "event": "ack_refused", "source": "journal", "daemon": "d1", "group": "billing",
         "detail": {"reason": "duplicate"}},
    ],
    "groups": [
        {"group": "billing", "state": "held", "owner": "here", "committed": 800,
         "detail": {"position": 801, "client": HOSTILE, "attempts": 3, "last_offered": 1_700_000_090.0,
                    "first_offered": 1_700_000_000.0, "deadline": 1_700_000_200.0}},
        {"group": "audit", "state": "done", "owner": "", "committed": None, "detail": {}},
    ],
    "unknown": [{"what": "archive and replays", "why": "the daemon does not know the lake"}],
}  # fmt: skip


def found(*offsets: int) -> dict[str, Any]:
    return {
        "cluster": "default", "topic": "orders", "since": 1_700_000_000.0, "total": len(offsets),
        "matches": [{"partition": 3, "offset": each, "timestamp": None} for each in offsets],
        "searched": [{"partition": 3, "from": 5, "to": 9, "complete": False, "failed": ""}],
    }  # fmt: skip


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The queries; a search finds what the test puts into ``answers``."""
    queries: list[dict[str, str]] = []

    def get(_self: AdminClient, path: str, *_args: Any, **_options: Any) -> Any:
        query = dict(parse_qsl(urlsplit(path).query, keep_blank_values=True))
        queries.append(query)
        return (
            STORY if "offset" in query else found(*map(int, query["key"].split(",")) if query["key"] else ())
        )

    monkeypatch.setattr(AdminClient, "get", get)
    return queries


def test_a_story_is_tables_in_which_nothing_commands_a_terminal(asked: Any, capsys: Any) -> None:
    assert run(["trace", "orders/3/812", "--cluster", "default", "-g", "billing"]) == 0
    assert asked == [
        {"topic": "orders", "cluster": "default", "group": "billing", "partition": "3", "offset": "812"}
    ]
    out = capsys.readouterr().out
    for shown in (
        "orders/3/812", "base64 //8=", "value null", "xxxxx... (9000 bytes)", "offsets 810 to 815, 700 bytes, zstd",
        "id 4, epoch 0, sequence 12, in a transaction", "2023-11-14T22:13:20.000Z", "client key:shop, daemon d1",
        "took 2.5 ms, answered", "ack refused", "reason duplicate", "3 attempts, the last 10.0 s ago",
        "offered again in 1 min 40 s", "position 801", "the daemon does not know the lake",
    ):  # fmt: skip
        assert shown in out, shown
    assert "\x1b" not in out and "\u202e" not in out and "\\u001b[31mred" in out


def test_json_is_the_daemon_s_document(asked: Any, capsys: Any) -> None:
    assert run(["trace", "orders/3/812", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == STORY


def test_one_match_is_traced_and_of_several_one_must_be_chosen(asked: Any, capsys: Any) -> None:
    assert run(["trace", "orders", "--key", "812", "--since", "1700000000000"]) == 0
    assert asked[0] == {"topic": "orders", "key": "812", "since": "1700000000"}
    assert asked[1] == {"topic": "orders", "partition": "3", "offset": "812"}
    assert "only offsets 5 to 8 were searched" in capsys.readouterr().err
    assert run(["trace", "orders/3", "--key", "9,8"]) == 4
    output = capsys.readouterr()
    assert "orders/3/9" in output.out and "2 messages: name one, or give --newest" in output.err
    assert run(["trace", "orders", "--key", "9,8", "--newest"]) == 0 and asked[-1]["offset"] == "9"
    capsys.readouterr()
    assert run(["trace", "orders", "--key", ""]) == 4
    assert "no such message since 2023-11-14" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["orders/x/1"], "is not TOPIC/PARTITION/OFFSET"),
        (["orders"], "name an offset, or --key"),
        (["orders/1/2", "--key", "k"], "exclude each other"),
        (["orders", "--key", "k", "--since", "soon"], "--since soon"),
        (["orders/1/2", "--output", "xml"], "xml"),
    ],
)
def test_a_wrong_command_line_is_one_line(asked: Any, capsys: Any, arguments: list[str], said: str) -> None:
    assert run(["trace", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1 and not asked


def test_a_daemon_that_refuses_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def get(*_args: Any, **_options: Any) -> Any:
        raise AdminError("http://x refuses: 403 key:a may not console topic orders in cluster default")

    monkeypatch.setattr(AdminClient, "get", get)
    assert run(["trace", "orders/0/1"]) == 1
    assert "may not console topic orders" in capsys.readouterr().err


def test_a_batch_that_is_not_compressed_says_so(
    asked: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STORY["record"]["batch"], "codec", "none")
    assert run(["trace", "orders/3/812"]) == 0
    assert "offsets 810 to 815, 700 bytes, not compressed" in capsys.readouterr().out


class Other(BaseHTTPRequestHandler):
    """Not an admin listener: it has none of its paths."""

    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def test_another_listener_is_no_admin_listener(capsys: Any) -> None:
    """Such as that of REST: its 404 read as if the message were not there."""
    with HTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert run(["trace", "orders/0/1", "--admin", url]) == 1
        server.shutdown()
    out, error = capsys.readouterr()
    assert (out, error) == (
        "",
        f"kafka-pixy trace: {url} does not answer as an admin listener: it has no /trace; start the daemon with --adminAddr "
        "127.0.0.1:19093, or name its admin listener with --admin or KAFKA_PIXY_ADMIN\n",
    )
