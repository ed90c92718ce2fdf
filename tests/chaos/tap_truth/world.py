"""Three brokers, a tap before them, groups that read through it, and what happens to all of these."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from pixy.tap.config import TapConfig, show_address
from pixy.tap.service import TapService
from pixy.wire import client as wire
from pixy.wire.consumer_protocol import decode_assignment
from pixy.wire.errors import KafkaError
from pixy.wire.exceptions import WireError
from tests.chaos.tap_truth.checker import Answer, Truth
from tests.conftest import KIP_848
from tests.integration.tap.support import Member, Table, start_member
from tests.kafka.cluster import Cluster, tool

TOPIC, PARTITIONS = "orders", 4
LIVE: Final = {"readers": "classic", "readers-next": "consumer"}
"""Groups with members, and their protocols."""
IDLE: Final = "idle"
"""A group without members: its lag grows."""
GROUPS: Final = (*LIVE, IDLE)
UNREACHABLE: Final = (WireError, KafkaError, OSError, RuntimeError)
_SESSION: Final = KIP_848["group.consumer.session.timeout.ms"] / 1000
_CALL: Final[dict[str, Any]] = {"request_timeout": 2.0, "dial_timeout": 0.5}
_RATE: Final = 0.01
_ATTEMPTS: Final = 20


class World:
    """Everything that runs. Methods that block run in threads.

    Args:
        seed: draws what the faults hit.
        folder: gets the members' logs.
        verify: the tap's ``--verify``, 0 for none.
    """

    def __init__(self, seed: int, folder: Path, verify: float) -> None:
        self.random = random.Random(seed)
        self.truth = Truth()
        self._folder, self._verify = folder, verify
        self.members: dict[str, list[Member]] = {group: [] for group in LIVE}
        self._number = 0
        self._writing = threading.Event()
        self._over = threading.Event()
        self._paused = threading.Event()
        self.cluster: Cluster
        self.tap: TapService
        self._writer: threading.Thread

    async def __aenter__(self) -> World:
        self.cluster = await asyncio.to_thread(Cluster, 3, heap="320m", brief=True, properties=dict(KIP_848))
        await asyncio.to_thread(self.cluster.create_topic, TOPIC, PARTITIONS)
        brokers = tuple(("localhost", each["PLAINTEXT"]) for each in self.cluster.ports.values())
        self.tap = TapService(
            TapConfig(brokers, ("127.0.0.1", 0), rewrite=True, session_timeout=_SESSION, verify=self._verify)
        )
        await self.tap.start()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()
        try:
            self.write(True)
            for group in LIVE:
                for _ in range(2):
                    await self.add_member(group)
            await asyncio.to_thread(self.commit, self.here, 0)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._over.set()
        self._writing.set()
        for member in [each for found in self.members.values() for each in found]:
            with contextlib.suppress(ProcessLookupError):
                member.process.send_signal(signal.SIGCONT)
            member.die()
        await asyncio.to_thread(self._writer.join, 30)
        await self.tap.stop()
        await asyncio.to_thread(self.cluster.close)

    @property
    def here(self) -> list[str]:
        """The addresses of the tap."""
        return [show_address(address) for address, _ in self.tap.listening]

    @property
    def direct(self) -> list[str]:
        """The addresses of the brokers."""
        return self.cluster.bootstrap()

    # -- what goes on ------------------------------------------------------------------------------

    def write(self, on: bool) -> None:
        """Begin to write, or stop and wait until all is acknowledged."""
        if on:
            self._paused.clear()
            self._writing.set()
        else:
            self._writing.clear()
            self._paused.wait(60)

    def _write(self) -> None:
        producer = Producer({"bootstrap.servers": ",".join(self.here), "linger.ms": 20, "log_level": 0})
        while not self._over.is_set():
            if not self._writing.is_set():
                while producer.flush(5) and not self._over.is_set():
                    pass  # on a slow machine the first leaders are found after a while
                self._paused.set()
                self._writing.wait()
            with contextlib.suppress(BufferError):
                producer.produce(TOPIC, b"record", partition=self._number % PARTITIONS)
            self._number += 1
            producer.poll(0)
            time.sleep(_RATE)
        self._paused.set()

    async def add_member(self, group: str) -> Member:
        """Start a member, which reads through the tap."""
        self._number += 1
        name = f"{group}-{self._number}"
        log = self._folder / f"{name}.log"
        member = await asyncio.to_thread(
            start_member, "confluent", ",".join(self.here), group, TOPIC, name, LIVE[group], log
        )
        self.members[group].append(member)
        return member

    def commit(self, bootstrap: list[str], offset: int) -> None:
        """Set the committed offsets of the group without members."""
        for left in reversed(range(_ATTEMPTS)):
            try:
                with wire.GroupClient(bootstrap, IDLE, **_CALL) as group:
                    codes = group.commit_offsets({(TOPIC, each): offset for each in range(PARTITIONS)})
                if any(codes.values()):
                    raise RuntimeError(f"the coordinator refuses to commit: {codes}")
                return
            except UNREACHABLE:
                if not left:
                    raise
                time.sleep(0.5)

    # -- what brokers say --------------------------------------------------------------------------

    def ask_offsets(self) -> None:
        """Ask the brokers for ends and committed offsets, and keep the answers."""
        for partition in range(PARTITIONS):
            began = time.time()
            with wire.PartitionClient(self.direct, TOPIC, partition, **_CALL) as leader:
                found = leader.list_offsets(wire.NEWEST)
            if not found.error_code:
                self.truth.ends[partition].answers.append(Answer(began, time.time(), found.offset))
        for name in GROUPS:
            began = time.time()
            with wire.GroupClient(self.direct, name, **_CALL) as group:
                answer = group.call("OffsetFetch", {"GroupId": name, "Topics": None})
            if answer["ErrorCode"]:
                continue
            for topic in answer["Topics"]:
                for each in topic["Partitions"]:
                    history = self.truth.committed[name, each["PartitionIndex"]]
                    if not each["ErrorCode"] and began > history.since:
                        history.answers.append(Answer(began, time.time(), each["CommittedOffset"]))

    def table(self, name: str) -> tuple[str, Table]:
        """Ask the coordinator for a group's state and its members' partitions."""
        table: Table = {}
        with wire.GroupClient(self.direct, name, **_CALL) as group:
            if LIVE[name] == "consumer":
                found = group.call("ConsumerGroupDescribe", {"GroupIds": [name]})["Groups"][0]
                for member in found["Members"]:
                    table[member["ClientId"]] = {
                        (topic["TopicName"], partition)
                        for topic in member["Assignment"]["TopicPartitions"]
                        for partition in topic["Partitions"]
                    }
                return found["GroupState"], table
            found = group.call("DescribeGroups", {"Groups": [name]})["Groups"][0]
        for member in found["Members"]:
            data = member["MemberAssignment"]
            assigned = decode_assignment(data).body["AssignedPartitions"] if data else []
            table[member["ClientId"]] = {
                (topic["Topic"], partition) for topic in assigned for partition in topic["Partitions"]
            }
        return found["GroupState"], table

    def lags(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Return committed offsets and ends by group and partition, as ``kafka-consumer-groups`` prints them."""
        text = tool(
            4,
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            "--bootstrap-server",
            ",".join(self.direct),
            "--describe",
            "--all-groups",
            "--offsets",
        )
        found = {}
        for line in text.splitlines():
            cells = line.split()
            if len(cells) > 5 and cells[1] == TOPIC and cells[3].isdecimal():
                found[cells[0], int(cells[2])] = (int(cells[3]), int(cells[4]))
        return found

    async def groups(self) -> list[dict[str, Any]]:
        """Return the tap's view of the groups."""
        found: list[dict[str, Any]] = (await self.tap.ask("snapshot"))["groups"]
        return [each for each in found if each["group"] in GROUPS]


