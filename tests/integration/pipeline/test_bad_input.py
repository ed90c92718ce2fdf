"""Errors name what is wrong, and published batches stay as they were."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrameWriter

from pixy.pipeline.archive.optimize import Optimizer
from pixy.pipeline.archive.subscription import Subscription
from pixy.pipeline.errors import LakeError, PipelineError
from pixy.pipeline.lake.verify import verify
from pixy.pipeline.spark.tasks import on_executors
from tests.integration.pipeline.support import World, assert_sound
from tests.kafka.cluster import PASSWORD, USER, Cluster

pytestmark = pytest.mark.timeout(240)


def test_an_altered_history_is_refused(world: World, name: str) -> None:
    world.kafka.create_topic(name)
    world.produce(name, 10)
    world.archive(name)
    shutil.rmtree(world.folder / "lake/ranges")  # it can be made from the log again
    world.produce(name, 5)
    assert world.archive(name).records == 5
    assert_sound(world.lake())
    shutil.rmtree(world.folder / "lake/ranges")
    first = world.folder / "lake/data/_delta_log/00000000000000000001.json"
    first.write_text(first.read_text().replace('\\"count\\":10', '\\"count\\":9'))
    with pytest.raises(LakeError, match=r"version 1 of .*/lake/data was altered"):
        world.archive(name)


def test_starting_offsets_and_patterns(world: World, name: str) -> None:
    topics = [f"{name}-a", f"{name}-b"]
    world.kafka.create_topic(topics[0], 2)
    world.produce(topics[0], 10, 2)
    pattern = Subscription(pattern=f"{name}-.*")
    assert world.archive(subscription=pattern, start="end").records == 0
    world.produce(topics[0], 4, 2)
    world.kafka.create_topic(topics[1], 1)
    world.produce(topics[1], 3)
    assert world.archive(subscription=pattern).records == 7  # new topics are taken from their start
    assert world.lake().state().partition_stats(topics[0])[0].first == 5
    after = world.truth(topics[0])[0].max_timestamp + 1
    assert world.archive(topics[0], lake="later", start=after).records == 0
    assert world.archive(topics[0], lake="all", start=after - 600_000).records == 14


@contextmanager
def small_files(spark: Any, size: int) -> Iterator[None]:
    """Limit the JVM's files to ``size`` bytes, which acts as a full disk and needs no privileges.

    The error is EFBIG instead of ENOSPC; the code that handles it is the same."""
    pid = int(spark._jvm.java.lang.ProcessHandle.current().pid())
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk(world: World, name: str) -> None:
    world.kafka.create_topic(name)
    world.produce(name, 50)
    world.archive(name)
    producer = Producer({"bootstrap.servers": world.kafka.bootstrap()[0]})
    for _ in range(80):
        producer.produce(name, os.urandom(100_000))
    assert producer.flush(30) == 0
    full = r"disk of .*/lake .*is full"
    with small_files(world.spark, 3 << 20), pytest.raises(PipelineError, match=full):
        world.archive(name)
    before = world.lake().state()
    assert before.partition_stats(name)[0].count == 50
    assert_sound(world.lake())
    assert world.archive(name).records == 80
    assert_sound(world.lake())
    live = set(world.lake().state().files)
    with small_files(world.spark, 3 << 20), pytest.raises(PipelineError, match=full):
        Optimizer(world.spark, world.lake()).run("2099-01-01")
    assert set(world.lake().state().files) == live
    assert_sound(world.lake())


def test_executors_that_write_elsewhere_publish_nothing(
    world: World, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An executor whose file system has another folder under the lake's name, such as a mount of its own."""
    write = DataFrameWriter.parquet

    def elsewhere(self: DataFrameWriter, path: str, *args: Any, **options: Any) -> None:
        write(self, path.replace("/lake/", "/mount/"), *args, **options)

    world.kafka.create_topic(name, 2)
    world.produce(name, 20, 2)
    with monkeypatch.context() as patched:
        patched.setattr(DataFrameWriter, "parquet", elsewhere)
        with pytest.raises(PipelineError, match=r"wrote 20 records .* reads back 0 .* nothing is published"):
            world.archive(name)
    assert world.lake().state().all_files == {} and world.lake().state().seq == -1
    assert world.archive(name).records == 20
    assert_sound(world.lake())


def test_executors_verify_as_this_machine_does(world: World, name: str) -> None:
    world.kafka.create_topic(name, 2)
    world.produce(name, 20, 2)
    world.archive(name)
    on_spark, here = verify(world.lake(), run=on_executors(world.spark)), verify(world.lake())
    assert on_spark == here and here.records == 20 and here.problems == []
    path = Path(world.lake().path(next(iter(world.lake().state().files))))
    path.write_bytes(path.read_bytes().replace(b"value", b"Value"))
    on_spark, here = verify(world.lake(), run=on_executors(world.spark)), verify(world.lake())
    assert on_spark == here and here.problems != []


def test_damage_is_not_rewritten(world: World, name: str) -> None:
    world.kafka.create_topic(name, 2)
    world.produce(name, 20, 2)
    world.archive(name)
    lake = world.lake()
    before = lake.state().files
    path = Path(lake.path(next(iter(before))))
    good = path.read_bytes()
    for bad in (
        b"PAR1" + b"\0" * (len(good) - 8) + b"PAR1",  # no footer
        good[:60] + bytes(255 - byte for byte in good[60:200]) + good[200:],  # a good footer, damaged pages
    ):
        path.write_bytes(bad)
        with pytest.raises(LakeError, match=rf"^{path} cannot be read: .*; {name} of .* is left as it is$"):
            Optimizer(world.spark, lake).run("2099-01-01")
        assert lake.state().files == before
    path.unlink()
    with pytest.raises(LakeError, match=f"{path} is missing or has not the size"):
        Optimizer(world.spark, lake).run("2099-01-01")
    assert lake.state().files == before
    path.write_bytes(good)
    done = Optimizer(world.spark, lake).run("2099-01-01")
    assert (done.files_before, done.files_after) == (2, 1)
    assert path.exists(), "a reader may have it open"
    assert_sound(lake)


def test_tls_and_sasl_from_the_daemon_s_configuration(world: World, secure_kafka: Cluster, name: str) -> None:
    assert secure_kafka.certificates is not None
    secure_kafka.create_topic(name)
    world.kafka = secure_kafka
    world.produce(name, 10)
    proxy = world.proxy
    proxy.kafka.seed_peers = secure_kafka.bootstrap("SASL_SSL")
    proxy.kafka.tls, proxy.kafka.ca_certificate_file = True, secure_kafka.certificates.ca_file
    proxy.net.sasl.enable, proxy.net.sasl.mechanism = True, "SCRAM-SHA-256"
    proxy.net.sasl.user, proxy.net.sasl.password = USER, PASSWORD
    assert world.archive(name, proxy=proxy).records == 10
    assert_sound(world.lake())
