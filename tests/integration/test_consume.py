"""Consuming on a real Kafka: delivery semantics."""

from __future__ import annotations

import asyncio
import contextlib
import math
import statistics
import time
from collections.abc import Awaitable
from typing import Any

import grpc
import pytest
from confluent_kafka import Consumer, TopicPartition

from pixy.proto import kafkapixy_pb2 as pb
from pixy.wire.aio import GroupClient
from tests.kafka.cluster import Cluster
from tests.support import Daemon, eventually, make_config, serving, status_of

NOT_FOUND = grpc.StatusCode.NOT_FOUND


async def fill(daemon: Daemon, topic: str, count: int, key: bytes = b"1") -> None:
    await asyncio.gather(*[daemon.produce(topic, b"%d" % n, key) for n in range(count)])


async def drain(daemon: Daemon, topic: str, group: str, **fields: bool) -> list[bytes]:
    """Consume until no message comes; with auto-ack unless ``fields`` say otherwise."""
    found = []
    while True:
        try:
            found.append((await daemon.consume(topic, group, **(fields or {"auto_ack": True}))).message)
        except grpc.RpcError as error:
            assert error.code() is NOT_FOUND and error.details() == "long polling timeout"
            return found


async def test_every_message_once_and_committed(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name, 4)
    config = make_config(kafka.bootstrap(), long_polling_timeout=1.0)
    async with serving(config) as daemon:
        await asyncio.gather(*[daemon.produce(name, b"%d" % n) for n in range(200)])
        found = await asyncio.gather(*[drain(daemon, name, "g") for _ in range(8)])
        assert sorted(int(value) for part in found for value in part) == list(range(200))

        async def committed() -> int:
            return sum(po.offset for po in (await daemon.offsets(name, "g")).values())

        # Well before the subscription expires: that commits too.
        await eventually(committed, lambda offsets: offsets == 200, within=5)


