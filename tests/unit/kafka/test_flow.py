"""Flow control: demand by the owners' room, and which partitions are paused."""

from __future__ import annotations

from pixy.kafka.flow import FlowControl


def test_demand_equals_the_room_of_the_owners() -> None:
    flow: FlowControl[str] = FlowControl(10, 1000)
    flow.assigned(["a", "b"])
    assert flow.demand() == 20
    flow.took("a", 4, 40)
    assert flow.demand() == 16
    flow.credit("a", 4, 40)
    assert flow.demand() == 20
    flow.took("b", 2, 1000)
    assert flow.demand() == 10, "full by bytes"
    flow.revoked(["a"])
    assert flow.demand() == 0


def test_a_full_partition_is_paused_only_while_others_starve() -> None:
    flow: FlowControl[str] = FlowControl(10, 1000)
    flow.assigned(["a"])
    flow.took("a", 10, 100)
    assert flow.changes() == ([], []), "no other partition has room"
    flow.assigned(["b"])
    assert flow.changes() == (["a"], [])
    assert flow.demand() == 10
    flow.credit("a", 5, 50)
    assert flow.changes() == ([], []), "hysteresis"
    flow.credit("a", 3, 30)
    assert flow.changes() == ([], ["a"])


def test_a_single_partition_is_paused_at_twice_its_limit() -> None:
    flow: FlowControl[str] = FlowControl(10, 1000)
    flow.assigned(["a"])
    flow.took("a", 19, 190)
    assert flow.changes() == ([], [])
    flow.took("a", 1, 10)
    assert flow.changes() == (["a"], [])


def test_a_full_partition_that_is_fetched_again_is_paused_again() -> None:
    flow: FlowControl[str] = FlowControl(10, 1000)
    flow.assigned(["a", "b"])
    flow.took("a", 10, 100)
    assert flow.changes() == (["a"], [])
    flow.resumed("a")
    flow.resumed("revoked")
    assert flow.changes() == (["a"], [])
