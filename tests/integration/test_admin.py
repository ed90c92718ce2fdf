"""Offsets, topics, consumers, and both APIs' answers to bad requests, on a real Kafka."""

from __future__ import annotations

import asyncio
import json

import grpc
import pytest
from confluent_kafka import Consumer, TopicPartition
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from hypothesis import HealthCheck, given, settings, strategies as st

from pixy.proto import kafkapixy_pb2 as pb
from pixy.wire.aio import GroupClient
from tests.kafka.cluster import Cluster
from tests.support import Daemon, eventually, make_config, serving, status_of

NO_TOPIC = "kafka server: Request was for a topic or partition that does not exist on this broker."


async def test_offsets_round_trip(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name, 3)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        for _ in range(5):
            await daemon.produce(name, b"x", b"1")
        path = f"/topics/{name}/offsets?group=g"
        before = (await daemon.get(path)).json
        assert [po["offset"] for po in before] == [-1] * 3 and before[0]["lag"] == 0
        answer = await daemon.post(
            path,
            json.dumps(
                [
                    {"partition": 0, "offset": 301, "metadata": "BBHC"},
                    {"partition": 2, "offset": 1, "metadata": "A100", "lag": 7},
                ]
            ),
        )
        assert (answer.status, answer.body) == (200, b"{}")
        zero, one, two = (await daemon.get(path)).json
        assert zero == {
            "partition": 0,
            "begin": 0,
            "end": zero["end"],
            "count": zero["end"],
            "offset": 301,
            "lag": zero["end"] - 301,
            "metadata": "BBHC",
            "sparse_acks": "1-2,9-11",
        }
        assert "metadata" not in one and one["offset"] == -1
        assert two["metadata"] == "A100" and "sparse_acks" not in two
        await daemon.stub.SetOffsets(
            pb.SetOffsetsRq(
                topic=name,
                group="g",
                offsets=[
                    pb.PartitionOffset(partition=0, offset=-2),
                    pb.PartitionOffset(partition=1, offset=-1),
                ],
            )
        )
        found = await daemon.offsets(name, "g")
        assert (found[0].offset, found[0].lag) == (-2, found[0].count)
        assert (found[1].offset, found[1].lag) == (-1, 0)


@pytest.mark.parametrize(("offset", "first"), [(-2, b"old"), (-1, b"new"), (1, b"young")])
async def test_a_consumer_begins_at_the_offset_that_was_set(
    kafka: Cluster, name: str, offset: int, first: bytes
) -> None:
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap(), long_polling_timeout=0.5, initial_offset="newest")
    async with serving(config) as daemon:
        for value in (b"old", b"young"):
            await daemon.produce(name, value)
        document = json.dumps([{"partition": 0, "offset": offset}])
        assert (await daemon.post(f"/topics/{name}/offsets?group={name}", document)).status == 200
        if offset == -1:
            assert (await daemon.get(f"/topics/{name}/messages?group={name}")).status == 408
        await daemon.produce(name, b"new")
        assert (await daemon.consume(name, name, auto_ack=True)).message == first


async def test_metadata_are_stored_unchanged_and_read_without_an_old_terminator(
    kafka: Cluster, name: str
) -> None:
    kafka.create_topic(name, 2)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap()[0], "group.id": name})
    await asyncio.to_thread(consumer.commit, offsets=[TopicPartition(name, 1, 3, "A100")], asynchronous=False)
    consumer.close()
    async with serving(make_config(kafka.bootstrap())) as daemon:
        path = f"/topics/{name}/offsets?group={name}"
        assert (
            await daemon.post(path, '[{"partition": 0, "offset": 301, "metadata": "BBHC"}]')
        ).status == 200
        async with GroupClient(kafka.bootstrap()[0], name) as others:
            stored = (await others.fetch_offsets([(name, 0), (name, 1)])).offsets
        assert [stored[name, number].metadata for number in (0, 1)] == ["BBHC", "A100\0"]
        assert [each["metadata"] for each in (await daemon.get(path)).json] == ["BBHC", "A100"]


