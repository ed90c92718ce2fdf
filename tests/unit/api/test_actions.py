"""Actions of operators on the admin listener: off by default, with rights, confirmation and audit."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from pixy.api.admin.merging import merge_actions
from pixy.auth.keys import make_key
from pixy.auth.rules import Rules
from pixy.config import App, Proxy
from pixy.config.security import Limit, Rule
from pixy.engine.operator import Operator
from tests.support import eventually
from tests.unit.api.test_admin import serving

PAUSE = "/actions/pause?group=billing&confirm=billing"


def on(config: App) -> None:
    config.admin_actions = True


async def test_actions_are_off_by_default_and_need_the_name_again() -> None:
    async with serving() as admin:
        status, text = await admin.call(PAUSE, "POST")
        assert status == 403 and "admin_actions" in text
        described = await admin.get("/actions?group=billing")
        assert {each["action"] for each in described.pop("actions")} > {"pause", "reset", "restart"}
        assert described == {"enabled": False, "allowed": False, "daemon": {"allowed": False}}
        admin.engine.config.admin_actions = True
        for wrong, why in (
            ("group=billing", "confirm must repeat"),
            ("group=billing&confirm=Billing", "confirm must repeat"),
            ("confirm=", "group is missing"),
            ("group=%20&confirm=%20", "white space"),
            ("group=g&confirm=g&cluster=none", "none"),
            ("group=g&confirm=g&topic=t", "neither or both"),
            ("group=g&confirm=g&partition=0", "partition needs topic"),
            ("group=g&confirm=g&topic=t&partition=x", "partition must be a number"),
            ("group=g&confirm=g&topic=a/b&partition=0", "bad topic"),
            (f"group={'g' * 40_000}&confirm=g", ""),
        ):
            status, text = await admin.call(f"/actions/pause?{wrong}", "POST")
            assert status == 400 and why in text, (wrong, text)
        assert (await admin.call(PAUSE, "GET"))[0] == 405
        assert (await admin.call(PAUSE, "POST", Origin="http://elsewhere"))[0] == 403
        assert (await admin.get("/findings"))["findings"] == []


async def test_a_pause_is_found_until_it_is_resumed_also_of_a_group_that_nobody_consumes() -> None:
    async with serving(change=on) as admin:
        one = PAUSE + "&topic=orders&partition=3"
        for path in (one, PAUSE):
            status, text = await admin.call(path, "POST")
            assert status == 200 and json.loads(text)["changed"]
        assert not json.loads((await admin.call(PAUSE, "POST"))[1])["changed"]
        found = (await admin.get("/findings"))["findings"]
        assert [each["rule"] for each in found] == ["paused"] * 2
        assert [each["where"].get("partition") for each in found] == [3, None]
        status, text = await admin.call(one.replace("pause", "resume"), "POST")
        assert status == 409 and "whole group" in text
        status, text = await admin.call(PAUSE.replace("pause", "resume"), "POST")
        assert status == 200 and json.loads(text)["changed"]
        admin.forget()
        assert (await admin.get("/findings"))["findings"] == []


async def test_an_action_needs_admin_on_its_group_and_leaves_a_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key, stored = make_key("ops")
    (tmp_path / "keys").write_text(stored.line())

    def audited(config: App) -> None:
        config.admin_actions = True
        config.audit.path, config.audit.verbs = str(tmp_path / "audit"), ["consume"]

    async with serving(tmp_path / "keys", change=audited) as admin:
        guard = admin.engine.guard
        assert guard is not None
        guard.rules = Rules([Rule(["key:ops"], ["admin"], topics=["orders"], groups=["billing"])], {})
        other = PAUSE.replace("billing", "other")
        assert (await admin.call(PAUSE, "POST"))[0] == 401
        assert (await admin.call(other, "POST", X_API_Key=key))[0] == 403
        assert (await admin.call(PAUSE + "&topic=x&partition=0", "POST", X_API_Key=key))[0] == 403
        assert (await admin.call(PAUSE + "x", "POST", X_API_Key=key))[0] == 400
        assert (await admin.call(PAUSE, "POST", X_API_Key=key))[0] == 200
        for group, allowed in (("billing", True), ("other", False)):
            _, text = await admin.call(f"/actions?group={group}", X_API_Key=key)
            assert json.loads(text)["allowed"] is allowed
        (pause,) = admin.engine.counters["main"].pauses
        assert pause.by == "key:ops"
    records = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    assert [(each["action"], each["result"], each["group"]) for each in records if "action" in each] == [
        ("pause", "Forbidden", "other"),
        ("pause", "Forbidden", "billing"),
        ("pause", "InvalidParameter", "billing"),
        ("pause", "ok", "billing"),
    ]
    assert "admin action by key:ops: pause of group billing: done" in caplog.text


async def test_an_action_whose_client_goes_is_done_and_recorded_with_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key, stored = make_key("ops")
    (tmp_path / "keys").write_text(stored.line())
    begun, may = asyncio.Event(), asyncio.Event()

    async def pause(*_args: object) -> dict[str, object]:
        begun.set()
        await may.wait()
        return {}

    def audited(config: App) -> None:
        config.admin_actions = True
        config.audit.path = str(tmp_path / "audit")

    monkeypatch.setattr(Operator, "pause", pause)
    async with serving(tmp_path / "keys", change=audited) as admin:
        guard = admin.engine.guard
        assert guard is not None
        guard.rules = Rules([Rule(["key:ops"], ["admin"], topics=["*"], groups=["*"])], {})
        _, writer = await asyncio.open_connection(*admin.engine.addresses["admin"].rsplit(":", 1))
        writer.write(f"POST {PAUSE} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {key}\r\n\r\n".encode())
        await begun.wait()
        writer.transport.abort()

        async def held() -> int:
            return guard.unanswered.held

        await eventually(held)
        may.set()
        await eventually(held, lambda found: not found)
    (line,) = [json.loads(each) for each in (tmp_path / "audit").read_text().splitlines()]
    assert (line["action"], line["result"], line["answered"]) == ("pause", "ok", False)
    assert "admin action by key:ops: pause of group billing: done" in caplog.text


async def test_groups_whose_offsets_a_reset_sets_count_for_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, stored = make_key("ops")
    (tmp_path / "keys").write_text(stored.line())

    async def done(*_args: object) -> dict[str, object]:
        return {}

    def limited(config: App) -> None:
        config.admin_actions = True
        config.limits = [Limit(["*"], groups=2)]

    for name in ("reset", "pause"):
        monkeypatch.setattr(Operator, name, done)
    async with serving(tmp_path / "keys", change=limited) as admin:
        assert admin.engine.guard is not None
        admin.engine.guard.rules = Rules([Rule(["key:ops"], ["admin"], topics=["*"], groups=["*"])], {})

        async def act(name: str, group: str, more: str = "") -> int:
            path = f"/actions/{name}?group={group}&confirm={group}{more}"
            return int((await admin.call(path, "POST", X_API_Key=key))[0])

        resets = [await act("reset", f"g{n}", "&topic=t&time=end") for n in (1, 2, 1, 3)]
        assert resets == [200, 200, 200, 429]
        assert [await act("pause", f"p{n}") for n in range(3)] == [200] * 3, "which makes no group of Kafka's"


async def test_an_actor_is_restarted_and_the_sampler_switched_by_who_may_do_everything(
    tmp_path: Path,
) -> None:
    key, stored = make_key("ops")
    (tmp_path / "keys").write_text(stored.line())

    async with serving(tmp_path / "keys", change=on) as admin:
        guard = admin.engine.guard
        assert guard is not None

        async def act(path: str) -> tuple[int, str]:
            return await admin.call(f"/actions/{path}", "POST", X_API_Key=key)

        async def told(path: str) -> dict[str, bool]:
            _, text = await admin.call(f"/actions?path={path}", X_API_Key=key)
            return dict(json.loads(text)["daemon"])

        restart = "restart?path=/service/main/fetcher&confirm=fetcher"
        guard.rules = Rules([Rule(["key:ops"], ["admin"], topics=["orders"], groups=["*"])], {})
        assert (await act(restart))[0] == 403
        assert await told("/service/main/fetcher") == {"allowed": False}
        status, text = await admin.call("/metrics", X_API_Key=key)
        assert status == 403 and "in all clusters" in text and "default" not in text
        # The path of an actor tells of any cluster: one of two is not enough.
        admin.engine.config.proxies["hidden"] = Proxy()
        guard.rules = Rules(
            [Rule(["key:ops"], ["*"], clusters=["default", "main"], topics=["*"], groups=["*"])], {}
        )
        assert await told("/service/main/fetcher") == {"allowed": False}
        del admin.engine.config.proxies["hidden"]
        guard.rules = Rules([Rule(["key:ops"], ["*"], topics=["*"], groups=["*"])], {})
        assert await told("/service/main/fetcher") == {"allowed": True, "sampler": True, "restartable": True}
        assert not (await told("/service/main"))["restartable"] and not (await told("/nobody"))["restartable"]
        for wrong, status in (
            (restart + "s", 400),
            (restart.replace("fetcher", "nobody"), 400),
            ("restart", 400),
            ("restart?path=/service/main&confirm=main", 409),
            ("sampler?on=true", 400),
            ("sampler?on=x&confirm=sampler", 400),
        ):
            assert (await act(wrong))[0] == status, wrong
        fetcher = admin.engine.system.lookup("/service/main/fetcher")
        assert fetcher is not None
        assert (await act(restart))[0] == 200

        async def restarts() -> int:
            return fetcher.statistics().restarts

        await eventually(restarts, lambda found: found == 1)
        assert fetcher.is_alive()

        changed = [
            json.loads((await act(f"sampler?on={each}&confirm=sampler"))[1])["changed"]
            for each in ("false", "false", "true")
        ]
        assert changed == [True, False, True]
        await act("sampler?on=false&confirm=sampler")
        assert await told("") == {"allowed": True, "sampler": False}


def test_a_pause_has_failed_if_it_has_failed_in_one_worker_and_other_actions_if_in_all() -> None:
    assert merge_actions("pause", {1: (200, {"a": 1}), 2: (200, {"a": 2})}) == (
        200,
        {"workers": {"1": {"a": 1}, "2": {"a": 2}}},
    )
    mixed = {1: (200, {}), 2: (503, {"error": "late"})}
    status, document = merge_actions("pause", mixed)
    assert (status, document["error"]) == (503, "late")
    assert merge_actions("give-back", mixed)[0] == 200
    assert merge_actions("drain", {})[0] == 503
