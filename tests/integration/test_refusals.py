"""Messages that Kafka refuses, beside others, while brokers die."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.integration.test_historic_bugs import quick
from tests.integration.test_produce import read_to_the_end
from tests.kafka.cluster import Cluster
from tests.support import Daemon, eventually, serving

TOGETHER = 40


class Writer:
    """Writes numbered messages to a topic, and messages that Kafka refuses to another one, asynchronously."""

    def __init__(self, daemon: Daemon, topic: str, picky: str) -> None:
        self.daemon, self.topic, self.picky = daemon, topic, picky
        self.count = 0

    async def run(self) -> None:
        while True:
            numbers = range(self.count, self.count + TOGETHER)
            self.count += TOGETHER
            answers = await asyncio.gather(
                *(self.daemon.post(f"/topics/{self.topic}/messages?key={at}", f"{at}") for at in numbers),
                *(self.daemon.post(f"/topics/{self.picky}/messages", "no key") for _ in range(2)),
            )
            assert {each.status for each in answers} == {200}


@pytest.mark.timeout(300)
async def test_refusals_double_no_message_of_another_topic_when_a_broker_dies(
    kafka3: Cluster, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A refusal makes a producer begin a new epoch, with new numbers for requests that the dead broker may have written."""
    picky = f"{name}-compacted"
    kafka3.create_topic(name, 6)
    kafka3.create_topic(picky, 6, **{"cleanup.policy": "compact"})
    async with serving(quick(kafka3)) as daemon:
        refused = await daemon.post(f"/topics/{picky}/messages?sync", "no key")
        assert refused.status != 200, refused.body
        await eventually(lambda: _has(caplog, "this topic is written by a Kafka client apart"))
        writer = Writer(daemon, name, picky)
        task = asyncio.create_task(writer.run())
        for node in (1, 2, 3):
            await asyncio.sleep(1)
            kafka3.kill(node)
            await asyncio.sleep(3)
            kafka3.start(node)
            await asyncio.to_thread(kafka3.wait_ready)
        task.cancel()
        accepted = writer.count
    found = Counter(each.value() for each in await asyncio.to_thread(read_to_the_end, kafka3, name))
    assert len(found) >= accepted - TOGETHER, "messages are lost"
    twice = {value: count for value, count in found.items() if count > 1}
    assert not twice, f"{len(twice)} of {accepted} messages are in the log more than once"


async def _has(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    return text in caplog.text