async def test_offset_errors(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        for topic, body in ((f"{name}-none", "[]"), (name, '[{"partition": 7}]')):
            answer = await daemon.post(f"/topics/{topic}/offsets?group=g", body)
            assert (answer.status, answer.error) == (404, "Unknown topic")
        answer = await daemon.get(f"/topics/{name}-none/offsets?group=g")
        assert (answer.status, answer.error) == (404, "Unknown topic")
        assert await status_of(daemon.stub.GetOffsets(pb.GetOffsetsRq(topic=f"{name}-none", group="g"))) == (
            grpc.StatusCode.NOT_FOUND,
            f"failed to get topic partitions: {NO_TOPIC}",
        )
        code, text = await status_of(
            daemon.stub.SetOffsets(
                pb.SetOffsetsRq(topic=name, group="g", offsets=[pb.PartitionOffset(partition=7)])
            )
        )
        assert code is grpc.StatusCode.NOT_FOUND
        assert text == f"failed to commit offset, partition=7: {NO_TOPIC}"
        long = json.dumps([{"partition": 0, "offset": 1, "metadata": "x" * 5000}])
        answer = await daemon.post(f"/topics/{name}/offsets?group=g", long)
        assert answer.status == 400 and "metadata" in answer.error
        answer = await daemon.post(f"/topics/{name}/offsets?group=g", '[{"offset": -3}]')
        assert answer.status == 400 and "bad offset: -3" in answer.error


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_offsets_of_a_consuming_group_cannot_be_set(
    kafka: Cluster, name: str, protocol: str, elsewhere: bool
) -> None:
    """Answer 409 and change nothing, whether this daemon consumes or another one."""
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap(), group_protocol=protocol)
    async with serving(config) as consuming, serving(make_config(kafka.bootstrap())) as other:
        asked = other if elsewhere else consuming
        await consuming.produce(name, b"x")
        await consuming.consume(name, "g", auto_ack=True)
        await eventually(lambda: asked.offsets(name, "g"), lambda found: found[0].offset == 1)
        answer = await asked.post(f"/topics/{name}/offsets?group=g", '[{"partition":0,"offset":0}]')
        assert answer.status == 409 and "group g is being consumed" in answer.error
        code, _ = await status_of(
            asked.stub.SetOffsets(
                pb.SetOffsetsRq(topic=name, group="g", offsets=[pb.PartitionOffset(partition=0, offset=0)])
            )
        )
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert (await asked.offsets(name, "g"))[0].offset == 1


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_consumers(kafka: Cluster, name: str, protocol: str) -> None:
    kafka.create_topic(name, 4)
    first, second = (make_config(kafka.bootstrap(), group_protocol=protocol) for _ in "ab")
    first.proxies["default"].client_id, second.proxies["default"].client_id = "kp_a", "kp_b"
    one, two = f"{name}-1", f"{name}-2"
    async with serving(first) as a, serving(second) as b:
        for group, daemon in ((one, a), (one, b), (two, b)):
            await status_of(daemon.consume(name, group, no_ack=True))

        async def listed() -> dict:
            return (await a.get(f"/topics/{name}/consumers")).json

        def settled(found: dict) -> bool:
            return len(found.get(one, {})) == 2 and len(found.get(two, {})) == 1

        found = await eventually(listed, settled)
        assert sorted(found[one]["kp_a"] + found[one]["kp_b"]) == [0, 1, 2, 3]
        assert found[two] == {"kp_b": [0, 1, 2, 3]}
        answer = await a.get(f"/topics/{name}/consumers?group={two}")
        assert answer.body.decode() == (f'{{\n  "{two}": {{\n    "kp_b": [0,1,2,3]\n  }}\n}}')
        unknown = await a.get(f"/topics/{name}/consumers?group=unknown")
        assert (unknown.status, unknown.error) == (400, "unknown consumer group unknown")
        elsewhere = await a.get(f"/topics/x/consumers?group={two}")
        assert (elsewhere.status, elsewhere.error) == (400, f"topic x is not consumed by {two}")
        assert await status_of(a.stub.ListConsumers(pb.ListConsumersRq(topic=name, group="unknown"))) == (
            grpc.StatusCode.NOT_FOUND,
            "unknown consumer group unknown",
        )
    async with serving(first) as a:
        gone = await a.get(f"/topics/{name}/consumers?group={two}")
        assert (gone.status, gone.json) == (200, {}), "the group is known but has no members"