Heal = Callable[[], Any]
"""Undoes a fault; blocks."""


def draw(world: World) -> tuple[str, Callable[[], Heal | None]]:
    """Draw a fault: its name, and what does it and returns what undoes it. Both block."""
    faults = (
        _kill_member, _kill_member, _leave, _freeze_member, _kill_broker, _stop_broker, _freeze_broker,
        _write_elsewhere, _commit_elsewhere, _read_back,
    )  # fmt: skip
    fault = world.random.choice(faults)
    group, node = world.random.choice(list(LIVE)), world.random.choice((1, 2, 3))
    return f"{fault.__name__[1:].replace('_', ' ')} ({group}, {node})", lambda: fault(world, group, node)


def _kill_member(world: World, group: str, _: int) -> Heal | None:
    world.members[group].pop(0).die()
    return None


def _leave(world: World, group: str, _: int) -> Heal | None:
    world.members[group].pop(0).leave()
    return None


def _freeze_member(world: World, group: str, _: int) -> Heal | None:
    process = world.members[group][0].process
    process.send_signal(signal.SIGSTOP)
    return lambda: process.send_signal(signal.SIGCONT)


def _kill_broker(world: World, _: str, node: int) -> Heal | None:
    world.cluster.kill(node)
    return lambda: world.cluster.start(node)


def _stop_broker(world: World, _: str, node: int) -> Heal | None:
    world.cluster.stop(node)
    return lambda: world.cluster.start(node)


def _freeze_broker(world: World, _: str, node: int) -> Heal | None:
    world.cluster.signal(node, signal.SIGSTOP)
    return lambda: world.cluster.signal(node, signal.SIGCONT)


def _write_elsewhere(world: World, _: str, __: int) -> Heal | None:
    producer = Producer({"bootstrap.servers": ",".join(world.direct), "log_level": 0})
    for i in range(400):
        producer.produce(TOPIC, b"elsewhere", partition=i % PARTITIONS)
    producer.flush(30)
    return None


def _commit_elsewhere(world: World, _: str, __: int) -> Heal | None:
    """Set offsets without the tap: what it has told is old from now on."""
    try:
        world.commit(world.direct, world.random.randrange(500))
    finally:
        for partition in range(PARTITIONS):
            world.truth.committed[IDLE, partition].reset(time.time())
    return None


def _read_back(world: World, _: str, __: int) -> Heal | None:
    """Ask for the offsets through the tap, which believes the answer."""
    with wire.GroupClient(world.here, IDLE, **_CALL) as group:
        group.call("OffsetFetch", {"GroupId": IDLE, "Topics": None})
    return None


__all__ = ["GROUPS", "IDLE", "LIVE", "PARTITIONS", "TOPIC", "UNREACHABLE", "World", "draw"]
