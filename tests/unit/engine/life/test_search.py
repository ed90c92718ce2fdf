"""Messages are found by key and header in the newest part of a topic, and the answer says which part that was."""

from __future__ import annotations

from collections.abc import Iterator

from pixy.engine.life.search import MOST_MATCHES, Matches, Wanted, search
from pixy.kafka.log_reader import Budget, LogReader
from pixy.wire.record import Record


class Logs(LogReader):
    """Partitions in memory whose records are numbered from 0; a None is an offset that compaction has emptied."""

    def __init__(self, partitions: dict[int, list[Record | None]]) -> None:
        self._partitions = partitions

    def scan(self, topic: str, partition: int, start: int, stop: int, budget: Budget) -> Iterator[Record]:
        for record in self._partitions[partition][start:stop]:
            if not budget.left:
                return
            if record is not None:
                budget.records -= 1
                yield record


def log(keys: list[str | None], first_time: int = 0) -> list[Record | None]:
    return [
        None
        if key is None
        else Record(at, first_time + at, key.encode(), b"v", (("n", b"%d" % at), ("odd", None)))
        for at, key in enumerate(keys)
    ]


def found(logs: dict[int, list[Record | None]], wanted: Wanted, records: int = 100) -> Matches:
    ranges = {number: (0, len(each)) for number, each in logs.items()}
    return search(Logs(logs), "t", ranges, wanted, Budget(records, 1 << 20, 60.0))


def test_the_newest_matches_come_first() -> None:
    logs = {0: log(["a", "b", "a"], 100), 1: log(["a"], 101)}
    document = found(logs, Wanted(b"a")).document()
    assert [(each["partition"], each["offset"]) for each in document["matches"]] == [(0, 2), (1, 0), (0, 0)]
    assert document["total"] == 3


def test_a_header_is_name_and_value_and_both_conditions_count() -> None:
    logs = {0: log(["a", "b", "a"])}
    assert [each[2] for each in found(logs, Wanted(header=("n", b"1"))).found] == [1]
    assert found(logs, Wanted(header=("m", b"1"))).found == []
    assert found(logs, Wanted(b"a", ("n", b"1"))).found == []
    assert [each[2] for each in found(logs, Wanted(b"a", ("n", b"2"))).found] == [2]


def test_only_the_newest_part_is_read_if_the_budget_is_small() -> None:
    logs = {0: log(["a"] * 10), 1: log(["a"] * 2)}
    document = found(logs, Wanted(b"a"), records=6).document()
    assert document["searched"] == [
        {"partition": 0, "from": 6, "to": 10, "complete": True, "failed": ""},
        {"partition": 1, "from": 0, "to": 2, "complete": True, "failed": ""},
    ]
    assert document["total"] == 6, "what the small one leaves is for the large one"


def test_a_part_that_was_not_reached_is_said() -> None:
    logs = Logs({0: log(["a"] * 10)})
    budget = Budget(10, 1 << 20, 60.0)
    budget.size = 0
    document = search(logs, "t", {0: (0, 10)}, Wanted(b"a"), budget).document()
    assert document["searched"][0] == {"partition": 0, "from": 0, "to": 0, "complete": False, "failed": ""}


def test_a_log_with_gaps_is_searched_to_its_end() -> None:
    document = found({0: log(["a", None, "a", None])}, Wanted(b"a")).document()
    assert document["searched"][0]["complete"] and document["total"] == 2


def test_matches_are_bounded_and_counted() -> None:
    matches = found({0: log(["a"] * 50)}, Wanted(b"a"))
    assert (len(matches.found), matches.total) == (MOST_MATCHES, 50)
    assert min(each[2] for each in matches.found) == 50 - MOST_MATCHES
