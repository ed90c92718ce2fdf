"""A manifest names files of its lake, whoever wrote it: its digest says that it is whole, not that it is honest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pixy.pipeline.errors import LakeError, ManifestError
from pixy.pipeline.lake.arrow_store import ArrowStore
from pixy.pipeline.lake.manifest import BATCH, DataFile, Manifest, decode, encode
from pixy.pipeline.lake.store import LocalStore, Store

GOOD = "data/topic=t/date=2026-01-01/a.parquet"
MANIFEST = Manifest(
    0,
    "",
    BATCH,
    0,
    "j",
    0,
    "c",
    "read_committed",
    (),
    (DataFile(GOOD, "t", "2026-01-01", 1, 1, {}),),
    (GOOD,),
)
OUTSIDE = [
    "../secret",
    "/etc/passwd",
    "data/../../secret",
    "data/topic=t/../../../secret",
    "data/..",
    "..",
    "",
    "data",
    "data/",
    "data//a",
    "data/./a",
    "_lake.json",
    "_manifests/000000000000.json",
    "data\\..\\..\\secret",
    "data/a\0b",
    "file:///etc/passwd",
    7,
    None,
]


def test_a_manifest_of_its_own_files_is_read() -> None:
    assert decode(encode(MANIFEST)[0], "it").files == MANIFEST.files


@pytest.mark.parametrize("path", OUTSIDE, ids=repr)
def test_a_manifest_that_names_what_is_outside_is_refused(path: str) -> None:
    for forged in (
        replace(MANIFEST, replaces=(path,)),
        replace(MANIFEST, files=(replace(MANIFEST.files[0], path=path),)),
    ):
        with pytest.raises(ManifestError, match="is not one of a file in data/"):
            decode(encode(forged)[0], "it")


@pytest.mark.parametrize(
    ("field", "value"),
    [("topic", "../../t"), ("topic", ".."), ("date", "../../x"), ("date", "2026-01-01/..")],
)
def test_a_manifest_whose_topic_or_day_is_a_path_is_refused(field: str, value: str) -> None:
    forged = replace(MANIFEST, files=(replace(MANIFEST.files[0], **{field: value}),))
    with pytest.raises(ManifestError, match="the name"):
        decode(encode(forged)[0], "it")


@pytest.mark.parametrize(
    "made", [LocalStore, lambda root: ArrowStore(f"file://{root}")], ids=["local", "arrow"]
)
@pytest.mark.parametrize("path", ["../secret", "data/../../secret", "/SECRET"])
def test_a_store_touches_nothing_outside(tmp_path: Path, made: Callable[[str], Store], path: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine")
    lake = tmp_path / "lake"
    (lake / "data").mkdir(parents=True)
    (lake / "data" / "a").write_text("a")
    store = made(str(lake))
    path = path.replace("/SECRET", str(secret))
    for touch in (
        lambda: store.read(path),
        lambda: store.size(path),
        lambda: store.names(path),
        lambda: store.walk(path),
        lambda: store.remove(path),
        lambda: store.move(path, "data/b"),
        lambda: store.move("data/a", path),
        lambda: store.publish(path, b"x"),
        lambda: store.replace(path, b"x"),
    ):
        with pytest.raises(LakeError):
            touch()
    assert secret.read_text() == "mine" and (lake / "data" / "a").exists()
