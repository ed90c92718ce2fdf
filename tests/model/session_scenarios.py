"""What a session shows of its group: assignments, gaps, retention, growth, deletion, lost memberships."""

from __future__ import annotations

from tests.model.world import World


async def a_session_jumps_over_what_retention_removed(world: World) -> None:
    await world.topic("t")
    await world.produce("t/0", 10)
    a = world.member("a")
    await a.joins(t=1)
    await a.assigned("t/0")
    await a.fetched("t/0", 9)
    await a.commits(t_0=4)
    await a.leaves()
    await world.delete_records("t/0", 8)
    b = world.member("b")
    await b.joins(t=1)
    await b.assigned("t/0")
    await b.fetched("t/0", 9)


async def markers_and_aborted_records_are_gaps(world: World) -> None:
    await world.topic("t")
    await world.produce("t/0", 2)
    await world.begin("x")
    await world.produce_in("x", "t/0", 3)
    await world.end("x", commit=False)
    await world.begin("x")
    await world.produce_in("x", "t/0", 2)
    await world.end("x", commit=True)
    a = world.member("a")
    await a.joins(t=1)
    await a.assigned("t/0")
    await a.fetched("t/0", 7)
    await a.ended("t/0", 9)
    await a.commits(t_0=9)
    await world.begin("x")
    await world.produce_in("x", "t/0", 2)
    await world.end("x", commit=False)
    await a.ended("t/0", 12)
    await a.leaves()


async def a_new_group_begins_at_the_end_of_what_is_committed(world: World) -> None:
    """The bounds of a group are those of ``read_committed``: an open transaction is ahead of it."""
    await world.topic("t")
    await world.produce("t/0", 2)
    await world.begin("x")
    await world.produce_in("x", "t/0", 3)
    a = world.member("a", initial_offset="newest")
    await a.joins(t=1)
    await a.assigned("t/0")
    await world.end("x", commit=True)
    await world.produce("t/0", 1)
    await a.fetched("t/0", 6)


async def a_partition_that_is_added_begins_at_its_oldest_message(world: World) -> None:
    await world.topic("t")
    await world.produce("t/0", 2)
    a = world.member("a", initial_offset="newest")
    await a.joins(t=1)
    await a.assigned("t/0")
    await world.grow("t", 2)
    await world.produce("t/1", 3)
    await a.assigned("t/1")
    await a.fetched("t/1", 2)
    await world.produce("t/0", 1)
    await a.fetched("t/0", 2)


async def a_partition_that_was_added_to_a_group_with_offsets_begins_at_its_oldest_message(
    world: World,
) -> None:
    """A tool has set them: no generation of the group has committed anything."""
    await world.topic("t")
    await world.produce("t/0", 2)
    await world.sets_offset("t/0", 1)
    await world.grow("t", 2)
    await world.produce("t/1", 3)
    a = world.member("a", initial_offset="newest")
    await a.joins(t=2)
    await a.assigned("t/0", "t/1")
    await a.fetched("t/0", 1)
    await a.fetched("t/1", 2)


async def members_that_leave_while_they_join_are_not_waited_for(world: World) -> None:
    await world.topic("t")
    await world.produce("t/0", 2)
    for number in range(4):
        passing = world.member(f"x{number}")
        await passing.joins(t=1)
        await passing.leaves()
    a = world.member("a")
    await a.joins(t=1)
    await a.assigned("t/0")
    await a.fetched("t/0", 1)


async def a_member_that_is_expelled_loses_all_and_comes_back(world: World) -> None:
    await world.topic("t")
    await world.produce("t/0", 6)
    a = world.member("a")
    await a.joins(t=1)
    await a.assigned("t/0")
    await a.fetched("t/0", 5)
    await a.commits(t_0=2)
    await world.expels(a)
    await a.lost("t/0")
    await a.assigned("t/0")
    await a.fetched("t/0", 5)
    await a.commits(t_0=6)


async def a_partition_moves_to_a_member_that_joins(world: World) -> None:
    await world.topic("t", 2)
    await world.produce("t/0", 4)
    await world.produce("t/1", 4)
    a, b = world.member("a"), world.member("b")
    await a.joins(t=2)
    await a.assigned("t/0", "t/1")
    await a.fetched("t/0", 3)
    await a.fetched("t/1", 3)
    await b.joins(t=2)
    await a.revoked("t/0")
    await a.releases(t_0=2)
    await b.assigned("t/0")
    await b.fetched("t/0", 3)
    await a.commits(t_1=2)
    await b.leaves(t_0=3)
    await a.assigned("t/0")
    await a.fetched("t/0", 3)


