"""Znodes and ranges, to the letter of the Go original."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from pixy.errors import InvalidParameter
from pixy.membership.zookeeper.assignment import assign_ranges, partitions_of
from pixy.membership.zookeeper.layout import (
    Layout,
    check_name,
    decode_member,
    encode_member,
    normalize_chroot,
)


def test_paths() -> None:
    layout = Layout("/kafka", "g")
    assert layout.member("kp_host_7") == "/kafka/consumers/g/ids/kp_host_7"
    assert layout.claim(("t", 3)) == "/kafka/consumers/g/owners/t/3"
    assert Layout("", "g").path == "/consumers/g"


@pytest.mark.parametrize(
    ("text", "path"), [("", ""), ("/", ""), ("/kafka", "/kafka"), ("/a/b/", "/a/b"), ("a", "/a")]
)
def test_chroots(text: str, path: str) -> None:
    assert normalize_chroot(text) == path


@pytest.mark.parametrize("text", ["/a//b", "/..", "/a/./b", "/a\0"])
def test_bad_chroots(text: str) -> None:
    with pytest.raises(ValueError, match="is not a path of ZooKeeper"):
        normalize_chroot(text)


@pytest.mark.parametrize("group", ["g", "a.b-c_d", "gruppe-ä", "...", "a b"])
def test_groups_that_can_name_a_znode(group: str) -> None:
    assert check_name(group) == group


@pytest.mark.parametrize("group", ["a/b", "/", ".", "..", "a\x01", "a\x7f", "\ue000"])
def test_groups_that_cannot_name_a_znode(group: str) -> None:
    with pytest.raises(InvalidParameter, match="bad group: ZooKeeper does not allow"):
        check_name(group)


def test_a_registration_is_the_originals_to_the_byte() -> None:
    assert encode_member(["foo", "bar"], 1437682393.7) == (
        b'{"subscription":{"bar":1,"foo":1},"pattern":"static","timestamp":1437682393,"version":1}'
    )


@pytest.mark.parametrize(
    ("data", "topics"),
    [
        (
            b'{"subscription":{"bar":1,"foo":1},"pattern":"static","timestamp":1437682393,"version":1}',
            "bar foo",
        ),
        # From the original, v0.18.0:
        (b'{"subscription":{"t":1},"pattern":"static","timestamp":1795345122,"version":1}', "t"),
        (b'{"version":1,"subscription":{"foo":4},"pattern":"white_list","timestamp":"1437682393000"}', "foo"),
        (b'{"subscription":null}', ""),
        (b"{}", ""),
    ],
)
def test_registrations_of_the_original_and_of_java(data: bytes, topics: str) -> None:
    assert decode_member(data) == frozenset(topics.split())


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"7", b'{"subscription":[]}', b"\xff"])
def test_registrations_that_are_not_valid(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode_member(data)


@given(st.frozensets(st.text(min_size=1, max_size=8)))
def test_a_registration_comes_back(topics: frozenset[str]) -> None:
    assert decode_member(encode_member(topics, 0)) == topics


@pytest.mark.parametrize(
    ("partitions", "members", "ranges"),
    [
        (7, "a b c", {"a": [0, 1, 2], "b": [3, 4], "c": [5, 6]}),
        (2, "c b a", {"a": [0], "b": [1], "c": []}),
        (4, "a", {"a": [0, 1, 2, 3]}),
        (0, "a", {"a": []}),
        (3, "", {}),
        (2, "b B a_ a.", {"B": [0], "a.": [1], "a_": [], "b": []}),  # in the order of their bytes
    ],
)
def test_ranges(partitions: int, members: str, ranges: dict[str, list[int]]) -> None:
    assert assign_ranges(range(partitions), members.split()) == ranges


@given(st.integers(0, 200), st.sets(st.text(min_size=1, max_size=3), min_size=1, max_size=9))
def test_each_partition_goes_to_one_member_and_shares_differ_by_one(count: int, members: set[str]) -> None:
    ranges = assign_ranges(range(count), members)
    assert [number for member in sorted(ranges, key=str.encode) for number in ranges[member]] == list(
        range(count)
    )
    sizes = [len(numbers) for numbers in ranges.values()]
    assert max(sizes) - min(sizes) <= 1


def test_ranges_that_members_of_both_kinds_were_seen_to_take() -> None:
    """One group of instances of the original (go-*) and ours (py-*), 7 partitions, Kafka 3.9."""
    assert assign_ranges(range(7), {"go-b", "py-a"}) == {"go-b": [0, 1, 2, 3], "py-a": [4, 5, 6]}
    assert assign_ranges(range(7), {"go-b", "py-a", "py-c"}) == {
        "go-b": [0, 1, 2],
        "py-a": [3, 4],
        "py-c": [5, 6],
    }
    assert assign_ranges(range(7), {"go-b", "go-d", "py-a"}) == {
        "go-b": [0, 1, 2],
        "go-d": [3, 4],
        "py-a": [5, 6],
    }


def test_only_subscribers_share_a_topic() -> None:
    subscriptions = {"a": {"t"}, "b": {"t", "u"}, "c": {"u", "missing"}}
    counts = {"t": 2, "u": 3}
    assert partitions_of("a", subscriptions, counts) == {("t", 0)}
    assert partitions_of("b", subscriptions, counts) == {("t", 1), ("u", 0), ("u", 1)}
    assert partitions_of("c", subscriptions, counts) == {("u", 2)}
    assert partitions_of("d", subscriptions, counts) == set()
