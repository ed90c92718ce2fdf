"""Choosing the partition of a produced message, with the original's vectors."""

from __future__ import annotations

import pytest

from pixy.engine.produce.partitioner import RoundRobinPartitioner, fnv1a_partition


@pytest.mark.parametrize(
    ("partitions", "vectors"),
    [
        (
            4,
            {
                "": 3,
                "1": 0,
                "2": 1,
                "3": 2,
                "4": 3,
                "5": 0,
                "foo": 1,
                "bar": 2,
                "A": 0,
                "B": 3,
                "C": 2,
                "D": 1,
            },
        ),
        (4, dict(zip("0123456789", (3, 0, 1, 2, 3, 0, 1, 2, 3, 0), strict=True))),
        (12, {"": 3, "1": 4, "foo": 1}),
        (64, {"": 59, "foo": 41, "bar": 26, "A": 52}),
    ],
)
def test_hash_vectors(partitions: int, vectors: dict[str, int]) -> None:
    assert {key: fnv1a_partition(key.encode(), partitions) for key in vectors} == vectors


def test_the_sign_rule_is_not_a_mask() -> None:
    def masked(key: bytes, partitions: int) -> int:
        value = 2166136261
        for byte in key:
            value = (value ^ byte) * 16777619 & 0xFFFFFFFF
        return (value & 0x7FFFFFFF) % partitions

    for partitions, differ in ((64, 495), (12, 420)):
        keys = [str(n).encode() for n in range(1000)]
        assert sum(fnv1a_partition(k, partitions) != masked(k, partitions) for k in keys) == differ


def test_roundrobin_partitioner() -> None:
    chooser = RoundRobinPartitioner()
    assert [chooser.choose((0, 1, 3)) for _ in range(4)] == [0, 1, 3, 0]
    assert chooser.choose(()) == -1
