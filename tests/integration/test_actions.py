"""Actions of operators on a real Kafka."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from tests.kafka.cluster import Cluster
from tests.support import Daemon, eventually, make_config, serving, status_of


class Operator:
    """An operator, and the only client, of one group."""

    def __init__(self, daemon: Daemon, group: str) -> None:
        self.daemon = daemon
        self.group = group

    async def act(self, action: str, **query: str) -> dict[str, Any]:
        url = f"http://{self.daemon.engine.addresses['admin']}/actions/{action}"
        asked = {"group": self.group, "confirm": self.group, **query}
        async with self.daemon.http.post(url, params=asked) as answer:
            assert answer.status == 200, await answer.text()
            return dict(await answer.json())

    async def findings(self) -> list[dict[str, Any]]:
        async with self.daemon.http.get(f"http://{self.daemon.engine.addresses['admin']}/findings") as answer:
            return list((await answer.json())["findings"])


async def test_a_paused_group_offers_nothing_commits_what_is_acknowledged_and_goes_on_in_order(
    kafka: Cluster, name: str
) -> None:
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap(), long_polling_timeout=1.0, ack_timeout=600.0)
    config.admin_addr, config.admin_actions = "127.0.0.1:0", True
    async with serving(config) as daemon:
        operator = Operator(daemon, name)
        for number in range(6):
            await daemon.produce(name, b"%d" % number, b"k")
        held = await daemon.consume(name, name, no_ack=True)
        assert held.message == b"0"
        done = await operator.act("pause")
        assert done["paused"] == [f"{name}/0"] and done["unacked"] == 1
        code, _ = await status_of(daemon.consume(name, name, auto_ack=True))
        assert code is grpc.StatusCode.NOT_FOUND
        found = await eventually(operator.findings)
        assert [each["rule"] for each in found] == ["paused"] and "127.0.0.1" in found[0]["cause"]

        await daemon.ack(name, name, held)

        async def committed() -> int:
            return int((await daemon.offsets(name, name))[0].offset)

        await eventually(committed, lambda offset: offset == 1)
        assert (await operator.act("resume"))["paused"] == []
        values = [(await daemon.consume(name, name, auto_ack=True)).message for _ in range(5)]
        assert values == [b"1", b"2", b"3", b"4", b"5"]


async def test_a_message_is_given_back_a_member_drains_and_offsets_are_reset_while_clients_ask(
    kafka: Cluster, name: str
) -> None:
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap(), long_polling_timeout=10.0, ack_timeout=600.0, drain_timeout=0.2)
    config.admin_addr, config.admin_actions = "127.0.0.1:0", True
    async with serving(config) as daemon:
        operator = Operator(daemon, name)
        for number in range(3):
            await daemon.produce(name, b"%d" % number, b"k")
        held = await daemon.consume(name, name, no_ack=True)
        place = {"topic": name, "partition": "0", "offset": "0"}
        assert (await operator.act("give-back", **place))["attempts"] == 1
        again = await daemon.consume(name, name, no_ack=True)
        assert (again.message, again.offset) == (b"0", held.offset), (
            "it comes before those that were never offered"
        )
        await daemon.ack(name, name, held)  # the client from which it was taken: late, and it counts
        await daemon.ack(name, name, again)
        assert (await daemon.consume(name, name, auto_ack=True)).message == b"1"

        waiting = asyncio.create_task(daemon.consume(name, name, auto_ack=True))
        assert (await waiting).message == b"2"
        waiting = asyncio.create_task(daemon.consume(name, name, auto_ack=True))
        await daemon.polls_wait(name, name, 1)
        assert (await operator.act("drain"))["members"] == 1
        assert (await daemon.offsets(name, name))[0].offset == 3, "what was acknowledged is committed"
        await daemon.polls_wait(name, name, 1)  # it joins again for the request that waits
        done = await operator.act("reset", topic=name, time="beginning")
        assert done["offsets"] == {"0": 0}
        assert (await waiting).message == b"0"
