"""A checkpoint belongs to one job; Spark's offsets are read from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pixy.pipeline.archive.checkpoint import Checkpoint, Owner
from pixy.pipeline.errors import CheckpointError, UnknownVersion
from pixy.pipeline.lake.store import LocalStore

OWNER = Owner("job", "lake-1", "kafka-1", "a,b")


def test_a_checkpoint_belongs_to_one_job(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    made = Checkpoint.open(store, OWNER)
    assert made.fresh
    again = Checkpoint.open(store, OWNER)
    assert (again.id, again.fresh) == (made.id, False)
    for other, named in (
        (Owner("other", "lake-1", "kafka-1", "a,b"), "its job is job, this job's is other"),
        (Owner("job", "lake-2", "kafka-1", "a,b"), "its lake is lake-1"),
        (Owner("job", "lake-1", "kafka-2", "a,b"), "its cluster_id is kafka-1"),
        (
            Owner("job", "lake-1", "kafka-1", "a"),
            r"its subscription \(--topics, --pattern\) is a,b, this job's is a",
        ),
    ):
        with pytest.raises(CheckpointError, match=named):
            Checkpoint.open(store, other)


def test_the_checkpoint_of_another_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    with pytest.raises(CheckpointError, match=r"checkpoint of another program .there is offsets"):
        Checkpoint.open(LocalStore(str(tmp_path)), OWNER)
    (tmp_path / "pixy.json").write_text('{"format": "kafka-pixy-checkpoint", "version": 2}')
    with pytest.raises(UnknownVersion, match=r"format version 2"):
        Checkpoint.open(LocalStore(str(tmp_path)), OWNER)


def test_spark_offsets_are_read(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(LocalStore(str(tmp_path)), OWNER)
    assert (checkpoint.last_planned(), checkpoint.last_committed()) == (-1, -1)
    folder = tmp_path / "spark"
    for path, text in (
        ("sources/0/0", '\0v1\n{"t":{"0":3,"1":0}}'),
        ("offsets/0", 'v1\n{"batchId":0}\n{"t":{"0":7,"1":2}}'),
        ("offsets/.0.crc", "x"),
        ("offsets/10", "v2\n{}\n{}"),
        ("commits/0", "v1\n{}"),
    ):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    assert (checkpoint.last_planned(), checkpoint.last_committed()) == (10, 0)
    assert checkpoint.ends(-1) == {("t", 0): 3, ("t", 1): 0}
    assert checkpoint.ends(0) == {("t", 0): 7, ("t", 1): 2}
    with pytest.raises(CheckpointError, match=r"offsets/1 is missing"):
        checkpoint.ends(1)
    with pytest.raises(UnknownVersion, match=r"offsets/10 has format version 'v2'"):
        checkpoint.ends(10)
