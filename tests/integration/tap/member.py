"""Run a member of a consumer group as a process: ``CLIENT BOOTSTRAP GROUP TOPIC CLIENT_ID [PROTOCOL]``.

SIGTERM makes it leave the group; after SIGKILL its session times out.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import signal
import sys
import threading
from typing import Any

SESSION_MS = 6_000
HEARTBEAT_MS = 300
MAX_POLL_MS = 25_000
STUCK = 20.0
"""Seconds that a poll of a tenth of a second may take."""
running = True
logger = logging.getLogger("member")


def stop(*_: object) -> None:
    global running
    running = False


def confluent(bootstrap: str, group: str, topic: str, client_id: str, protocol: str) -> None:
    from confluent_kafka import Consumer

    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": client_id,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 300,
    }
    if protocol == "classic":
        settings |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    while running:
        consumer.poll(0.1)
    consumer.close()


def start_again() -> None:
    """Put a new process in the place of this one, which keeps its number."""
    logger.error("poll() has not returned for %.0f s: starting again", STUCK)
    faulthandler.dump_traceback(all_threads=True)
    os.execv(sys.executable, sys.orig_argv)


def kafka_python(bootstrap: str, group: str, topic: str, client_id: str, _: str) -> None:
    from kafka import KafkaConsumer

    def made() -> Any:
        return KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            client_id=client_id,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_interval_ms=MAX_POLL_MS,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=300,
        )

    # kafka-python 3.0.12 gives up where Java goes on, on a busy machine: a generation reset between JoinGroup and SyncGroup
    # (InconsistentGroupProtocolError, KAFKA-9701), and whatever ended its heartbeat loop, come out of poll(). An application
    # makes a new consumer then. A JoinGroup without a response is waited for max_poll_interval_ms + 5 s, by default 305 s.
    # Once in many runs its IO loop stands still for good behind a metadata update, heartbeats and all: poll() never returns.
    # The log gets the stacks, and a new process takes the place of this one, as a supervisor would have it.
    consumer = made()
    while running:
        watch = threading.Timer(STUCK, start_again)
        watch.daemon = True
        watch.start()
        try:
            consumer.poll(timeout_ms=100)
        except Exception:
            logger.exception("poll() failed: a new consumer takes over")
            with contextlib.suppress(Exception):
                consumer.close(autocommit=False, timeout_ms=5_000)
            consumer = made()
        finally:
            watch.cancel()
    consumer.close()


def aiokafka(bootstrap: str, group: str, topic: str, client_id: str, _: str) -> None:
    from aiokafka import AIOKafkaConsumer

    async def consume() -> None:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            client_id=client_id,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=300,
        )
        await consumer.start()
        try:
            while running:
                await consumer.getmany(timeout_ms=100)
        finally:
            await consumer.stop()

    asyncio.run(consume())


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    name, *rest = sys.argv[1:]
    globals()[name](*rest)
