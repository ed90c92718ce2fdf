"""Clients that produce numbered messages, one in a request or many, and write the answers down.

A value is the message's id, then ``|`` and padding. No id is sent twice, so a message that is in Kafka twice
was put there twice by the proxy or by Kafka.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import time
from typing import Any

import grpc
import msgspec

from pixy.proto import kafkapixy_pb2 as pb
from tests.chaos.kit.clients import DEADLINE, PAUSE, Clients, Pace
from tests.chaos.kit.plan import DAEMONS, Topic

BATCH = 100
ASKED = 3
"""Messages in a batch for one partition."""
LOOK = 1.0
"""Seconds between two questions which partitions a topic has."""
KEYS = 300
"""Different keys: so many that a compacted topic keeps some and loses most."""
BATCH_TYPE = {"Content-Type": "application/vnd.kafka.binary.v2+json"}
TEXT_TYPE = {"Content-Type": "text/plain"}
_PADDING = b"|" + b"x" * 80
_LANES = 2
"""Requests at once to each daemon: one that waits for a broken one must not hold up the others."""


def start(clients: Clients, topic: Topic) -> None:
    """Start the producers of a topic."""
    for daemon in range(1, DAEMONS + 1):
        for lane in range(_LANES):
            share = DAEMONS * _LANES
            single = _over_grpc if lane % 2 else _over_rest
            if topic.singles:
                clients.run(single(clients, topic, daemon, lane, topic.singles / share))
            if topic.accepted:
                clients.run(single(clients, topic, daemon, lane, topic.accepted / share, later=True))
            if topic.asked:
                clients.run(_asking(clients, topic, daemon, lane, topic.asked / share / ASKED))
            if topic.batched:
                clients.run(_batches(clients, topic, daemon, lane, topic.batched / share / BATCH))


async def _over_grpc(
    clients: Clients, topic: Topic, daemon: int, lane: int, rate: float, later: bool = False
) -> None:
    """Send one message in a request; ``later``: the request is answered before the message is written."""
    rng, pace = clients.rng("grpc", topic.name, daemon, lane, later), Pace(rate)
    stub, letter = clients.stub(daemon), "ag" if later else "g"
    for number in itertools.count():
        await pace.wait()
        if not clients.producing:
            return
        name, key = f"{letter}{daemon}{lane}.{number}", str(rng.randrange(KEYS))
        request = pb.ProdRq(
            topic=topic.name,
            key_value=key.encode(),
            key_undefined=later,
            message=name.encode() + _PADDING,
            async_mode=later,
        )
        t0 = time.time()
        try:
            answer = await stub.Produce(request, timeout=DEADLINE + 10)
        except grpc.RpcError as error:
            await _failed(
                clients, topic, t0, daemon, [name], f"{error.code().name}: {error.details()}", key=key
            )
        else:
            at = [[answer.partition, answer.offset]]
            _answered(clients, topic, t0, daemon, name, at, key, later)


async def _over_rest(
    clients: Clients, topic: Topic, daemon: int, lane: int, rate: float, later: bool = False
) -> None:
    rng, pace = clients.rng("rest", topic.name, daemon, lane, later), Pace(rate)
    letter, sync = ("ar", "") if later else ("r", "sync&")
    for number in itertools.count():
        await pace.wait()
        if not clients.producing:
            return
        name, key = f"{letter}{daemon}{lane}.{number}", str(rng.randrange(KEYS))
        url = clients.url(daemon, f"/topics/{topic.name}/messages?{sync}key={key}")
        t0 = time.time()
        status, body = await clients.call("POST", url, data=name.encode() + _PADDING, headers=TEXT_TYPE)
        if status == 200:
            answer = msgspec.json.decode(body)
            at = [] if later else [[answer["partition"], answer["offset"]]]
            _answered(clients, topic, t0, daemon, name, at, key, later)
        else:
            text = f"{status}: {body.decode(errors='replace')}"
            await _failed(clients, topic, t0, daemon, [name], text, key=key)


async def _batches(clients: Clients, topic: Topic, daemon: int, lane: int, rate: float) -> None:
    rng, pace = clients.rng("batch", topic.name, daemon, lane), Pace(rate)
    url = clients.url(daemon, f"/topics/{topic.name}")
    for number in itertools.count():
        await pace.wait()
        if not clients.producing:
            return
        names = [f"b{daemon}{lane}.{number}.{at}" for at in range(BATCH)]
        records: list[dict[str, Any]] = [
            {"value": base64.b64encode(name.encode() + _PADDING).decode()} for name in names
        ]
        for record in records[: rng.randrange(BATCH)]:
            record["key"] = base64.b64encode(b"%d" % rng.randrange(KEYS)).decode()
        await _send(clients, topic, daemon, url, names, records)


async def _asking(clients: Clients, topic: Topic, daemon: int, lane: int, rate: float) -> None:
    """Send batches for a partition that the daemon had named a moment ago; it may be gone when they come."""
    rng, pace = clients.rng("asked", topic.name, daemon, lane), Pace(rate)
    url = clients.url(daemon, f"/topics/{topic.name}")
    known: list[int] = []
    looked = 0.0
    for number in itertools.count():
        await pace.wait()
        if not clients.producing:
            return
        if time.monotonic() >= looked + LOOK:
            looked = time.monotonic()
            known = await partitions_of(clients, daemon, topic.name) or known
        if not known:
            continue
        partition = rng.choice(known)
        names = [f"p{daemon}{lane}.{number}.{at}" for at in range(ASKED)]
        records: list[dict[str, Any]] = [
            {"value": base64.b64encode(name.encode() + _PADDING).decode(), "partition": partition}
            for name in names
        ]
        await _send(clients, topic, daemon, url, names, records, asked=partition)


async def partitions_of(clients: Clients, daemon: int, topic: str) -> list[int]:
    """Ask a daemon which partitions a topic has; nothing if it does not know.

    Args:
        clients: make the request.
        daemon: to ask.
        topic: its name.
    """
    status, body = await clients.call("GET", clients.url(daemon, f"/topics/{topic}/partitions"))
    return [each["partition"] for each in msgspec.json.decode(body)] if status == 200 else []


async def _send(
    clients: Clients,
    topic: Topic,
    daemon: int,
    url: str,
    names: list[str],
    records: list[dict[str, Any]],
    **more: Any,
) -> None:
    """Send a batch over the REST v2 API, and write down what became of each of its records."""
    t0 = time.time()
    status, body = await clients.call(
        "POST", url, data=msgspec.json.encode({"records": records}), headers=BATCH_TYPE
    )
    if status != 200:
        text = f"{status}: {body.decode(errors='replace')}"
        await _failed(clients, topic, t0, daemon, names, text, **more)
        return
    answers = list(zip(names, msgspec.json.decode(body)["offsets"], strict=True))
    done = [(name, at) for name, at in answers if at.get("error_code") is None]
    if done:
        places = [[at["partition"], at["offset"]] for _, at in done]
        _produced(clients, topic, t0, daemon, [name for name, _ in done], places, **more)
    refused = [(name, at) for name, at in answers if at.get("error_code") is not None]
    if refused:
        await _failed(clients, topic, t0, daemon, [name for name, _ in refused], str(refused[0][1]), **more)


def _answered(
    clients: Clients,
    topic: Topic,
    t0: float,
    daemon: int,
    name: str,
    at: list[list[int]],
    key: str,
    later: bool,
) -> None:
    """Write a success down; ``later``: it says only that the daemon has taken the message."""
    if later:
        clients.records.write("accepted", t0=t0, t1=time.time(), topic=topic.name, d=daemon, ids=[name])
    else:
        _produced(clients, topic, t0, daemon, [name], at, key=key)


def _produced(
    clients: Clients, topic: Topic, t0: float, daemon: int, ids: list[str], at: list[list[int]], **more: Any
) -> None:
    about = {"topic": topic.name, "d": daemon, "ids": ids, "at": at}
    clients.records.write("produced", t0=t0, t1=time.time(), **about, **more)


async def _failed(
    clients: Clients, topic: Topic, t0: float, daemon: int, ids: list[str], error: str, **more: Any
) -> None:
    about = {"topic": topic.name, "d": daemon, "ids": ids, "error": error[:300]}
    clients.records.write("unproduced", t0=t0, t1=time.time(), **about, **more)
    await asyncio.sleep(PAUSE)


__all__ = ["LOOK", "partitions_of", "start"]