async def test_topics(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name, 2, **{"retention.ms": "86400000"})
    async with serving(make_config(kafka.bootstrap())) as daemon:
        names = (await daemon.get("/topics")).json
        assert name in names and names == sorted(names)
        config = {"version": 1, "config": {"retention.ms": "86400000"}}
        partitions = [{"partition": number, "leader": 1, "replicas": [1], "isr": [1]} for number in (0, 1)]
        for query, expected in (
            ("withPartitions", {"partitions": partitions}),
            ("withConfig", {"config": config}),
            ("withConfig&withPartitions=false", {"config": config, "partitions": partitions}),
        ):
            assert (await daemon.get(f"/topics?{query}")).json[name] == expected
        assert (await daemon.get(f"/topics/{name}")).json == {"config": config}
        both = await daemon.get(f"/clusters/default/topics/{name}?withPartitions")
        assert both.json == {"config": config, "partitions": partitions}
        missing = await daemon.get(f"/topics/{name}-none")
        assert (missing.status, missing.error) == (404, "Unknown topic")
        assert f"{name}-none" not in (await daemon.get("/topics")).json, "asking creates nothing"

        listed = (await daemon.stub.ListTopics(pb.ListTopicRq(with_partitions=True))).topics[name]
        one = await daemon.stub.GetTopicMetadata(pb.GetTopicMetadataRq(topic=name, with_partitions=True))
        assert listed == one and one.version == 1 and dict(one.config) == config["config"]
        assert [(part.partition, part.leader) for part in one.partitions] == [(0, 1), (1, 1)]
        code, _ = await status_of(daemon.stub.GetTopicMetadata(pb.GetTopicMetadataRq(topic=f"{name}-none")))
        assert code is grpc.StatusCode.NOT_FOUND


async def test_unknown_clusters_everywhere(kafka: Cluster) -> None:
    async with serving(make_config(kafka.bootstrap())) as daemon:
        text = "proxy `invalid` does not exist"
        for method, path in (
            ("POST", "topics/t/messages"),
            ("GET", "topics/t/messages"),
            ("POST", "topics/t/acks"),
            ("GET", "topics/t/offsets"),
            ("POST", "topics/t/offsets"),
            ("GET", "topics/t/consumers"),
            ("GET", "topics/t"),
            ("GET", "topics"),
        ):
            answer = await daemon.call(method, f"/clusters/invalid/{path}")
            assert (answer.status, answer.error) == (400, text)
        for rpc, rq in (
            ("Produce", pb.ProdRq),
            ("ConsumeNAck", pb.ConsNAckRq),
            ("Ack", pb.AckRq),
            ("GetOffsets", pb.GetOffsetsRq),
            ("SetOffsets", pb.SetOffsetsRq),
            ("ListTopics", pb.ListTopicRq),
            ("ListConsumers", pb.ListConsumersRq),
            ("GetTopicMetadata", pb.GetTopicMetadataRq),
        ):
            found = await status_of(getattr(daemon.stub, rpc)(rq(cluster="invalid")))
            assert found == (grpc.StatusCode.INVALID_ARGUMENT, text), rpc


async def test_paths_and_methods(kafka: Cluster) -> None:
    async with serving(make_config(kafka.bootstrap())) as daemon:
        ping = await daemon.get("/_ping")
        assert (ping.status, ping.body) == (200, b"pong")
        assert ping.headers["Content-Type"] == "text/plain; charset=utf-8"
        nothing = await daemon.get("/nothing")
        assert (nothing.status, nothing.body) == (404, b"404 page not found\n")
        for method in ("HEAD", "PUT", "DELETE"):
            refused = await daemon.call(method, "/topics")
            assert (refused.status, refused.body) == (405, b"") and "Allow" not in refused.headers
        moved = await daemon.get("//topics?withConfig")
        assert (moved.status, moved.headers["Location"]) == (301, "/topics?withConfig")


async def test_several_clusters_behind_one_address(
    kafka: Cluster, creating_kafka: Cluster, name: str
) -> None:
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap())
    config.proxies["other"] = make_config(creating_kafka.bootstrap()).proxies["default"]
    async with serving(config) as daemon:
        await daemon.post(f"/topics/{name}/messages?sync", "here")
        answer = await daemon.post(f"/clusters/other/topics/{name}/messages?sync", "there")
        assert answer.status == 200
        here = await daemon.get(f"/clusters/default/topics/{name}/messages?group={name}")
        there = await daemon.get(f"/clusters/other/topics/{name}/messages?group={name}")
        assert (here.value, there.value) == (b"here", b"there")


async def test_health_and_reflection(kafka: Cluster) -> None:
    async with (
        serving(make_config(kafka.bootstrap())) as daemon,
        grpc.aio.insecure_channel(daemon.engine.addresses["grpc"]) as channel,
    ):
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "KafkaPixy"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)

        async def ask(**fields: str):  # type: ignore[no-untyped-def]
            call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(**fields)]))
            return await call.read()

        listed = await ask(list_services="")
        assert "KafkaPixy" in [found.name for found in listed.list_services_response.service]
        answer = await ask(file_containing_symbol="KafkaPixy")
        file = descriptor_pb2.FileDescriptorProto.FromString(
            answer.file_descriptor_response.file_descriptor_proto[0]
        )
        assert (file.name, file.package) == ("kafkapixy.proto", "")
        methods = [each.name for each in file.service[0].method]
        assert methods[:8] == [
            "Produce",
            "ConsumeNAck",
            "Ack",
            "GetOffsets",
            "SetOffsets",
            "ListTopics",
            "ListConsumers",
            "GetTopicMetadata",
        ], "the original's methods"


