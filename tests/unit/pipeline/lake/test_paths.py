"""A lake touches nothing outside of its folder, and is named for each program as that program opens it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pixy.pipeline.errors import LakeError
from pixy.pipeline.lake import Lake
from pixy.pipeline.lake.locations import Location


@pytest.mark.parametrize("path", ["../secret", "data/../../secret", "/SECRET"])
def test_a_location_touches_nothing_outside(tmp_path: Path, path: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine")
    lake = tmp_path / "lake"
    (lake / "data").mkdir(parents=True)
    (lake / "data" / "a").write_text("a")
    location = Location(str(lake))
    path = path.replace("/SECRET", str(secret))
    for touch in (
        lambda: location.read(path),
        lambda: location.size(path),
        lambda: location.files(path),
        lambda: location.move(path, "data/b"),
        lambda: location.move("data/a", path),
        lambda: location.for_spark(path),
    ):
        with pytest.raises(LakeError, match="leads out of"):
            touch()
    assert secret.read_text() == "mine" and (lake / "data" / "a").exists()


@pytest.mark.parametrize(
    ("uri", "root", "spark"),
    [
        ("s3a://bucket/lake", "s3://bucket/lake", "s3a://bucket/lake/data"),
        ("s3://bucket/lake/", "s3://bucket/lake", "s3a://bucket/lake/data"),
        (
            "abfss://c@a.dfs.core.windows.net/l",
            "abfss://c@a.dfs.core.windows.net/l",
            "abfss://c@a.dfs.core.windows.net/l/data",
        ),
        ("gs://bucket/lake", "gs://bucket/lake", "gs://bucket/lake/data"),
        ("hdfs://namenode:8020/lake", "hdfs://namenode:8020/lake", "hdfs://namenode:8020/lake/data"),
    ],
)
def test_names_of_stores(uri: str, root: str, spark: str) -> None:
    location = Location(uri)
    assert (location.root, location.for_spark("data"), location.local) == (root, spark, False)
    assert location.for_arrow("data/a") == "data/a"


def test_names_of_local_folders(tmp_path: Path) -> None:
    folder = tmp_path / "a lake"
    for uri in (str(folder), f"file://{tmp_path}/a%20lake"):
        location = Location(uri)
        assert (location.root, location.local, location.filesystem) == (str(folder), True, None)
        assert location.for_spark("data") == f"file://{folder}/data"
    assert location.files("data") == [] and location.size("data") is None


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("", "the name of the lake is empty: give a folder or a URI"),
        ("s3a:/lake", "s3a:/lake is neither a folder nor a URI such as s3a://bucket/lake"),
        ("s3a://", "s3a:// is neither a folder nor a URI such as s3a://bucket/lake"),
        ("C:\\lake", "C:\\lake is neither a folder nor a URI such as s3a://bucket/lake"),
        (
            "file://lake",
            "file://lake names a host, not a folder: the URI of a folder has three slashes, as in file:///lake",
        ),
        ("htp://bucket/lake", "cannot open htp://bucket/lake: there is no store for htp://"),
        ("gs2://bucket/lake", "cannot open gs2://bucket/lake: there is no store for gs2://"),
    ],
)
def test_a_misspelt_name_is_refused(
    uri: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty name and `file://lake` made a lake in the working folder, and the others were tracebacks."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LakeError) as caught:
        Lake.open_or_create(uri, "main", "kafka-1")
    assert str(caught.value) == reason
    assert list(tmp_path.iterdir()) == []
