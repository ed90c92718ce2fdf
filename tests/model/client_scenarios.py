"""What librdkafka does with assignments, pauses, seeks and odd logs."""

from __future__ import annotations

from tests.model.world import World


async def a_pause_is_kept_when_the_partition_comes_back(world: World) -> None:
    await world.topic("t", 2)
    await world.produce("t/0", 3)
    await world.produce("t/1", 3)
    a = world.client("a")
    await a.assign({"t/0": 0, "t/1": 0})
    await a.fetched("t/0", 2)
    await a.fetched("t/1", 2)
    await a.pause("t/0")
    await a.remove("t/0")
    await a.add({"t/0": 1})
    await a.settles()
    await a.resume("t/0")
    await a.fetched("t/0", 2)


async def a_new_assignment_of_everything_keeps_the_pause_too(world: World) -> None:
    await world.topic("t", 2)
    await world.produce("t/0", 3)
    await world.produce("t/1", 3)
    a = world.client("a")
    await a.assign({"t/0": 0, "t/1": 0})
    await a.fetched("t/0", 2)
    await a.fetched("t/1", 2)
    await a.pause("t/0")
    await a.assign({})
    await a.assign({"t/0": 1, "t/1": 1})
    await a.fetched("t/1", 2)
    await a.settles()
    await a.resume("t/0")
    await a.fetched("t/0", 2)


async def a_seek_drops_what_is_in_the_queue(world: World) -> None:
    await world.topic("t")
    await world.produce("t/0", 10)
    a = world.client("a")
    await a.assign({"t/0": 0})
    await a.takes("t/0", 1)
    await a.position("t/0")
    await a.seek("t/0", 5)
    await a.position("t/0")
    await a.fetched("t/0", 9)
    await a.position("t/0")
    await a.settles()


async def a_pause_drops_what_is_in_the_queue_and_a_resume_fetches_it_again(world: World) -> None:
    await world.topic("t")
    await world.produce("t/0", 10)
    a = world.client("a")
    await a.assign({"t/0": 0})
    await a.takes("t/0", 2)
    await a.pause("t/0")
    await a.settles()
    await a.position("t/0")
    await a.resume("t/0")
    await a.fetched("t/0", 9)


async def retention_passes_the_position_of_a_client_that_is_at_the_end_of_its_queue(world: World) -> None:
    await world.topic("t")
    await world.produce("t/0", 10)
    a = world.client("a")
    await a.assign({"t/0": 0})
    await a.fetched("t/0", 9)
    await a.pause("t/0")
    await world.produce("t/0", 10)
    await world.delete_records("t/0", 15)
    await a.bounds("t/0")
    await a.resume("t/0")
    await a.fetched("t/0", 19)
    await a.position("t/0")


async def records_in_the_queue_outlive_their_deletion(world: World) -> None:
    await world.topic("t")
    await world.produce("t/0", 10)
    a = world.client("a")
    await a.assign({"t/0": 0})
    await a.takes("t/0", 1)
    await world.delete_records("t/0", 10)
    await world.produce("t/0", 2)
    await a.fetched("t/0", 11)


async def an_offset_out_of_range_is_an_error_where_the_reset_says_so(world: World) -> None:
    await world.topic("t", 2)
    await world.produce("t/0", 10)
    await world.produce("t/1", 2)
    await world.delete_records("t/0", 5)
    a = world.client("a", reset="error")
    await a.assign({"t/0": 3, "t/1": 0})
    await a.failed("_AUTO_OFFSET_RESET")
    await a.settles()
    await a.seek("t/0", 5)
    await a.remove("t/0")
    await a.add({"t/0": 5})
    await a.fetched("t/0", 9)


async def a_position_beyond_the_end_goes_back_to_the_oldest(world: World) -> None:
    await world.topic("t")
    await world.produce("t/0", 4)
    a = world.client("a")
    await a.assign({"t/0": 9})
    await a.fetched("t/0", 3)


async def aborted_records_and_markers_take_offsets_and_are_not_given(world: World) -> None:
    await world.topic("t")
    await world.produce("t/0", 2)
    await world.begin("x")
    await world.produce_in("x", "t/0", 3)
    a, b = world.client("a"), world.client("b", isolation="read_uncommitted")
    await a.assign({"t/0": 0})
    await b.assign({"t/0": 0})
    await a.settles()
    await b.settles()
    await a.bounds("t/0")
    await b.bounds("t/0")
    await world.end("x", commit=False)
    await a.settles()
    await a.bounds("t/0")
    await a.position("t/0")
    await world.produce("t/0", 1)
    await a.settles()
    await b.settles()


async def a_committed_transaction_ends_with_a_marker_that_nobody_gets(world: World) -> None:
    await world.topic("t")
    await world.begin("x")
    await world.produce_in("x", "t/0", 3)
    await world.produce("t/0", 1)
    a = world.client("a")
    await a.assign({"t/0": 0})
    await a.settles()
    await world.end("x", commit=True)
    await a.settles()
    await a.position("t/0")
    await a.bounds("t/0")


async def a_topic_that_is_made_again_is_read_from_its_beginning(world: World) -> None:
    await world.topic("t")
    await world.produce("t/0", 5)
    a = world.client("a")
    await a.assign({"t/0": 0})
    await a.fetched("t/0", 4)
    await world.delete_topic("t")
    await world.topic("t")
    await world.produce("t/0", 3)
    await a.fetched("t/0", 2)
    await a.position("t/0")


async def a_topic_that_is_made_again_and_is_longer_than_before(world: World) -> None:
    await world.topic("t")
    await world.produce("t/0", 5)
    a = world.client("a")
    await a.assign({"t/0": 0})
    await a.fetched("t/0", 4)
    await world.delete_topic("t")
    await world.topic("t")
    await world.produce("t/0", 8)
    await a.fetched("t/0", 7)
    await a.position("t/0")


async def a_topic_that_is_deleted_shows_no_error(world: World) -> None:
    """Neither an event within ten seconds, nor an answer to an assignment: only a lookup says so."""
    await world.topic("t")
    await world.produce("t/0", 5)
    a = world.client("a")
    await a.assign({"t/0": 0})
    await a.fetched("t/0", 4)
    await world.delete_topic("t")
    await a.settles()
    await a.bounds("t/0")
    await a.seek("t/0", 2)
    await a.settles()
    await a.remove("t/0")
    await a.add({"t/0": 0})
    await a.settles()


async def a_partition_that_does_not_exist_yet_is_fetched_when_it_does(world: World) -> None:
    await world.topic("t")
    a = world.client("a")
    await a.assign({"t/0": 0, "t/1": 0})
    await a.settles()
    await a.bounds("t/1")
    await world.grow("t", 2)
    await world.produce("t/1", 2)
    await a.fetched("t/1", 1)


SCENARIOS = tuple(
    each
    for name, each in list(globals().items())
    if callable(each) and getattr(each, "__module__", "") == __name__ and not name.startswith("_")
)
