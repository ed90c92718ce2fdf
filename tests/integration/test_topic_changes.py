"""Topics and groups made, changed and deleted through the daemon, batches, and reads by offset: gRPC and REST on real Kafka."""

from __future__ import annotations

import json
import uuid

import grpc
import pytest

from pixy.kafka.sandbox import Sandbox
from pixy.proto import kafkapixy_pb2 as pb
from tests.kafka.cluster import Cluster
from tests.support import eventually, make_config, serving, status_of

JSON = {"Content-Type": "application/json"}


@pytest.mark.timeout(120)
async def test_a_topic_s_life_over_grpc(kafka: Cluster, name: str) -> None:
    async with serving(make_config(kafka.bootstrap())) as daemon:
        stub = daemon.stub
        await stub.CreateTopic(pb.CreateTopicRq(topic=name, partitions=2, validate_only=True))
        wanted = pb.CreateTopicRq(topic=name, partitions=2, config={"retention.ms": "60000"})
        await stub.CreateTopic(wanted)
        code, text = await status_of(stub.CreateTopic(wanted))
        assert (code, text) == (grpc.StatusCode.ALREADY_EXISTS, f"topic {name} exists already")
        await stub.AlterTopic(
            pb.AlterTopicRq(
                topic=name,
                set_config={"max.message.bytes": "5000"},
                delete_config=["retention.ms"],
                partitions=3,
            )
        )

        async def topic() -> tuple[int, dict[str, str]]:
            found = await stub.GetTopicMetadata(pb.GetTopicMetadataRq(topic=name, with_partitions=True))
            return len(found.partitions), dict(found.config)

        assert await eventually(topic, lambda found: found == (3, {"max.message.bytes": "5000"}))
        for request, reason in (
            (pb.AlterTopicRq(topic=name, partitions=2), "partition"),
            (pb.AlterTopicRq(topic=name, set_config={"no.such": "1"}), "no.such"),
            (pb.AlterTopicRq(topic=name, partitions=4, set_config={"retention.ms": "x"}), "retention.ms"),
            (pb.AlterTopicRq(topic=name), "nothing to change"),
        ):
            code, text = await status_of(stub.AlterTopic(request))
            assert code is grpc.StatusCode.INVALID_ARGUMENT and reason in text.lower(), text
        assert (await topic())[0] == 3, "no partition was added"
        code, text = await status_of(
            stub.CreateTopic(pb.CreateTopicRq(topic=f"{name}-many", partitions=10_001))
        )
        assert text == "bad partitions: 10001 is not between 0 and 10000"
        await stub.DeleteTopic(pb.DeleteTopicRq(topic=name))

        async def gone() -> bool:
            code, _ = await status_of(stub.DeleteTopic(pb.DeleteTopicRq(topic=name)))
            return code is grpc.StatusCode.NOT_FOUND

        await eventually(gone)


async def test_batches_are_written_in_order_and_read_by_offset(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name, 2)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        records = [
            pb.Record(key=b"k", value=b"one", partition=1, headers=[pb.RecordHeader(key="h", value=b"v")]),
            pb.Record(key_undefined=True, value=b"two", partition=1, timestamp=1_700_000_000_000),
            pb.Record(key=b"k", tombstone=True, partition=1),
            pb.Record(key=b"k", value=b"nowhere", partition=7),
        ]
        answer = await daemon.stub.ProduceMany(pb.ProdManyRq(topic=name, records=records))
        assert [(each.partition, each.offset) for each in answer.results] == [
            (1, 0),
            (1, 1),
            (1, 2),
            (-1, -1),
        ]
        assert answer.results[3].error and not answer.results[0].error
        found = (await daemon.stub.Fetch(pb.FetchRq(topic=name, partition=1, wait_ms=5000))).records
        assert [(each.value, each.tombstone, each.key_undefined) for each in found] == [
            (b"one", False, False),
            (b"two", False, True),
            (b"", True, False),
        ]
        assert found[1].timestamp == 1_700_000_000_000 and found[0].headers[0].value == b"v"
        later = await daemon.stub.Fetch(pb.FetchRq(topic=name, partition=1, offset=1, max_messages=1))
        assert [each.offset for each in later.records] == [1]
        for time, offset in ((-2, 0), (-1, 3), (1_700_000_000_000, 0)):
            positions = await daemon.stub.FindOffsets(pb.FindOffsetsRq(topic=name, time=time))
            assert {each.partition: each.offset for each in positions.offsets}[1] == offset
            assert uuid.UUID(positions.topic_id).int
        code, text = await status_of(daemon.stub.Fetch(pb.FetchRq(topic=name, partition=1, offset=99)))
        assert code is grpc.StatusCode.INVALID_ARGUMENT and "99 is out of range" in text
        tombstone = [await daemon.consume(name, name, auto_ack=True) for _ in range(3)][-1]
        assert tombstone.tombstone and tombstone.timestamp > 1_700_000_000_000
        many = pb.ProdManyRq(topic=name, records=[pb.Record()] * 10_001)
        assert (await status_of(daemon.stub.ProduceMany(many)))[
            1
        ] == "too many records, a request may have 10000"