NAMES = st.one_of(st.text(max_size=20), st.sampled_from(["t", "..", ".", "a b", "é", "x" * 300]))


async def _never_500(daemon: Daemon, method: str, path: str, headers: dict, body: bytes) -> None:
    answer = await daemon.call(method, path, headers=headers, data=body)
    assert answer.status < 500, (method, path, headers, body, answer)
    if answer.status >= 400 and answer.status not in (404, 405):
        assert {"error", "message"} & set(answer.json), answer  # "/topics/t/" is a path of KIP-80


async def test_no_malformed_rest_request_is_answered_with_500(kafka: Cluster, name: str) -> None:
    from urllib.parse import quote

    kafka.create_topic(name)
    config = make_config(kafka.bootstrap(), long_polling_timeout=0.05, join_timeout=0.05, max_groups=100_000)
    async with serving(config) as daemon:
        loop = asyncio.get_running_loop()
        parameter = st.sampled_from(
            [
                "group",
                "key",
                "sync",
                "noAck",
                "ackPartition",
                "ackOffset",
                "partition",
                "offset",
                "msg",
            ]
        )
        value = st.one_of(st.text(max_size=8), st.integers().map(str), st.just("g"))

        @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
        @given(
            st.sampled_from(["GET", "POST"]),
            st.sampled_from(["messages", "offsets", "consumers", ""]),
            st.one_of(NAMES, st.just(name)),
            st.lists(st.tuples(parameter, value), max_size=5),
            st.sampled_from(
                ["text/plain", "application/json", "application/x-www-form-urlencoded", "x/y", ""]
            ),
            st.one_of(st.binary(max_size=60), st.just(b'[{"partition":0,"offset":"x"}]'), st.just(b"[{}]")),
            st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=10),
        )
        def attack(method, what, topic, query, content_type, body, header):  # type: ignore[no-untyped-def]
            if method == "GET" and what == "messages":
                query = [pair for pair in query if pair[0] != "group"]
            pairs = "&".join(f"{quote(k, errors='replace')}={quote(v, errors='replace')}" for k, v in query)
            path = f"/topics/{quote(topic, safe='', errors='replace')}/{what}?{pairs}"
            headers = {"Content-Type": content_type, "X-Kafka-H": header}
            asyncio.run_coroutine_threadsafe(
                _never_500(daemon, method, path, headers, body if method == "POST" else b""), loop
            ).result(60)

        await asyncio.to_thread(attack)


async def test_no_malformed_grpc_request_is_answered_with_internal(kafka: Cluster) -> None:
    """Answer any bytes with INVALID_ARGUMENT or another documented status, never INTERNAL."""
    config = make_config(kafka.bootstrap(), long_polling_timeout=0.05, join_timeout=0.05, disabled=True)
    allowed = {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
    async with (
        serving(config) as daemon,
        grpc.aio.insecure_channel(daemon.engine.addresses["grpc"]) as channel,
    ):
        loop = asyncio.get_running_loop()

        async def call(method: str, raw: bytes) -> None:
            try:
                await channel.unary_unary(f"/KafkaPixy/{method}")(raw)
            except grpc.RpcError as error:
                assert error.code() in allowed, (method, raw, error)

        @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
        @given(
            st.sampled_from(
                ["Produce", "ConsumeNAck", "GetOffsets", "SetOffsets", "GetTopicMetadata", "ListConsumers"]
            ),
            st.one_of(
                st.binary(max_size=40),
                st.builds(
                    lambda t, g: pb.AckRq(topic=t, group=g).SerializeToString(),
                    st.text(st.characters(codec="utf-8"), max_size=9),
                    st.text(st.characters(codec="utf-8"), max_size=9),
                ),
                st.just(b"\x12\x02\xff\xfe"),
            ),
        )
        def attack(method: str, raw: bytes) -> None:
            asyncio.run_coroutine_threadsafe(call(method, raw), loop).result(60)

        await asyncio.to_thread(attack)
        assert await status_of(channel.unary_unary("/KafkaPixy/Produce")(b"\x12\x02\xff\xfe")) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "malformed request: not a ProdRq",
        )
