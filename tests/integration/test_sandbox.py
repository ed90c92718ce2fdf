"""The daemon on its in-memory sandbox, which is librdkafka's mock cluster: what the first steps of the README ask of it."""

from __future__ import annotations

import pytest

from pixy.kafka.sandbox import PARTITIONS, Sandbox
from pixy.proto import kafkapixy_pb2 as pb
from tests.support import eventually, make_config, serving


@pytest.mark.timeout(120)
async def test_the_sandbox_answers_what_first_steps_ask(name: str) -> None:
    sandbox = Sandbox()
    async with serving(make_config(sandbox.seed_peers)) as daemon:
        partition, offset = await daemon.produce(name, b"news", b"k")
        found = await daemon.consume(name, "g", auto_ack=True)
        assert (found.message, found.partition, found.offset) == (b"news", partition, offset)

        async def lag() -> int:
            return sum(each.lag for each in (await daemon.offsets(name, "g")).values())

        await eventually(lag, lambda lag: lag == 0)
        bounds = {number: each.end - each.begin for number, each in (await daemon.offsets(name, "g")).items()}
        assert bounds == {number: int(number == partition) for number in range(PARTITIONS)}
        assert name in (await daemon.get("/topics")).json
        topic = (await daemon.get(f"/topics/{name}?withPartitions")).json
        assert [each["partition"] for each in topic["partitions"]] == list(range(PARTITIONS))
        assert topic["config"] == {"version": 1, "config": {}}, "the sandbox has no settings of topics"
        assert (await daemon.get(f"/topics/{name}-none/offsets?group=g")).status == 404
        consumers = (await daemon.get(f"/topics/{name}/consumers")).json
        assert [sorted(each) for each in consumers["g"].values()] == [list(range(PARTITIONS))]


@pytest.mark.timeout(120)
async def test_a_group_that_nobody_consumes_any_more_is_empty(name: str) -> None:
    sandbox = Sandbox()
    app = make_config(
        sandbox.seed_peers, subscription_timeout=0.5, session_timeout=4.0, heartbeat_interval=0.5
    )
    async with serving(app) as daemon:
        partition, _ = await daemon.produce(name, b"news")
        await daemon.consume(name, "g", auto_ack=True)

        async def listed() -> dict[str, str]:
            found = (await daemon.get("/groups")).json["groups"]
            return {each["group"]: each["state"] for each in found}

        await eventually(listed, lambda found: found == {"g": "Empty"})
        described = (await daemon.get("/groups/g")).json
        assert described["members"] == [] and described["state"] == "Empty"
        offsets = {each["partition"]: each["offset"] for each in described["offsets"][name]}
        assert offsets[partition] == 1
        # It is reset as anywhere else, also to a place that librdkafka does not commit.
        wanted = [pb.PartitionOffset(partition=partition, offset=-2, metadata="m")]
        await daemon.stub.SetOffsets(pb.SetOffsetsRq(topic=name, group="g", offsets=wanted))
        now = (await daemon.offsets(name, "g"))[partition]
        assert (now.offset, now.metadata) == (-2, "m")
        assert (await daemon.consume(name, "g", auto_ack=True)).message == b"news"
