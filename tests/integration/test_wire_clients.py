"""The wire clients with real Kafka: 4.x, 3.9, and over TLS with SASL; blocking and asyncio."""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from pixy.wire import aio, client, compression, consumer_protocol
from pixy.wire.batch import Builder
from pixy.wire.client import NEWEST, OLDEST, Member, Sasl
from pixy.wire.errors import ErrorCode, KafkaError
from pixy.wire.exceptions import WireError
from tests.kafka.cluster import PASSWORD, USER, Cluster
from tests.support import ROOT


@pytest.fixture(params=["kafka", "old_kafka"])
def any_kafka(request: pytest.FixtureRequest) -> Cluster:
    cluster: Cluster = request.getfixturevalue(request.param)
    return cluster


@pytest.fixture(params=["blocking", "asyncio"])
def do(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Call a function, or make a client, of the blocking or the asyncio module."""
    if request.param == "blocking":
        do_it: Callable[..., Any] = lambda function, *args, **options: function(*args, **options)  # noqa: E731
        do_it.module = client  # type: ignore[attr-defined]
        yield do_it
        return
    loop = asyncio.new_event_loop()

    def run(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        async def call() -> Any:
            found = function(*args, **options)
            return await found if inspect.isawaitable(found) else found

        return loop.run_until_complete(call())

    run.module = aio  # type: ignore[attr-defined]
    yield run
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def with_coordinator(do: Any, bootstrap: list[str], group: str, **options: Any) -> Any:
    """A client of a group whose coordinator answers it: a new cluster first creates __consumer_offsets, and a broker that is named as
    the coordinator may have yet to load the group's partition of it.
    """
    deadline = time.monotonic() + 30
    while True:
        made = do(do.module.GroupClient, bootstrap, group, **options)
        try:
            do(made.coordinator)
            error = ErrorCode(do(made.fetch_offsets).error_code)
        except KafkaError as failed:
            error = failed.error
        if error is ErrorCode.NONE:
            return made
        made.close()
        assert error.retriable and time.monotonic() < deadline, error
        time.sleep(0.05)


def produce(do: Any, producer: Any, batch: Any, **options: Any) -> Any:
    """Produce to a new topic, retrying while its leader answers that it does not lead it yet."""
    return once_led(do, producer.produce, batch, **options)


def once_led(do: Any, call: Any, *args: Any, **options: Any) -> Any:
    """Call a method of a client of a new topic until its leader has heard that it leads it; return the answer."""
    deadline = time.monotonic() + 30
    while True:
        found = do(call, *args, **options)
        if found.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_librdkafka_consumes_our_records(kafka: Cluster, name: str, do: Any, codec: str) -> None:
    kafka.create_topic(name)
    producer = do(do.module.PartitionProducer, kafka.bootstrap(), name, 0)
    batch = Builder().add(b"k", b"v" * 1000, [("h", b"1"), ("h", None)]).add(None, None).add(b"", b"").build()
    found = produce(do, producer, batch.compress(compression.get(codec)))
    assert (found.error_code, found.base_offset, found.topic, found.partition) == (0, 0, name, 0)
    producer.close()

    consumer = Consumer({"bootstrap.servers": kafka.bootstrap()[0], "group.id": name})
    consumer.assign([TopicPartition(name, 0, 0)])
    messages = consumer.consume(3, 20)
    consumer.close()
    assert [(m.key(), m.value()) for m in messages] == [(b"k", b"v" * 1000), (None, None), (b"", b"")]
    assert messages[0].headers() == [("h", b"1"), ("h", None)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_we_fetch_librdkafkas_records(kafka: Cluster, name: str, do: Any, codec: str) -> None:
    kafka.create_topic(name)
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap()[0], "compression.type": codec, "linger.ms": 20}
    )
    for number in range(100):
        producer.produce(name, b"value" * number, b"key", 0, headers=[("n", b"%d" % number)])
    assert producer.flush(20) == 0
    fetcher = do(do.module.PartitionFetcher, kafka.bootstrap(), name, 0)
    seen: list[Any] = []
    while len(seen) < 100:
        found = do(fetcher.fetch)
        assert found.error_code == 0
        seen += found.records()
        fetcher.offset = found.next_offset
    assert [each.value for each in seen] == [b"value" * number for number in range(100)]
    assert seen[7].headers == (("n", b"7"),) and seen[7].key == b"key"
    fetcher.close()


def test_one_partition(any_kafka: Cluster, name: str, do: Any) -> None:
    any_kafka.create_topic(name, 3)
    bootstrap = any_kafka.bootstrap()
    leader = do(do.module.get_partition_leader, bootstrap, name, 2)
    assert str(leader) == bootstrap[0] and leader.node_id == 1
    producer = do(do.module.PartitionProducer, bootstrap, name, 2)
    start = int(time.time() * 1000) - 10_000  # records older than the retention are deleted soon
    for number, acks in enumerate((-1, 1, 0, -1)):
        builder = Builder().add(None, b"%d" % number, timestamp=start + 1000 * number)
        found = produce(do, producer, builder.build(), acks=acks)
        assert (found.error_code, found.base_offset) == (0, number if acks else -1)
    fetcher = do(do.module.PartitionFetcher, bootstrap, name, 2)
    assert do(fetcher.seek, OLDEST).offset == 0
    assert do(fetcher.seek, start + 1500).offset == 2
    assert fetcher.offset == 2
    assert do(fetcher.seek, start + 10**6).offset == -1 and fetcher.offset == 2
    assert do(fetcher.list_offsets, NEWEST).offset == 4
    found = do(fetcher.fetch)
    assert [(each.offset, each.value) for each in found.records()] == [(2, b"2"), (3, b"3")]
    assert (found.high_watermark, found.next_offset, fetcher.offset) == (4, 4, 2)
    assert do(fetcher.fetch, 99).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    begun = time.monotonic()
    assert do(fetcher.fetch, 4, max_wait_ms=300).record_set == b""
    assert time.monotonic() - begun > 0.25
    corrupt = bytearray(Builder().add(None, b"x").build().marshal())
    corrupt[-1] ^= 1
    assert do(producer.produce, bytes(corrupt)).error_code == ErrorCode.CORRUPT_MESSAGE
    producer.close()
    fetcher.close()


def test_a_large_record_set_is_truncated(kafka: Cluster, name: str, do: Any) -> None:
    kafka.create_topic(name)
    producer = do(do.module.PartitionProducer, kafka.bootstrap(), name, 0)
    for number in range(8):
        produce(do, producer, Builder().add(None, bytes([number]) * 100_000).build())
    found = do(producer.fetch, 0, max_bytes=250_000)
    assert 200_000 < len(found.record_set) <= 250_000
    assert [each.base_offset for each in found.batches()] == [0, 1]
    assert found.next_offset == 2
    producer.close()


def test_topics(any_kafka: Cluster, name: str, do: Any) -> None:
    bootstrap = any_kafka.bootstrap()
    made = do(do.module.call_create_topic, bootstrap, name, 3, 1, {"retention.ms": "12345"})
    assert made["ErrorCode"] == 0
    assert do(do.module.call_create_topic, bootstrap, name)["ErrorCode"] == ErrorCode.TOPIC_ALREADY_EXISTS
    deadline = time.monotonic() + 20
    while True:
        (topic,) = do(do.module.call_metadata, bootstrap, [name])["Topics"]
        if topic["ErrorCode"] == 0 and len(topic["Partitions"]) == 3:
            break
        assert time.monotonic() < deadline, topic
        time.sleep(0.05)
    with pytest.raises(client.PartitionDoesNotExistError):
        do(do.module.get_partition_leader, bootstrap, f"{name}-not", 0)
    versions = do(do.module.call_api_versions, bootstrap)
    assert versions["JoinGroup"][1] == 9 and versions["ApiVersions"][0] == 0


def test_a_group(any_kafka: Cluster, name: str, do: Any) -> None:
    any_kafka.create_topic(name, 2)
    one = with_coordinator(do, any_kafka.bootstrap(), name)
    wanted = {"range": consumer_protocol.encode_subscription(3, {"Topics": [name], "RackId": "r"})}
    first = do(one.join, wanted)
    assert first["ErrorCode"] == ErrorCode.MEMBER_ID_REQUIRED
    joined = do(one.join, wanted, Member(first["MemberId"]), reason="test")
    assert (joined["ErrorCode"], joined["ProtocolType"], joined["ProtocolName"]) == (0, "consumer", "range")
    assert joined["Leader"] == joined["MemberId"] == first["MemberId"]
    (member,) = joined["Members"]
    assert consumer_protocol.decode_subscription(member["Metadata"]).body["Topics"] == [name]

    me = Member(joined["MemberId"], joined["GenerationId"])
    mine = {"AssignedPartitions": [{"Topic": name, "Partitions": [0, 1]}], "UserData": b"u"}
    synced = do(
        one.sync, me, {me.member_id: consumer_protocol.encode_assignment(3, mine)}, protocol_name="range"
    )
    assert (synced["ErrorCode"], synced["ProtocolType"], synced["ProtocolName"]) == (0, "consumer", "range")
    assert consumer_protocol.decode_assignment(synced["Assignment"]) == (3, mine)
    assert do(one.heartbeat, me)["ErrorCode"] == 0
    assert do(one.heartbeat, me._replace(generation_id=99))["ErrorCode"] == ErrorCode.ILLEGAL_GENERATION

    assert do(one.fetch_offset, name, 0).offset == -1
    assert do(one.commit_offset, name, 0, 17, "text", me) == 0
    assert do(one.commit_offsets, {(name, 0): 18, (name, 1): (5, "m")}, me) == {(name, 0): 0, (name, 1): 0}
    assert do(one.fetch_offset, name, 1)[:3] == (0, 5, "m")
    found = do(one.fetch_offsets)
    assert found.error_code == 0 and {place: each.offset for place, each in found.offsets.items()} == {
        (name, 0): 18,
        (name, 1): 5,
    }
    (group,) = do(one.call, "DescribeGroups", {"Groups": [name]})["Groups"]
    assert group["GroupState"] == "Stable"
    left = do(one.leave, me, "done")
    assert left["ErrorCode"] == 0 and left["Members"][0]["ErrorCode"] == 0
    assert do(one.heartbeat, me)["ErrorCode"] == ErrorCode.UNKNOWN_MEMBER_ID
    assert do(one.commit_offset, name, 0, 20) == 0  # an empty group accepts a commit of a non-member
    one.close()


def test_a_static_member(kafka: Cluster, name: str, do: Any) -> None:
    one = with_coordinator(do, kafka.bootstrap(), name)
    wanted = {"range": consumer_protocol.encode_subscription(1, {"Topics": [name]})}
    joined = do(one.join, wanted, Member(group_instance_id="static-1"))
    assert joined["ErrorCode"] == 0 and joined["Members"][0]["GroupInstanceId"] == "static-1"
    me = Member(joined["MemberId"], joined["GenerationId"], "static-1")
    assert do(one.sync, me, {me.member_id: b""}, protocol_name="range")["ErrorCode"] == 0
    assert do(one.heartbeat, me)["ErrorCode"] == 0
    assert do(one.leave, me)["Members"][0]["ErrorCode"] == 0
    one.close()


def test_a_member_of_a_kip_848_group(kafka: Cluster, name: str, do: Any) -> None:
    """KIP-848, with the generic call and topic ids."""
    kafka.create_topic(name, 2)
    one = with_coordinator(do, kafka.bootstrap(), name)
    beat = {
        "GroupId": name,
        "MemberId": "aaaaaaaaaaaaaaaaaaaaaa",
        "MemberEpoch": 0,
        "RebalanceTimeoutMs": 10_000,
        "SubscribedTopicNames": [name],
        "TopicPartitions": [],
    }
    deadline = time.monotonic() + 20
    while True:
        found = do(one.call, "ConsumerGroupHeartbeat", beat)
        assert found["ErrorCode"] == 0, found
        if found["Assignment"] and found["Assignment"]["TopicPartitions"]:
            break
        assert time.monotonic() < deadline
        beat = {"GroupId": name, "MemberId": beat["MemberId"], "MemberEpoch": found["MemberEpoch"]}
        time.sleep(0.05)
    (assigned,) = found["Assignment"]["TopicPartitions"]
    (topic,) = do(do.module.call_metadata, kafka.bootstrap(), [name])["Topics"]
    assert assigned["TopicId"] == topic["TopicId"] and sorted(assigned["Partitions"]) == [0, 1]
    (group,) = do(one.call, "ConsumerGroupDescribe", {"GroupIds": [name]})["Groups"]
    assert group["Members"][0]["MemberId"] == beat["MemberId"]
    one.close()


def test_read_committed(kafka: Cluster, name: str, do: Any) -> None:
    kafka.create_topic(name)
    producer = Producer({"bootstrap.servers": kafka.bootstrap()[0], "transactional.id": name})
    producer.init_transactions(20)
    for value, commit in ((b"aborted", False), (b"committed", True)):
        producer.begin_transaction()
        producer.produce(name, value, partition=0)
        producer.flush(20)
        (producer.commit_transaction if commit else producer.abort_transaction)(20)

    def values(read_committed: bool) -> list[bytes]:
        fetcher = do(do.module.PartitionFetcher, kafka.bootstrap(), name, 0, read_committed=read_committed)
        found, deadline = [], time.monotonic() + 20
        while b"committed" not in found:
            assert time.monotonic() < deadline
            result = do(fetcher.fetch)
            found += [each.value for each in result.records()]
            fetcher.offset = result.next_offset
        fetcher.close()
        return found

    assert values(True) == [b"committed"]
    assert values(False) == [b"aborted", b"committed"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_tls_and_sasl(secure_kafka: Cluster, name: str, do: Any, mechanism: str) -> None:
    secure_kafka.create_topic(name)
    assert secure_kafka.certificates is not None
    tls = ssl.create_default_context(cafile=secure_kafka.certificates.ca_file)
    bootstrap = secure_kafka.bootstrap("SASL_SSL")
    options = {"tls": tls, "sasl": Sasl(mechanism, USER, PASSWORD)}
    producer = do(do.module.PartitionProducer, bootstrap, name, 0, **options)
    assert produce(do, producer, Builder().add(b"k", b"v").build()).base_offset == 0
    assert [each.value for each in do(producer.fetch, 0).records()] == [b"v"]
    assert str(do(producer.leader)) == bootstrap[0]
    producer.close()
    with pytest.raises(client.AuthenticationError, match=mechanism):
        do(do.module.call_metadata, bootstrap, tls=tls, sasl=Sasl(mechanism, USER, "wrong"))
    with pytest.raises(client.TransportError, match="certificate verify failed"):
        do(do.module.call_metadata, bootstrap, tls=ssl.create_default_context(), sasl=options["sasl"])


def unsigned_token(**claims: Any) -> str:
    """Return a JWT without a signature, which a broker accepts unless it has a validator of its own."""
    # A second ago: the broker rounds to milliseconds, and refuses a token of the next one.
    issued = time.time() - 1
    parts = ({"alg": "none"}, {"sub": USER, "iat": issued, "exp": issued + 60, **claims})
    return "".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") + "." for part in parts
    )


def test_a_bearer_token_and_the_renewal_of_its_session(secure_kafka: Cluster, name: str, do: Any) -> None:
    """The broker ends a connection that is used 1.5 s after its authentication, and was not renewed (KIP-368)."""
    secure_kafka.create_topic(name)
    bootstrap, asked = secure_kafka.bootstrap("SASL_PLAINTEXT"), []

    def token() -> str:
        asked.append(time.monotonic())
        return unsigned_token()

    fetcher = do(
        do.module.PartitionFetcher, bootstrap, name, 0, sasl=Sasl("OAUTHBEARER", token=token), max_wait_ms=100
    )
    assert once_led(do, fetcher.fetch).error_code == 0
    connection, renewals = fetcher.connection, len(asked)
    while len(asked) - renewals < 2:  # they take longer than 1.5 s
        assert do(fetcher.fetch).error_code == 0
    assert fetcher.connection is connection
    fetcher.close()
    bad = Sasl("OAUTHBEARER", token=lambda: unsigned_token(exp=1.0))
    with pytest.raises(client.AuthenticationError, match=r"OAUTHBEARER: .*(invalid|expired|Authentication)"):
        do(do.module.call_metadata, bootstrap, sasl=bad)


def test_tls_with_a_client_certificate(secure_kafka: Cluster, do: Any) -> None:
    assert secure_kafka.certificates is not None
    tls = ssl.create_default_context(cafile=secure_kafka.certificates.ca_file)
    with pytest.raises(client.TransportError):
        do(do.module.call_metadata, secure_kafka.bootstrap("SSL"), [], tls=tls)
    cert, key, _ = secure_kafka.certificates.issue("client")
    tls.load_cert_chain(cert, key)
    assert do(do.module.call_metadata, secure_kafka.bootstrap("SSL"), [], tls=tls)["Brokers"]


def test_a_plaintext_client_on_a_tls_listener(secure_kafka: Cluster, do: Any) -> None:
    """The broker takes the first bytes for a TLS record and hangs up, or answers with an alert."""
    with pytest.raises(WireError):
        do(do.module.call_metadata, secure_kafka.bootstrap("SSL"), [], request_timeout=5.0)


def test_a_leader_that_moved(kafka3: Cluster, name: str, do: Any) -> None:
    """After NOT_LEADER_OR_FOLLOWER or a broken connection, the caller finds the new leader with `forget`."""
    kafka3.create_topic(name)
    producer = do(do.module.PartitionProducer, kafka3.bootstrap(), name, 0, request_timeout=10.0)
    deadline = time.monotonic() + 30
    while True:
        try:
            old = do(producer.leader)
            break
        except KafkaError:  # not every broker knows the new topic at once
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert produce(do, producer, Builder().add(None, b"1").build()).error_code == 0
    kafka3.kill(old.node_id)
    try:
        deadline = time.monotonic() + 60
        with pytest.raises(client.TransportError):
            while time.monotonic() < deadline:
                do(producer.produce, Builder().add(None, b"2").build())
        while True:
            producer.forget()
            try:
                if do(producer.produce, Builder().add(None, b"3").build()).error_code == 0:
                    break
            except (client.TransportError, KafkaError):
                pass
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert do(producer.leader).node_id != old.node_id
    finally:
        producer.close()
        kafka3.start(old.node_id)
        kafka3.wait_ready()


def test_the_example_wire_fetch_partition(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    stamp = int(time.time() * 1000)
    with client.PartitionProducer(kafka.bootstrap(), name, 0) as producer:
        for number in range(3):
            batch = Builder().add(b"k", b"%d" % number, [("h", None)], timestamp=stamp).build()
            assert produce(lambda call, *args: call(*args), producer, batch).error_code == 0
    program = [sys.executable, str(ROOT / "examples/wire_fetch_partition.py"), kafka.bootstrap()[0], name]
    options = {
        "env": {**os.environ, "PYTHONPATH": str(ROOT)},
        "capture_output": True,
        "text": True,
        "timeout": 60,
    }
    done = subprocess.run([*program, "0", "--from", "1"], check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"offset": n, "timestamp": stamp, "key": "k", "value": str(n), "headers": [["h", None]]}
        for n in (1, 2)
    ]
    done = subprocess.run([*program, "7"], check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 1 and done.stderr.startswith("Kafka says: UNKNOWN_TOPIC_OR_PARTITION (3)"), (
        done.stderr
    )
