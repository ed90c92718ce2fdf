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

from pixy.pipeline.archive import archive as archiving
from pixy.pipeline.archive.compact import Compactor
from pixy.pipeline.archive.subscription import Subscription
from pixy.pipeline.errors import CheckpointError, LakeError, PipelineError, Published, SourceError
from pixy.pipeline.lake.layout import manifest_path
from pixy.pipeline.spark.hadoop_store import HadoopStore
from tests.integration.pipeline.support import World, assert_sound
from tests.kafka.cluster import PASSWORD, USER, Cluster

pytestmark = pytest.mark.timeout(240)


def spark_files(world: World, kind: str) -> Path:
    return world.folder / "lake" / "_checkpoints" / "job" / "spark" / kind


def test_a_topic_created_again_is_refused(world: World, name: str) -> None:
    world.kafka.create_topic(name)
    world.produce(name, 10)
    world.archive(name)
    before = world.lake().state()
    world.kafka.admin().delete_topics([name])[name].result(30)
    with pytest.raises(SourceError, match=f"topic {name} does not exist"):
        world.archive(name)
    world.kafka.create_topic(name)
    world.produce(name, 20)
    with pytest.raises(SourceError, match=f"topic {name} was deleted and created again"):
        world.archive(name)
    assert world.lake().state() == before


def test_offsets_that_expired_unread_are_refused_or_skipped(world: World, name: str) -> None:
    world.kafka.create_topic(name)
    world.produce(name, 10)
    world.archive(name)
    world.produce(name, 30)
    world.kafka.delete_records(name, 0, 25)
    with pytest.raises(SourceError, match=f"offsets 10 to 24 of {name}/0 are out of range"):
        world.archive(name)
    assert world.lake().state().partition_stats(name)[0].count == 10
    assert world.archive(name, skip_lost=True).records == 15
    assert_sound(world.lake())


def test_checkpoint_and_log_must_match(world: World, name: str) -> None:
    world.kafka.create_topic(name)
    world.produce(name, 10)
    world.archive(name)
    lake = world.lake()
    # Killed after the manifest, before Spark's commit: the batch is planned again, not archived again.
    for path in spark_files(world, "commits").glob("*0*"):
        path.unlink()
    world.produce(name, 5)
    assert world.archive(name).records == 5
    assert [each.batch for each in lake.manifests()] == [0, 1]
    # The checkpoint of another job, named by its folder.
    with pytest.raises(CheckpointError, match="its job is job, this job's is other"):
        world.archive(name, name="other", checkpoint=str(world.folder / "lake/_checkpoints/job"))
    # Another job that would archive the same offsets again.
    with pytest.raises(
        PipelineError, match=rf"offsets 0 to 9 of {name}/0 are in the lake already, from batch 0 of job job"
    ):
        world.archive(name, name="other")
    # The log's last entry is gone.
    last = Path(lake.path(manifest_path(1)))
    kept = last.read_bytes()
    last.unlink()
    with pytest.raises(CheckpointError, match="done batch 1, and the lake's log has only batches up to 0"):
        world.archive(name)
    last.write_bytes(kept)
    # The checkpoint is gone: the log says where to resume.
    world.produce(name, 7)
    shutil.rmtree(world.folder / "lake/_checkpoints/job")
    assert world.archive(name).records == 7
    assert_sound(lake)
    assert lake.state().partition_stats(name) == world.truth(name)
    # An altered entry: nothing is added to a damaged log.
    first = Path(lake.path(manifest_path(0)))
    first.write_text(first.read_text().replace('"count": 10', '"count": 9'))
    with pytest.raises(LakeError, match=r"000000000000.json was altered"):
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
        Compactor(world.spark, world.lake()).run("2099-01-01")
    assert set(world.lake().state().files) == live
    assert_sound(world.lake())


def test_damage_is_not_compacted_away(world: World, name: str) -> None:
    world.kafka.create_topic(name, 2)
    world.produce(name, 20, 2)
    world.archive(name)
    lake = world.lake()
    before = lake.state()
    path = Path(lake.path(next(iter(before.files))))
    good = path.read_bytes()
    for bad in (
        b"PAR1" + b"\0" * (len(good) - 8) + b"PAR1",  # no footer
        good[:60] + bytes(255 - byte for byte in good[60:200]) + good[200:],  # a good footer, damaged pages
    ):
        path.write_bytes(bad)
        with pytest.raises(LakeError, match=rf"^{path} cannot be read: .*; {name} of .* is left as it is$"):
            Compactor(world.spark, lake).run("2099-01-01")
        assert lake.state() == before
        assert lake.store.walk("_staging") == ["_staging/.compact.lock"]
    path.unlink()
    with pytest.raises(LakeError, match=f"{path} is missing or has not the size"):
        Compactor(world.spark, lake).run("2099-01-01")
    assert lake.state() == before
    path.write_bytes(good)
    done = Compactor(world.spark, lake, keep=3600).run("2099-01-01")
    assert (done.files_before, done.files_after, done.deleted) == (2, 1, 0)
    assert path.exists(), "a reader may have it open"
    assert_sound(lake)


def test_a_lake_on_a_hadoop_file_system(world: World, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Archive through Hadoop's interface, on the one file system that needs no server."""

    def store_for(uri: str, spark: Any) -> HadoopStore:
        return HadoopStore(spark, f"file://{uri}" if uri.startswith("/") else uri)

    monkeypatch.setattr(archiving, "store_for", store_for)
    world.kafka.create_topic(name, 2)
    world.produce(name, 30, 2)
    world.archive(name)
    world.produce(name, 12, 2)
    assert world.archive(name).records == 12
    assert_sound(world.lake())
    assert world.lake().state().partition_stats(name) == world.truth(name)
    store = HadoopStore(world.spark, f"file://{world.folder}/other")
    assert (store.names("x"), store.walk("x"), store.size("x")) == ([], [], None)
    store.publish("x/a", b"1")
    with pytest.raises(Published, match="x/a exists already"):
        store.publish("x/a", b"2")
    store.replace("x/a", b"3")
    store.move("x/a", "y/b")
    assert (store.read("y/b"), store.size("y/b"), store.walk("")) == (b"3", 1, ["y/b"])
    store.remove("y")
    with pytest.raises(FileNotFoundError):
        store.read("y/b")
    with pytest.raises(LakeError, match="cannot open nofs://x"):
        HadoopStore(world.spark, "nofs://x")


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