async def test_rest_consume_and_its_json(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await daemon.post(
            f"/topics/{name}/messages?sync&key=Маруся",
            "Моя любимая печенька",
            headers={"Content-Type": "text/plain", "X-Kafka-Foo": "YmFy"},
        )
        answer = await daemon.get(f"/topics/{name}/messages?group=g")
        assert answer.status == 200 and answer.headers["Content-Type"] == "application/json"
        assert answer.body.decode() == (
            '{\n  "key": "0JzQsNGA0YPRgdGP",\n'
            '  "value": "0JzQvtGPINC70Y7QsdC40LzQsNGPINC/0LXRh9C10L3RjNC60LA=",\n'
            '  "partition": 0,\n  "offset": 0,\n  "headers": [\n    {\n      "key": "Foo",\n'
            '      "value": "YmFy"\n    }\n  ]\n}'
        )


async def test_a_tombstone_and_an_empty_value(kafka: Cluster, name: str) -> None:
    from confluent_kafka import Producer

    kafka.create_topic(name)
    producer = Producer({"bootstrap.servers": kafka.bootstrap()[0]})
    producer.produce(name, None, b"k")
    producer.produce(name, b"", b"")
    producer.flush()
    async with serving(make_config(kafka.bootstrap())) as daemon:
        first = (await daemon.get(f"/topics/{name}/messages?group=g")).json
        second = (await daemon.get(f"/topics/{name}/messages?group=g")).json
        assert (first["key"], first["value"], first["headers"]) == ("aw==", None, [])
        assert (second["key"], second["value"]) == ("", "")
        rs = await daemon.consume(name, "grpc", auto_ack=True)
        assert rs.message == b"" and not rs.key_undefined


async def test_no_ack_commits_nothing(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name, 4)
    config = make_config(kafka.bootstrap(), long_polling_timeout=0.5)
    async with serving(config) as daemon:
        await fill(daemon, name, 5, b"1")
        await fill(daemon, name, 1, b"2")
        for _ in range(6):
            message = await daemon.consume(name, "g", no_ack=True)
            if message.partition == 1:
                await daemon.ack(name, "g", message)
        # A commit takes along the positions of all partitions that have moved.
        found = await eventually(lambda: daemon.offsets(name, "g"), lambda found: found[1].offset == 1)
        assert found[0].offset == 0


async def test_a_chain_of_explicit_acks(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await fill(daemon, name, 20)
        message = await daemon.consume(name, "g", no_ack=True)
        for expected in range(1, 20):
            message = await daemon.consume(
                name, "g", ack_partition=message.partition, ack_offset=message.offset
            )
            assert message.offset == expected
        answer = await daemon.post(f"/topics/{name}/acks?group=g&partition=0&offset=19")
        assert (answer.status, answer.body) == (200, b"{}")
        await eventually(lambda: daemon.offsets(name, "g"), lambda found: found[0].offset == 20)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_restart_goes_on_at_the_committed_offset_and_skips_sparse_acks(
    kafka: Cluster, name: str, protocol: str
) -> None:
    kafka.create_topic(name)
    config = make_config(
        kafka.bootstrap(), long_polling_timeout=1.0, drain_timeout=0.2, group_protocol=protocol
    )
    async with serving(config) as daemon:
        await fill(daemon, name, 12)
        got = [await daemon.consume(name, "g", no_ack=True) for _ in range(8)]
        for at in (0, 1, 3, 5, 6):
            await daemon.ack(name, "g", got[at])
        found = await eventually(lambda: daemon.offsets(name, "g"), lambda found: found[0].offset == 2)
        found = await eventually(
            lambda: daemon.offsets(name, "g"), lambda found: found[0].sparse_acks == "1-2,3-5"
        )
        assert found[0].metadata == "BBBC" and found[0].lag == 10
        async with GroupClient(kafka.bootstrap()[0], "g") as others:
            stored = await others.fetch_offset(name, 0)
        assert (stored.offset, stored.metadata) == (2, "BBBC"), "what the Go original reads"
    async with serving(config) as daemon:
        left = [int(value) for value in await drain(daemon, name, "g")]
        assert left == [int(got[at].message) for at in (2, 4, 7)] + [int(value) for value in left[3:]]
        assert len(left) == 7, "three un-acknowledged and four never offered"


async def test_unacknowledged_messages_come_again_after_ack_timeout(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap(), ack_timeout=0.6, long_polling_timeout=2.0)
    async with serving(config) as daemon:
        await fill(daemon, name, 3)
        await daemon.consume(name, "g", auto_ack=True)  # joins the group
        begun = time.monotonic()
        first = await daemon.consume(name, "g", no_ack=True)
        second = await daemon.consume(name, "g", no_ack=True)
        again = await daemon.consume(name, "g", no_ack=True)
        assert (again.offset, second.offset) == (first.offset, 2)
        assert time.monotonic() - begun >= 0.6
        await daemon.ack(name, "g", again)


async def test_max_retries_drops_and_commits(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap(), ack_timeout=0.2, max_retries=2, long_polling_timeout=1.0)
    async with serving(config) as daemon:
        await fill(daemon, name, 1)
        assert len(await drain(daemon, name, "g", no_ack=True)) == 3
        await eventually(lambda: daemon.offsets(name, "g"), lambda found: found[0].offset == 1)


async def test_max_pending_messages(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap(), max_pending_messages=3, long_polling_timeout=0.7)
    async with serving(config) as daemon:
        await fill(daemon, name, 10)
        got = [await daemon.consume(name, "g", no_ack=True) for _ in range(4)]
        code, text = await status_of(daemon.consume(name, "g", no_ack=True))
        assert (code, text) == (NOT_FOUND, "long polling timeout")
        await daemon.ack(name, "g", got[1])
        assert (await daemon.consume(name, "g", no_ack=True)).offset == 4


async def test_partitions_are_served_in_turn(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name, 4)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        # "1" -> 0, "2" -> 1, "3" -> 2, "4" -> 3
        for key in b"1", b"2", b"3", b"4":
            await fill(daemon, name, 60, key)
        served = set[int]()
        for _ in range(100):  # the fetch of a partition may begin a moment after that of the others
            served.add((await daemon.consume(name, "g", auto_ack=True)).partition)
            if len(served) == 4:
                break
        found = [(await daemon.consume(name, "g", auto_ack=True)).partition for _ in range(40)]
        counts = [found.count(number) for number in range(4)]
        assert max(counts) - min(counts) <= 1, found


async def test_a_full_partition_does_not_hold_up_the_others(kafka: Cluster, name: str) -> None:
    """Partition 0 is never acknowledged, and holds far more messages than its owner may buffer."""
    kafka.create_topic(name, 4)
    config = make_config(
        kafka.bootstrap(),
        max_pending_messages=5,
        prefetch_max_messages=20,
        long_polling_timeout=3.0,
    )
    async with serving(config) as daemon:
        await fill(daemon, name, 500, b"1")
        await fill(daemon, name, 300, b"2")
        seen = 0
        while seen < 300:
            message = await daemon.consume(name, "g", no_ack=True)
            if message.partition == 1:
                seen += 1
                await daemon.ack(name, "g", message)


async def test_groups_are_independent(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name, 2)
    config = make_config(kafka.bootstrap(), long_polling_timeout=1.0)
    async with serving(config) as daemon:
        await fill(daemon, name, 20)
        one, two = await asyncio.gather(drain(daemon, name, "g1"), drain(daemon, name, "g2"))
        assert sorted(one) == sorted(two) and len(one) == 20


async def test_a_new_group_begins_at_the_head_by_default(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap(), initial_offset="newest", long_polling_timeout=0.5)
    async with serving(config) as daemon:
        await fill(daemon, name, 3)
        code, _ = await status_of(daemon.consume(name, "g", auto_ack=True))
        assert code is NOT_FOUND
        found = await eventually(lambda: daemon.offsets(name, "g"), lambda found: found[0].offset == 3)
        assert found[0].lag == 0, "the head is committed at once"
        await daemon.produce(name, b"new")
        assert (await daemon.consume(name, "g", auto_ack=True)).message == b"new"


async def test_a_message_wakes_a_waiting_long_poll(kafka: Cluster, name: str) -> None:
    """A message comes about when a Kafka client that waits for it gets it: that is the control."""
    kafka.create_topic(name)
    made = Consumer({"bootstrap.servers": kafka.bootstrap()[0], "group.id": f"{name}-control"})
    loop = asyncio.get_running_loop()
    config = make_config(kafka.bootstrap(), long_polling_timeout=50.0)
    with contextlib.closing(made) as control:
        control.assign([TopicPartition(name, 0, 0)])
        async with serving(config) as daemon:
            waited: dict[str, list[float]] = {"long poll": [], "control": []}

            async def timed(what: str, message: Awaitable[Any]) -> Any:
                found = await message
                waited[what].append(loop.time() - begun)
                return found

            for value in (b"joins the group", b"1", b"2", b"3", b"4", b"5"):
                begun = math.nan
                poll = asyncio.ensure_future(timed("long poll", daemon.consume(name, "g", auto_ack=True)))
                other = asyncio.ensure_future(timed("control", asyncio.to_thread(control.poll, 50)))
                await daemon.polls_wait(name, "g", 1)
                begun = loop.time()
                await daemon.produce(name, value)
                assert (await poll).message == value == (await other).value()
            late, usual = (statistics.median(waits[1:]) for waits in waited.values())
            assert late < 20 * usual, f"late as a rule, not by chance: {waited}"


async def test_a_thousand_long_polls_at_once(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name, 4)
    config = make_config(kafka.bootstrap(), long_polling_timeout=20.0)
    async with serving(config) as daemon:
        polls = [asyncio.ensure_future(daemon.consume(name, "g", auto_ack=True)) for _ in range(1000)]
        await asyncio.gather(*[daemon.produce(name, b"%d" % n) for n in range(1000)])
        found = await asyncio.gather(*polls)
        assert sorted(int(rs.message) for rs in found) == list(range(1000))


async def test_the_request_limit(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap(), channel_buffer_size=2, long_polling_timeout=2.0)
    async with serving(config) as daemon:
        path = f"/topics/{name}/messages?group=g"
        answers = await asyncio.gather(*[daemon.get(path) for _ in range(3)])
        answers.sort(key=lambda answer: answer.status)
        assert [answer.status for answer in answers] == [408, 408, 429]
        assert answers[2].error == (
            "Too many requests. Consider increasing `consumer.channel_buffer_size` "
            "(https://github.com/mailgun/kafka-pixy/blob/master/default.yaml#L43)"
        )
        calls = [status_of(daemon.consume(name, "g", auto_ack=True)) for _ in range(3)]
        codes = [code for code, _ in await asyncio.gather(*calls)]
        assert sorted(codes, key=str) == [NOT_FOUND, NOT_FOUND, grpc.StatusCode.RESOURCE_EXHAUSTED]


async def test_an_unknown_topic_times_out_and_leaves_others_alone(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap(), long_polling_timeout=1.0)
    async with serving(config) as daemon:
        await fill(daemon, name, 5)
        missing = asyncio.ensure_future(daemon.get(f"/topics/{name}-missing/messages?group=g"))
        assert len(await drain(daemon, name, "g")) == 5
        answer = await missing
        assert (answer.status, answer.error) == (408, "long polling timeout")
        kafka.create_topic(f"{name}-missing")
        await daemon.produce(f"{name}-missing", b"late")
        await eventually(
            lambda: daemon.get(f"/topics/{name}-missing/messages?group=g"),
            lambda answer: answer.status == 200,
        )


async def test_the_subscription_expires_and_revives(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name, 2)
    config = make_config(kafka.bootstrap(), subscription_timeout=1.0, long_polling_timeout=0.5)
    async with serving(config) as daemon:
        await fill(daemon, name, 2)
        message = await daemon.consume(name, "g", no_ack=True)
        await drain(daemon, name, "g")
        await drain(daemon, name, "idle")

        async def members() -> set[str]:
            return set((await daemon.stub.ListConsumers(pb.ListConsumersRq(topic=name))).groups)

        assert "g" in await members()
        found = await eventually(members, lambda found: "idle" not in found)
        # "g" has been idle for longer.
        assert found == {"g"}, "a message is pending: the group stays"
        await daemon.ack(name, "g", message)
        await eventually(members, lambda found: not found)
        found = await daemon.offsets(name, "g")
        assert sum(po.lag for po in found.values()) == 0
        await daemon.produce(name, b"later")
        assert (await daemon.consume(name, "g", auto_ack=True)).message == b"later"


async def test_the_message_of_a_client_that_has_gone_is_offered_again(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await status_of(daemon.consume(name, "g", auto_ack=True))
        polls = [asyncio.ensure_future(daemon.consume(name, "g", auto_ack=True)) for _ in range(5)] + [
            asyncio.ensure_future(daemon.get(f"/topics/{name}/messages?group=g")) for _ in range(5)
        ]
        await daemon.polls_wait(name, "g", 10)
        for poll in polls:
            poll.cancel()
        await daemon.polls_wait(name, "g", 0)
        for number in range(3):
            await daemon.produce(name, b"%d" % number)
        found = [(await daemon.consume(name, "g", auto_ack=True)).message for _ in range(3)]
        assert found == [b"0", b"1", b"2"]


async def test_bad_acks(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        path = f"/topics/{name}/acks?group=g"
        answer = await daemon.post(f"{path}&partition=0&offset=0")
        not_held = ": the partition is not assigned to this daemon; the message may be delivered again"
        assert (answer.status, answer.error) == (409, f"acks channel missing for {{g {name} 0}}{not_held}")
        await fill(daemon, name, 3)
        await daemon.consume(name, "g", no_ack=True)
        for query, status, text in (
            ("&partition=4&offset=0", 409, f"acks channel missing for {{g {name} 4}}{not_held}"),
            ("&partition=0&offset=2", 400, f"bad offset: 2 of {name}/0 has not been offered"),
            ("&partition=0&offset=-1", 400, "bad offset: [-1]: must not be negative"),
            ("", 400, "partition and offset should be provided"),
            ("&noAck", 400, "partition and offset should be provided"),
            ("&partition=0", 400, "partition and offset either both should be provided or neither"),
            (
                "&partition=x&offset=1",
                400,
                'bad partition: [x]: strconv.ParseInt: parsing "x": invalid syntax',
            ),
        ):
            answer = await daemon.post(path + query)
            assert (answer.status, answer.error) == (status, text), query
        assert (await daemon.post(f"{path}&partition=0&offset=0")).status == 200
        assert (await daemon.post(f"{path}&partition=0&offset=0")).status == 200, "a duplicate"
        for fields, text in (
            ({"partition": -1}, "invalid ack: bad partition: -1"),
            ({"offset": -1}, "invalid ack: bad offset: -1"),
        ):
            assert await status_of(daemon.stub.Ack(pb.AckRq(topic=name, group="g", **fields))) == (
                grpc.StatusCode.INVALID_ARGUMENT,
                text,
            )
        code, _ = await status_of(daemon.stub.Ack(pb.AckRq(topic=name, group="x")))
        assert code is grpc.StatusCode.FAILED_PRECONDITION


async def test_an_ack_after_a_restart_is_refused_and_the_message_comes_again(
    kafka: Cluster, name: str
) -> None:
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap())
    async with serving(config) as daemon:
        await fill(daemon, name, 1)
        message = await daemon.consume(name, "g", no_ack=True)
    async with serving(config) as daemon:
        code, text = await status_of(daemon.ack(name, "g", message))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert "the partition is not assigned to this daemon" in text
        assert (await daemon.consume(name, "g", no_ack=True)).offset == message.offset


async def test_an_all_default_request_is_harmless_first(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await fill(daemon, name, 2)
        assert (await daemon.consume(name, "g")).offset == 0


async def test_disabled_consumer(kafka: Cluster, name: str) -> None:
    async with serving(make_config(kafka.bootstrap(), disabled=True)) as daemon:
        answer = await daemon.get(f"/topics/{name}/messages?group=g")
        assert (answer.status, answer.error) == (503, "service is disabled by configuration")
        code, _ = await status_of(daemon.consume(name, "g", auto_ack=True))
        assert code is grpc.StatusCode.UNAVAILABLE


async def test_default_rebalance_delay_and_auto_created_topics(creating_kafka: Cluster, name: str) -> None:
    """The first long poll outlives the broker's 3 s of initial rebalance delay."""
    async with serving(make_config(creating_kafka.bootstrap())) as daemon:
        poll = asyncio.ensure_future(daemon.get(f"/topics/{name}/messages?group={name}"))
        await daemon.polls_wait(name, name, 1)
        # The topic is looked up three times within half a second; a slow broker takes longer to create its first one.
        await eventually(
            lambda: daemon.post(f"/topics/{name}/messages?sync", "x"), lambda found: found.status == 200
        )
        answer = await poll
        assert (answer.status, answer.value) == (200, b"x")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_hand_over_without_gap_or_duplicate(kafka: Cluster, name: str, protocol: str) -> None:
    """Two daemons share a group; one joins late and leaves early, while messages flow."""
    kafka.create_topic(name, 8)

    def config():  # type: ignore[no-untyped-def]
        return make_config(
            kafka.bootstrap(),
            group_protocol=protocol,
            long_polling_timeout=1.0,
            heartbeat_interval=0.2,
        )

    found: list[int] = []
    stop = asyncio.Event()

    async def consume(daemon: Daemon, until: asyncio.Event) -> None:
        while not until.is_set():
            try:
                message = await daemon.consume(name, "g", no_ack=True)
            except grpc.RpcError as error:
                assert error.code() in (NOT_FOUND, grpc.StatusCode.UNAVAILABLE), error
                continue
            found.append(int(message.message))
            await daemon.ack(name, "g", message)

    async with serving(config()) as first:
        workers = [asyncio.ensure_future(consume(first, stop)) for _ in range(4)]
        sent = 0

        async def produce(count: int) -> None:
            nonlocal sent
            for _ in range(count):
                await first.produce(name, b"%d" % sent)
                sent += 1

        await produce(300)
        async with serving(config()) as second:
            second_stop = asyncio.Event()
            joined = [asyncio.ensure_future(consume(second, second_stop)) for _ in range(4)]

            async def members() -> int:
                answer = await first.stub.ListConsumers(pb.ListConsumersRq(topic=name, group="g"))
                return len(answer.groups["g"].consumers)

            await eventually(members, lambda count: count == 2, within=30)
            await produce(300)
            second_stop.set()
            await asyncio.gather(*joined)
        await produce(300)
        await eventually(lambda: asyncio.sleep(0, len(set(found))), lambda count: count == sent, within=40)
        stop.set()
        await asyncio.gather(*workers)
        assert sorted(found) == list(range(sent)), "no gap and no duplicate"
