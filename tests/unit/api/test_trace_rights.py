"""Who may hear the life of a message: decided topic by topic and group by group, at the engine's entrance."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pixy.auth.keys import make_key
from pixy.auth.principal import Caller, Principal, current
from pixy.auth.rules import Rules
from pixy.config.security import Rule
from pixy.engine.life.lives import Lives
from pixy.errors import TooManyRequests
from tests.unit.api.test_admin import Admin, serving

WHO = ["key:ops"]
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def rules(*found: Rule) -> Rules:
    return Rules(found, {})


@contextlib.asynccontextmanager
async def with_message(tmp_path: Path) -> AsyncIterator[tuple[Admin, str, int]]:
    """A daemon with ``auth`` that has a message ``orders/N/0``, consumed by the groups ``billing`` and ``secret``."""
    key, stored = make_key("ops")
    (tmp_path / "keys").write_text(stored.line())
    async with serving(tmp_path / "keys", "oldest") as admin:
        assert admin.engine.guard is not None
        token = current.set(Caller(Principal("key:ops"), "", ""))
        try:
            cluster = admin.engine.cluster()
            headers = [("name", b"value-1"), ("traceparent", TRACEPARENT.encode())]
            partition, _ = await cluster.produce("orders", b"v", b"key-1", headers)
            for group in ("billing", "secret"):
                (await cluster.consume("orders", group)).sent()
        finally:
            current.reset(token)
        yield admin, key, partition


async def test_rights_on_the_topic_are_enough_and_hide_groups_and_content(tmp_path: Path) -> None:
    async with with_message(tmp_path) as (admin, key, partition):
        assert admin.engine.guard is not None
        path = f"/trace?topic=orders&partition={partition}&offset=0"

        async def traced(*given: Rule, path: str = path) -> tuple[int, Any]:
            assert admin.engine.guard is not None
            admin.engine.guard.rules = rules(*given)
            status, text = await admin.call(path, X_API_Key=key)
            return status, json.loads(text)

        assert (await admin.call(path))[0] == 401
        status, document = await traced(Rule(WHO, ["console"], topics=["orders"], groups=["billing"]))
        assert status == 200 and [each["group"] for each in document["groups"]] == ["billing"]
        assert "secret" not in json.dumps(document)
        assert "key" not in document["record"] and "value-1" not in json.dumps(document)
        assert TRACEPARENT not in json.dumps(document), "it is a header"
        hidden = [each for each in document["unknown"] if each["what"] == "other groups"]
        assert not re.search(r"\d", json.dumps(hidden)), "not how many"
        _, nothing = await traced(Rule(WHO, ["console"], topics=["orders"], groups=["billing", "secret"]))
        assert hidden == [each for each in nothing["unknown"] if each["what"] == "other groups"] != []
        _, one = await traced(
            Rule(WHO, ["console"], topics=["orders"], groups=["billing"]), path=f"{path}&group=secret"
        )
        _, none = await traced(
            Rule(WHO, ["console"], topics=["orders"], groups=["billing"]), path=f"{path}&group=absent"
        )
        assert (one["groups"], one["unknown"]) == (none["groups"], none["unknown"])
        team = Rule(WHO, ["console", "consume"], topics=["orders"], groups=["*"])
        status, document = await traced(team)
        assert [each["group"] for each in document["groups"]] == ["billing", "secret"]
        assert document["record"]["key"] == {"text": "key-1"}
        assert document["record"]["headers"][0] == {"name": "name", "text": "value-1"}
        assert document["record"]["traceparent"] == TRACEPARENT
        assert "other groups" not in json.dumps(document["unknown"])
        for refused in (
            Rule(WHO, ["console"], topics=["other"], groups=["*"]),
            Rule(WHO, ["describe", "consume"], topics=["*"], groups=["*"]),
        ):
            assert (await traced(refused))[0] == 403
        only_console = Rule(WHO, ["console"], topics=["orders"], groups=["*"])
        assert (await traced(only_console, path="/trace?topic=orders&key=key-1"))[0] == 403
        status, document = await traced(team, path="/trace?topic=orders&key=key-1")
        assert status == 200 and document["total"] == 1
        assert (await traced(team, path="/findings"))[0] == 403


@pytest.mark.parametrize(
    "query",
    ["", "topic=t", "topic=t&offset=-1", "topic=t&offset=9999999999999999999", "topic=t&offset=1&partition=2147483648",
     "topic=t&header=%FF%FE", "topic=t&key_base64=%FF", "topic=a/b&offset=1", "topic=%00&key=x", "topic=t&key=x&since=x",
     "topic=t&offset=1&cluster=%ED%A0%80", "topic=t&header=a=%ED%A0%80&cluster=none", "topic=t&key=" + "x" * 10_001],
)  # fmt: skip
async def test_a_wrong_query_is_answered_in_a_line(query: str) -> None:
    async with serving() as admin:
        status, text = await admin.call(f"/trace?{query}")
        assert status in (400, 404) and json.loads(text)["error"], text


async def test_searches_are_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with serving() as admin:
        lives = admin.engine.lives()
        with contextlib.ExitStack() as places:
            for _ in range(admin.engine.config.tracing.max_searches):
                places.enter_context(lives._place())
            with pytest.raises(TooManyRequests, match=r"tracing\.max_searches"), lives._place():
                pass
        with lives._place():
            pass
        monkeypatch.setattr(Lives, "trace", _refuse)
        status, text = await admin.call("/trace?topic=t&offset=0")
        assert status == 429 and "tracing.max_searches" in text


async def _refuse(*_args: Any) -> Any:
    raise TooManyRequests("tracing.max_searches")
