"""Start group members with each client library, and read the assignment from the broker and from the tap."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pixy.tap.service import TapService
from pixy.wire import frames
from pixy.wire.consumer_protocol import decode_assignment
from tests import class_archives
from tests.integration.tap.member import HEARTBEAT_MS, SESSION_MS
from tests.kafka.cluster import HERE, Cluster, libs, tied
from tests.support import ROOT

_LOG_SHOWN = 20_000
"""Characters of a member's log that a failed test shows."""

Table = dict[str, set[tuple[str, int]]]
"""Partitions by client id."""


class Member:
    """A group member in a process of its own."""

    def __init__(self, command: list[str], log: Path, env: dict[str, str] | None = None) -> None:
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                tied(command),
                cwd=ROOT,
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **(env or {})},
            )

    def leave(self) -> None:
        """Make it close its consumer and leave the group."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)

    def describe(self) -> str:
        """Tell whether the process lives, and what it has logged last."""
        code = self.process.poll()
        state = "lives" if code is None else f"has ended with {code}"
        text = self.log.read_text(errors="replace")[-_LOG_SHOWN:]
        return f"member {self.process.pid} {state}; {self.log.name}:\n{text}"

    def die(self) -> None:
        """Kill it without leaving the group."""
        self.process.kill()
        self.process.wait(30)


def start_member(
    client: str, bootstrap: str, group: str, topic: str, client_id: str, protocol: str, log: Path
) -> Member:
    """Start a member of the group that consumes the topic.

    Args:
        client: ``java`` or a function of :mod:`tests.integration.tap.member`.
        bootstrap: the bootstrap server.
        group: the group to join.
        topic: the topic to subscribe to.
        client_id: the client id.
        protocol: ``classic`` or ``consumer`` (KIP-848).
        log: file for the process's output.
    """
    if client != "java":
        return Member(
            [
                sys.executable,
                "-m",
                "tests.integration.tap.member",
                client,
                bootstrap,
                group,
                topic,
                client_id,
                protocol,
            ],
            log,
        )
    properties = {
        "client.id": client_id,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 300,
    }
    if protocol == "classic":
        properties |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
    command = [
        *java_command("org.apache.kafka.tools.consumer.ConsoleConsumer"),
        "--bootstrap-server",
        bootstrap,
        "--group",
        group,
        "--topic",
        topic,
    ]
    for key, value in properties.items():
        command += ["--consumer-property", f"{key}={value}"]
    return Member(command, log)


def java_command(main: str) -> list[str]:
    """Return the command that runs a class of Kafka's tools, without its arguments."""
    return [
        "java",
        "-Xmx128m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        *class_archives.use(class_archives.KAFKA),
        f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}",
        "-cp",
        f"{libs(4)}/*",
        main,
    ]


@contextlib.contextmanager
def members(found: list[Member]) -> Iterator[None]:
    """Kill all members in the list on exit; an exception gets their states and logs as notes."""
    try:
        yield
    except BaseException as error:
        for member in found:
            error.add_note(member.describe())
        raise
    finally:
        for member in found:
            member.die()


def call(address: tuple[str, int], api: str, version: int, body: dict[str, Any]) -> dict[str, Any]:
    """Send one request to a broker and return the body of its response."""
    with socket.create_connection(address, timeout=30) as connection:
        connection.sendall(frames.encode_request(api, version, 1, "test", body))
        stream = connection.makefile("rb")
        size = int.from_bytes(stream.read(4), "big")
        return frames.decode_response(stream.read(size), api, version).body


def broker_table(kafka: Cluster, group: str, protocol: str) -> tuple[str, Table]:
    """Ask the broker for the group's state and each member's partitions."""
    address = ("127.0.0.1", kafka.ports[1]["PLAINTEXT"])
    table: Table = {}
    if protocol == "consumer":
        found = call(address, "ConsumerGroupDescribe", 0, {"GroupIds": [group]})["Groups"][0]
        for member in found["Members"]:
            table[member["ClientId"]] = {
                (topic["TopicName"], partition)
                for topic in member["Assignment"]["TopicPartitions"]
                for partition in topic["Partitions"]
            }
        return found["GroupState"], table
    found = call(address, "DescribeGroups", 5, {"Groups": [group]})["Groups"][0]
    for member in found["Members"]:
        assigned = decode_assignment(member["MemberAssignment"]).body["AssignedPartitions"]
        table[member["ClientId"]] = {
            (topic["Topic"], partition) for topic in assigned for partition in topic["Partitions"]
        }
    return found["GroupState"], table


async def tap_group(tap: TapService, group: str) -> dict[str, Any]:
    """Return the tap's view of the group, empty if it has not seen the group."""
    found = (await tap.ask("snapshot", group))["groups"]
    return found[0] if found else {}


def tap_table(group: dict[str, Any]) -> Table:
    """Extract each member's partitions from the tap's view of a group."""
    return {
        member["client_id"]: {
            (topic, p) for topic, numbers in (member["partitions"] or {}).items() for p in numbers
        }
        for member in group.get("members", ())
    }
