"""The newest messages of a topic, for the console."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pixy.api.admin import tail
from pixy.auth.keys import make_key
from pixy.auth.rules import Rules
from pixy.config.security import Rule
from tests.unit.api.test_admin import Admin, serving


async def produce(admin: Admin, *values: str) -> None:
    for value in values:
        await admin.engine.cluster().produce("t", value.encode(), b"k")


def values(answer: dict[str, Any]) -> list[str]:
    return [row["value"]["text"] for row in answer["rows"]]


async def test_it_tells_the_last_messages_and_then_what_comes_and_counts_what_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tail, "MOST", 2)
    async with serving() as admin:
        await produce(admin, "a", "b", "c")
        first = await admin.get("/tail?topic=t")
        assert values(first) == ["b", "c"]
        assert first["rows"][0]["key"] == {"text": "k"} and first["rows"][0]["value_size"] == 1
        same = await admin.get(f"/tail?topic=t&after={first['after']}")
        assert (same["rows"], same["skipped"], same["after"]) == ([], 0, first["after"])
        await produce(admin, "d", "e", "f")
        later = await admin.get(f"/tail?topic=t&after={first['after']}")
        assert (values(later), later["skipped"]) == (["e", "f"], 1)
        one = await admin.get(f"/tail?topic=t&partition={later['rows'][0]['partition']}")
        assert (values(one), one["partitions"]) == (["e", "f"], 1)
        for wrong in (
            "",
            "?topic=t&after=x",
            "?topic=t&after=" + "1:1," * 9999 + "1:1",
            "?topic=t&partition=99",
        ):
            assert (await admin.call(f"/tail{wrong}"))[0] == 400, wrong


async def test_it_needs_consume_on_the_topic_and_nothing_else(tmp_path: Path) -> None:
    key, stored = make_key("dev")
    (tmp_path / "keys").write_text(stored.line())
    async with serving(tmp_path / "keys") as admin:
        guard = admin.engine.guard
        assert guard is not None
        guard.rules = Rules([Rule(["key:dev"], ["consume"], topics=["t"])], {})
        assert (await admin.call("/tail?topic=t"))[0] == 401
        assert (await admin.call("/tail?topic=other", X_API_Key=key))[0] == 403
        status, text = await admin.call("/tail?topic=t", X_API_Key=key)
        assert status in (200, 404) and "Forbidden" not in text, text
        guard.rules = Rules([Rule(["key:dev"], ["console", "describe"], topics=["*"], groups=["*"])], {})
        status, text = await admin.call("/tail?topic=t", X_API_Key=key)
        assert status == 403 and "consume" in json.loads(text)["error"]


async def test_a_topic_or_partition_that_is_not_there_is_named() -> None:
    async with serving() as admin:
        await produce(admin, "a")
        for path, what in (
            ("/tail?topic=odrers", "topic odrers"),
            ("/trace?topic=odrers&key=a", "topic odrers"),
            ("/trace?topic=odrers&partition=0&offset=0", "partition odrers/0"),
            ("/trace?topic=t&partition=99&offset=0", "partition t/99"),
        ):
            status, text = await admin.call(path)
            found = (status, json.loads(text))
            assert found == (404, {"error": f"there is no {what} in cluster main"}), path