async def test_a_group_is_listed_described_and_deleted_once_it_is_empty(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap(), subscription_timeout=1)) as daemon:
        await daemon.produce(name, b"x")
        await daemon.produce(name, b"y")
        await daemon.consume(name, name, auto_ack=True)

        async def described() -> pb.DescribeGroupRs:
            return await daemon.stub.DescribeGroup(pb.DescribeGroupRq(group=name))

        def committed(found: pb.DescribeGroupRs) -> bool:
            return bool(found.topics) and found.topics[0].offsets[0].offset == 1

        found = await eventually(described, committed)
        assert (
            found.state == "Stable" and found.topics[0].topic == name and found.topics[0].offsets[0].lag == 1
        )
        [member] = found.members
        assert member.host and [(each.topic, list(each.partitions)) for each in member.assigned] == [
            (name, [0])
        ]
        groups = (await daemon.stub.ListGroups(pb.ListGroupsRq())).groups
        assert {each.group: each.state for each in groups}[name] == "Stable"
        view = (await daemon.get(f"/groups/{name}")).json
        assert view["offsets"][name][0]["lag"] == 1 and view["members"][0]["assigned"] == {name: [0]}
        code, text = await status_of(daemon.stub.DeleteGroup(pb.DeleteGroupRq(group=name)))
        assert code is grpc.StatusCode.FAILED_PRECONDITION and "has members" in text

        async def delete() -> int:
            return (await daemon.call("DELETE", f"/groups/{name}")).status

        await eventually(delete, lambda status: status == 200)
        code, text = await status_of(daemon.stub.DescribeGroup(pb.DescribeGroupRq(group=name)))
        assert (code, text) == (grpc.StatusCode.NOT_FOUND, f"unknown consumer group {name}")
        assert (await daemon.call("DELETE", f"/groups/{name}")).status == 404


async def test_the_same_over_rest_and_where_changes_are_forbidden(kafka: Cluster, name: str) -> None:
    config = make_config(kafka.bootstrap())
    async with serving(config) as daemon:
        body = json.dumps({"partitions": 2, "config": {"retention.ms": "60000"}})
        assert (await daemon.call("PUT", f"/topics/{name}", data=body, headers=JSON)).status == 201
        assert (await daemon.call("PUT", f"/topics/{name}", data=body, headers=JSON)).status == 409
        changes = json.dumps({"partitions": 3, "config": {"retention.ms": None}})
        assert (await daemon.call("PATCH", f"/topics/{name}", data=changes, headers=JSON)).status == 200

        async def topic() -> tuple[int, dict[str, str]]:
            found = (await daemon.get(f"/topics/{name}?withPartitions")).json
            return len(found["partitions"]), found["config"]["config"]

        await eventually(topic, lambda found: found == (3, {}))
        assert (await daemon.get(f"/topics/{name}/positions?time=begin")).json[2] == {
            "partition": 2,
            "offset": 0,
        }
        bad = await daemon.call("PUT", f"/topics/{name}", data='{"partition": 1}', headers=JSON)
        assert bad.status == 400 and "partition" in bad.error
        status = (await daemon.get("/_status")).json
        assert status["clusters"] == {"default": {"brokers": [1]}} and status["uptime"] > 0
        assert (await daemon.call("DELETE", f"/topics/{name}-none")).error == "Unknown topic"
        forbidden = "changes of topics and groups are disabled by configuration (`admin_changes`)"
        config.proxies["default"].admin_changes = False
        for method, path in (
            ("PUT", f"/topics/{name}-2"),
            ("DELETE", f"/topics/{name}"),
            ("DELETE", "/groups/g"),
        ):
            answer = await daemon.call(method, path)
            assert (answer.status, answer.error) == (403, forbidden)
        config.proxies["default"].admin_changes = True
        assert (await daemon.call("DELETE", f"/topics/{name}")).status == 200


async def test_the_sandbox_makes_topics_and_shows_its_groups(name: str) -> None:
    sandbox = Sandbox()
    async with serving(make_config(sandbox.seed_peers)) as daemon:
        await daemon.stub.CreateTopic(pb.CreateTopicRq(topic=name))
        assert (await status_of(daemon.stub.CreateTopic(pb.CreateTopicRq(topic=name))))[0] is (
            grpc.StatusCode.ALREADY_EXISTS
        )
        code, text = await status_of(
            daemon.stub.CreateTopic(pb.CreateTopicRq(topic=f"{name}2", partitions=2))
        )
        assert (
            code is grpc.StatusCode.INVALID_ARGUMENT and "the sandbox makes topics with 4 partitions" in text
        )
        for refused in (
            daemon.stub.DeleteTopic(pb.DeleteTopicRq(topic=name)),
            daemon.stub.AlterTopic(pb.AlterTopicRq(topic=name, partitions=8)),
        ):
            code, text = await status_of(refused)
            assert code is grpc.StatusCode.INVALID_ARGUMENT and "or the sandbox" in text, text
        await daemon.produce(name, b"x")
        await daemon.consume(name, "g", auto_ack=True)
        assert [each.group for each in (await daemon.stub.ListGroups(pb.ListGroupsRq())).groups] == ["g"]
        found = await daemon.stub.DescribeGroup(pb.DescribeGroupRq(group="g"))
        assert list(found.members[0].assigned[0].partitions) == [0, 1, 2, 3]
