"""The admin's questions about groups: whom it asks, in which order, and whom it believes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import pytest

from actors.testing import Sim, simulate
from pixy.config.model import Proxy
from pixy.engine.admin import Admin, Owners
from pixy.engine.admin_messages import (
    AdminRequest,
    AlterTopic,
    Consumers,
    DeleteGroup,
    DescribeGroup,
    GetConsumers,
    GetOffsets,
    ListGroups,
    SetOffsets,
)
from pixy.errors import (
    ChangesForbidden,
    GroupActive,
    GroupHasMembers,
    InvalidParameter,
    KafkaError,
    UnknownGroup,
)
from pixy.kafka.errors import error_of, unsupported
from pixy.kafka.group_members import DEAD, DescribedGroup, GroupMember, Groups, ListedGroup
from pixy.kafka.topics import PartitionInfo
from pixy.wire.errors import ErrorCode
from pixy.wire.types import TopicPartition

TOPIC = "t"
NOT_COORDINATOR, REFUSED, NOT_CONTROLLER = 16, 30, 41
MEMBER = GroupMember("c", "c-1", ((TOPIC, 0), ("other", 1)))


class FakeKafka:
    """Stands for :class:`pixy.kafka.admin.KafkaAdmin`: two partitions, and what a test says about groups."""

    def __init__(self) -> None:
        self.listed: list[str] = []
        self.described: dict[str, DescribedGroup] = {}
        self.commits: dict[TopicPartition, int] = {}
        self.end = 10
        self.fails: list[KafkaError] = []
        self.asked: list[str] = []

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.fails:
            raise self.fails.pop(0)

    def close(self) -> None:
        pass

    async def topic(self, topic: str) -> tuple[tuple[PartitionInfo, ...], str]:
        return await self.partitions(topic), ""

    async def partitions(self, _topic: str) -> tuple[PartitionInfo, ...]:
        return tuple(PartitionInfo(number, 1, (1,), (1,)) for number in range(2))

    async def groups(self) -> list[str]:
        self._ask("groups")
        return self.listed

    async def listed_groups(self) -> list[ListedGroup]:
        return [ListedGroup(each, "Stable", "classic") for each in await self.groups()]

    async def describe(self, groups: Sequence[str]) -> Groups:
        return {each: (await self.describe_group(each)).members for each in groups}

    async def describe_group(self, group: str) -> DescribedGroup:
        self._ask("describe")
        return self.described.get(group, DescribedGroup(DEAD, ()))

    async def committed(self, _group: str) -> dict[TopicPartition, tuple[int, str]]:
        self._ask("committed")
        return {each: (offset, "") for each, offset in self.commits.items()}

    async def offsets(self, _group: str, topic: str, partitions: Iterable[int]) -> dict[int, tuple[int, str]]:
        self._ask("offsets")
        return {each: (self.commits.get((topic, each), -1), "") for each in partitions}

    async def bounds(self, _topic: str, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        self._ask("bounds")
        return dict.fromkeys(partitions, (0, self.end))

    async def change(self, _change: Any) -> None:
        self._ask("change")

    async def set_offsets(self, _group: str, _commits: Any) -> None:
        self._ask("set offsets")


class Asked(Admin):
    """An admin with a fake Kafka."""

    def __init__(self, kafka: Any, *args: Any) -> None:
        super().__init__(*args)
        self._client = kafka


class Stage:
    """An admin, and what surrounds it."""

    def __init__(self, sim: Sim, owners: Owners | None, **proxy: Any) -> None:
        self.kafka = FakeKafka()
        self.own: dict[str, dict[str, list[int]]] = {}
        self.ref = sim.system.spawn(Asked, self.kafka, Proxy(**proxy), self._local, owners)

    async def _local(self) -> dict[str, dict[str, list[int]]]:
        return self.own

    async def ask(self, message: AdminRequest[Any]) -> Any:
        return await self.ref.ask(message, block=False)


Scenario = Callable[[Stage], Awaitable[None]]


def play(scenario: Scenario, owners: Owners | None = None, **proxy: Any) -> None:
    """Run a scenario in virtual time."""

    async def run(sim: Sim) -> None:
        await scenario(Stage(sim, owners, **proxy))

    simulate(run)


async def _claimed(topic: str, group: str) -> Consumers:
    """ZooKeeper, where the group "claimed" consumes another topic than ours."""
    assert topic in ("", TOPIC)
    if group != "claimed":
        raise UnknownGroup(f"unknown consumer group {group}")
    return {} if topic else {group: {"m": []}}


def test_a_group_with_members_in_zookeeper_is_not_deleted() -> None:
    """Kafka knows nothing of them: it would delete the offsets, and the members would begin anew."""

    async def scenario(stage: Stage) -> None:
        with pytest.raises(GroupHasMembers, match="group claimed has members"):
            await stage.ask(DeleteGroup("claimed"))
        assert not stage.kafka.asked
        await stage.ask(SetOffsets("claimed", TOPIC, ((0, 1, ""),)))  # of a topic that nobody consumes
        await stage.ask(DeleteGroup("empty"))
        assert stage.kafka.asked == ["set offsets", "change"]

    play(scenario, _claimed)


def test_a_group_of_this_daemon_is_not_deleted() -> None:
    async def scenario(stage: Stage) -> None:
        stage.own = {"own": {}}
        with pytest.raises(GroupHasMembers):
            await stage.ask(DeleteGroup("own"))
        with pytest.raises(GroupActive):
            await stage.ask(SetOffsets("own", TOPIC, ((0, 1, ""),)))
        await stage.ask(DeleteGroup("other"))
        assert stage.kafka.asked == ["change"]

    play(scenario)


def test_nobody_is_asked_about_a_change_that_is_forbidden() -> None:
    async def nobody(_topic: str, _group: str) -> Consumers:
        raise AssertionError("asked")

    async def scenario(stage: Stage) -> None:
        with pytest.raises(ChangesForbidden):
            await stage.ask(DeleteGroup("g"))

    play(scenario, nobody, admin_changes=False)


def test_a_group_that_no_broker_lists_is_known_to_its_coordinator() -> None:
    """It is missing from the lists while it moves from one broker to another."""

    async def scenario(stage: Stage) -> None:
        stage.kafka.described["g"] = DescribedGroup("Stable", (MEMBER,))
        assert await stage.ask(GetConsumers(TOPIC, "g")) == {"g": {"c": [0]}}
        stage.kafka.fails = [error_of(NOT_COORDINATOR)] * 3
        assert await stage.ask(GetConsumers(TOPIC, "g")) == {"g": {"c": [0]}}
        stage.kafka.fails = [error_of(REFUSED)]
        with pytest.raises(KafkaError, match="not authorized to access this group"):
            await stage.ask(GetConsumers(TOPIC, "g"))
        assert "groups" not in stage.kafka.asked

    play(scenario)


def test_a_group_is_unknown_only_if_it_has_neither_members_nor_commits() -> None:
    async def scenario(stage: Stage) -> None:
        for described in (DescribedGroup(DEAD, ()), DescribedGroup("Stable", (MEMBER,), consumers=False)):
            stage.kafka.described["g"] = described
            with pytest.raises(UnknownGroup, match=r"^unknown consumer group g$"):
                await stage.ask(GetConsumers(TOPIC, "g"))
        for described in (DescribedGroup(DEAD, ()), DescribedGroup("Empty", ())):
            stage.kafka.described["g"] = described
            stage.kafka.commits = {("other", 1): 5}
            with pytest.raises(UnknownGroup, match=r"^topic t is not consumed by g$"):
                await stage.ask(GetConsumers(TOPIC, "g"))
            stage.kafka.commits = {(TOPIC, 1): 5}
            assert await stage.ask(GetConsumers(TOPIC, "g")) == {}

    play(scenario)


def test_lists_are_asked_for_again_while_a_broker_is_restarted() -> None:
    async def scenario(stage: Stage) -> None:
        stage.kafka.listed = ["g"]
        stage.kafka.described["g"] = DescribedGroup("Stable", (MEMBER,))
        for message, expected in (
            (GetConsumers(TOPIC), {"g": {"c": [0]}}),
            (ListGroups(), [ListedGroup("g", "Stable", "classic")]),
        ):
            stage.kafka.fails = [error_of(NOT_COORDINATOR).wrapped("failed to list the groups of broker 1")]
            assert await stage.ask(message) == expected

    play(scenario)


def test_a_group_that_commits_while_its_offsets_are_read_has_no_lag_below_0() -> None:
    """The end is read last, so it is not older than any commit."""

    async def scenario(stage: Stage) -> None:
        stage.kafka.commits = {(TOPIC, 0): 10, (TOPIC, 1): 12}
        ask = stage.kafka._ask

        def busy(what: str) -> None:
            ask(what)
            stage.kafka.end += 5
            stage.kafka.commits[TOPIC, 0] = stage.kafka.end

        stage.kafka._ask = busy
        found = await stage.ask(GetOffsets("g", TOPIC))
        assert [each.lag for each in found] == [5, 8]

    play(scenario)


class FakeChanges:
    """Stands for :class:`pixy.kafka.topic_changes.TopicChanges`. The controller moves: each kind of request is refused once."""

    def __init__(self, wrong: str = "") -> None:
        self.made: list[str] = []
        self.refused: set[str] = set()
        self.wrong = wrong

    def _make(self, what: str, validate_only: bool) -> None:
        if what not in self.refused:
            self.refused.add(what)
            raise error_of(NOT_CONTROLLER)
        if what == self.wrong:
            raise InvalidParameter("no such setting")
        if validate_only:
            return
        assert what not in self.made, "Kafka refuses to make it twice"
        self.made.append(what)

    def add_partitions(self, _topic: str, _count: int, *, validate_only: bool) -> None:
        self._make("partitions", validate_only)

    def alter_config(self, _topic: str, _values: Any, _defaults: Any, *, validate_only: bool) -> None:
        self._make("settings", validate_only)


@pytest.mark.parametrize("partitions", [0, 5])
@pytest.mark.parametrize("values", [{}, {"retention.ms": "1"}])
def test_partitions_that_were_added_are_not_added_again_when_the_settings_are_refused(
    partitions: int, values: dict[str, str]
) -> None:
    async def scenario(stage: Stage) -> None:
        changes: Any = FakeChanges()

        async def change(make: Callable[[Any], None]) -> None:
            make(changes)

        stage.kafka.change = change  # type: ignore[method-assign]
        await stage.ask(AlterTopic(TOPIC, values, (), partitions))
        assert changes.made == ["partitions"] * bool(partitions) + ["settings"] * bool(values)

    play(scenario)


@pytest.mark.parametrize("validate_only", [False, True])
def test_partitions_are_not_added_when_the_settings_are_refused(validate_only: bool) -> None:
    """They cannot be taken away again, and the corrected request would be refused: the topic has so many already."""

    async def scenario(stage: Stage) -> None:
        changes: Any = FakeChanges(wrong="settings")

        async def change(make: Callable[[Any], None]) -> None:
            make(changes)

        stage.kafka.change = change  # type: ignore[method-assign]
        with pytest.raises(InvalidParameter):
            await stage.ask(AlterTopic(TOPIC, {"retention.ms": "x"}, (), 5, validate_only))
        assert changes.made == []

    play(scenario)


class SandboxKafka(FakeKafka):
    """The sandbox: it lists and describes no groups, and sets offsets of a group that has had members as a member."""

    async def groups(self) -> list[str]:
        raise unsupported("ListGroups")

    async def describe_group(self, group: str) -> DescribedGroup:
        raise unsupported("DescribeGroups")

    async def topics(self) -> dict[str, tuple[PartitionInfo, ...]]:
        return {TOPIC: await self.partitions(TOPIC)}

    async def set_offsets(self, _group: str, _commits: Any) -> None:
        raise error_of(ErrorCode.UNKNOWN_MEMBER_ID)

    async def set_sandbox_offsets(self, group: str, commits: Any, consumer: Any) -> None:
        assert consumer["group.id"] == group
        self.commits |= {(each.topic, each.partition): each.offset for each in commits}


def in_sandbox(scenario: Scenario, *known: str) -> None:
    """Run a scenario on the sandbox, where the daemon has consumed for groups."""

    async def known_groups() -> list[str]:
        return list(known)

    async def run(sim: Sim) -> None:
        stage = Stage(sim, None)
        stage.kafka = SandboxKafka()
        stage.ref = sim.system.spawn(Asked, stage.kafka, Proxy(), stage._local, None, known_groups)
        await scenario(stage)

    simulate(run)


def test_the_sandbox_has_groups_without_members() -> None:
    """It listed those with members alone: ``group describe`` knew nothing of a group whose offsets were there."""

    async def scenario(stage: Stage) -> None:
        stage.own["busy"] = {TOPIC: [0]}
        listed = await stage.ask(ListGroups())
        assert [(each.name, each.state) for each in listed] == [("bar", "Empty"), ("busy", "Stable")]
        found = await stage.ask(DescribeGroup("bar"))
        assert (found.state, found.members, found.offsets) == ("Empty", (), {})
        with pytest.raises(UnknownGroup, match="unknown consumer group none"):
            await stage.ask(DescribeGroup("none"))
        stage.kafka.commits[TOPIC, 1] = 7
        found = await stage.ask(DescribeGroup("set-from-outside"))
        assert [each.offset for each in found.offsets[TOPIC]] == [-1, 7] and found.state == "Empty"

    in_sandbox(scenario, "bar", "busy")


def test_the_sandbox_sets_offsets_of_a_group_whose_members_have_gone() -> None:
    """It refused them for ever."""

    async def scenario(stage: Stage) -> None:
        await stage.ask(SetOffsets("bar", TOPIC, ((0, 1, ""), (1, -2, "x"))))
        assert stage.kafka.commits == {(TOPIC, 0): 1, (TOPIC, 1): -2}
        stage.own["bar"] = {TOPIC: [0]}
        with pytest.raises(GroupActive, match="group bar is being consumed"):
            await stage.ask(SetOffsets("bar", TOPIC, ((0, 1, ""),)))

    in_sandbox(scenario)


def test_kafka_s_refusal_to_set_offsets_is_a_group_with_members() -> None:
    async def scenario(stage: Stage) -> None:
        stage.kafka.fails = [error_of(ErrorCode.UNKNOWN_MEMBER_ID)]
        with pytest.raises(GroupActive, match="group g is being consumed"):
            await stage.ask(SetOffsets("g", TOPIC, ((0, 1, ""),)))

    play(scenario)