async def a_commit_waits_while_a_revocation_waits_for_its_release(world: World) -> None:
    await world.topic("t", 2)
    a, b = world.member("a"), world.member("b")
    await a.joins(t=2)
    await a.assigned("t/0", "t/1")
    await world.produce("t/0", 4)
    await a.fetched("t/0", 3)
    await b.joins(t=2)
    await a.revoked("t/0")
    await a.begins_to_commit(t_0=1)
    await a.releases(t_0=3)
    await b.assigned("t/0")
    await a.committed(t_0=1)


async def a_release_that_comes_too_late_commits_nothing(world: World) -> None:
    await world.topic("t", 2)
    await world.produce("t/0", 4)
    a, b = world.member("a", drain_timeout=0.1), world.member("b")
    await a.joins(t=2)
    await a.assigned("t/0", "t/1")
    await a.fetched("t/0", 3)
    await a.commits(t_0=1)
    await b.joins(t=2)
    await a.revoked("t/0")
    await b.assigned("t/0")
    await a.releases(t_0=3)
    await b.fetched("t/0", 3)
    await b.leaves()
    await a.assigned("t/0")


async def the_partitions_of_a_topic_that_is_deleted_are_lost(world: World) -> None:
    """If it is made again, it begins at its oldest message, also in a group that had offsets of it: Kafka deletes them."""
    await world.topic("t")
    await world.topic("u")
    await world.produce("t/0", 4)
    await world.produce("u/0", 4)
    await world.sets_offset("t/0", 0)
    await world.sets_offset("u/0", 0)
    a = world.member("a", initial_offset="newest")
    await a.joins(t=1, u=1)
    await a.assigned("t/0", "u/0")
    await a.fetched("t/0", 3)
    await a.fetched("u/0", 3)
    await a.commits(t_0=4, u_0=4)
    await world.delete_topic("t")
    await a.lost("t/0")
    await world.produce("u/0", 1)
    await a.fetched("u/0", 4)
    await a.commits(t_0=4, u_0=5)
    await world.topic("t")
    await world.produce("t/0", 6)
    await a.assigned("t/0")
    await a.fetched("t/0", 5)


async def a_topic_that_is_made_again_at_once_is_read_from_its_beginning(world: World) -> None:
    await world.topic("t")
    await world.produce("t/0", 4)
    a = world.member("a")
    await a.joins(t=1)
    await a.assigned("t/0")
    await a.fetched("t/0", 3)
    await a.commits(t_0=4)
    await world.delete_topic("t")
    await world.topic("t")
    await world.produce("t/0", 6)
    await a.begins_to_commit(t_0=4)  # else the session would notice some seconds later
    await a.lost("t/0")
    await a.assigned("t/0")
    await a.fetched("t/0", 5)


async def a_seek_fetches_again_also_what_is_in_the_queue(world: World) -> None:
    await world.topic("t")
    await world.produce("t/0", 10)
    a = world.member("a")
    await a.joins(t=1)
    await a.assigned("t/0")
    await a.fetched("t/0", 9)
    await a.seeks("t/0", 3)
    await a.fetched("t/0", 9)
    await a.seeks("t/0", 20)
    await a.fetched("t/0", 9)
    await world.delete_records("t/0", 6)
    await a.seeks("t/0", 2)
    await a.fetched("t/0", 9)


async def retention_passes_a_member_that_is_behind(world: World) -> None:
    await world.topic("t")
    await world.produce("t/0", 4)
    a = world.member("a")
    await a.joins(t=1)
    await a.assigned("t/0")
    await a.fetched("t/0", 3)
    await world.delete_records("t/0", 4)
    await world.produce("t/0", 2)
    await a.fetched("t/0", 5)
    await a.seeks("t/0", 1)
    await a.ended("t/0", 4)
    await a.fetched("t/0", 5)
    await a.commits(t_0=2)
    await a.leaves()
    b = world.member("b")
    await b.joins(t=1)
    await b.assigned("t/0")
    await b.fetched("t/0", 5)


SCENARIOS = tuple(
    each
    for name, each in list(globals().items())
    if callable(each) and getattr(each, "__module__", "") == __name__ and not name.startswith("_")
)
