"""Stats computed with numpy equal those of the definition in pure Python, record by record."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st
from xxhash import xxh64_intdigest

from pixy.pipeline.errors import LakeError
from pixy.pipeline.lake import parquet_stats
from pixy.pipeline.lake.lake import Lake
from pixy.pipeline.lake.parquet_stats import read_stats
from tests.unit.pipeline.support import Row, make_lake, rows, stats_of, write_file

words = st.integers(0, (1 << 64) - 1)


@settings(deadline=None)
@given(st.lists(st.tuples(words, words), min_size=1))
def test_the_hash_is_xxh64(pairs: list[tuple[int, int]]) -> None:
    values, seeds = (np.array(column, np.uint64) for column in zip(*pairs, strict=True))
    assert parquet_stats._hash_long(values, seeds).tolist() == [
        xxh64_intdigest(value.to_bytes(8, "little"), seed) for value, seed in pairs
    ]
    assert parquet_stats._hash_int(values, seeds).tolist() == [
        xxh64_intdigest((value & 0xFFFFFFFF).to_bytes(4, "little"), seed) for value, seed in pairs
    ]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return make_lake(tmp_path_factory.mktemp("lake") / "lake")


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(0, 1 << 40),
            st.integers(-1, 1 << 45),
            st.none() | st.binary(max_size=5),
            st.none() | st.binary(max_size=50),
            st.none()
            | st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3),
        ),
        min_size=1,
        max_size=50,
    )
)
def test_stats_of_any_file(lake: Lake, made: list[Row]) -> None:
    file = write_file(lake, "t", "2023-11-14", "f", made, row_group_size=7)
    assert read_stats(lake.path(file.path)) == {
        ("t", number): stats for number, stats in stats_of("t", made).items()
    }


def test_topics_in_one_file_are_kept_apart(lake: Lake) -> None:
    both = [write_file(lake, topic, "2023-11-14", "f", rows(0, range(9))) for topic in ("a", "b")]
    tables = [pq.read_table(lake.path(file.path)) for file in both]
    path = lake.path("both.parquet")
    pq.write_table(pa.concat_tables(tables), path)
    assert read_stats(path) == {(each.file.topic, 0): each.partitions[0] for each in both}


def test_a_damaged_file_is_named(lake: Lake) -> None:
    Path(lake.path("x.parquet")).write_bytes(b"PAR1" * 10)
    with pytest.raises(LakeError, match=r"x.parquet cannot be read"):
        read_stats(lake.path("x.parquet"))
