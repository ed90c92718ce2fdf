"""The life of one message on a real Kafka: as JSON from the admin listener, and by the command."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from confluent_kafka import Producer

from pixy.config import App
from tests.kafka.cluster import Cluster
from tests.support import ROOT, Daemon, eventually, make_config, serving
from tests.unit.pipeline.support import make_lake, publish, rows, write_file

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def config(kafka: Cluster, journal: str = "", **consumer: Any) -> App:
    made = make_config(kafka.bootstrap(), **consumer)
    made.admin_addr = "127.0.0.1:0"
    proxy = made.proxies["default"]
    proxy.client_id = "daemon-1"
    proxy.journal.topic, proxy.journal.linger = journal, 0.05  # type: ignore[assignment]
    return made


async def trace(daemon: Daemon, status: int = 200, **query: Any) -> Any:
    url = f"http://{daemon.engine.addresses['admin']}/trace?{urlencode(query)}"
    async with daemon.http.get(url) as answer:
        document = json.loads(await answer.text())
        assert answer.status == status, document
        return document


async def command(daemon: Daemon, *arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pixy.cli.main", "trace", *arguments,
        "--admin", daemon.engine.addresses["admin"],
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def whys(story: Any) -> dict[str, str]:
    return {each["what"]: each["why"] for each in story["unknown"]}


async def test_a_message_is_followed_through_log_journal_and_groups(kafka: Cluster, name: str) -> None:
    topic, journal = kafka.create_topic(name), kafka.create_topic(f"{name}-journal", 2)
    settings = config(kafka, journal, ack_timeout=0.5)
    async with serving(settings) as daemon:
        for number in range(3):
            await daemon.produce(topic, b"value %d" % number, b"key")
        first = await daemon.consume(topic, "g", no_ack=True)
        await daemon.ack(topic, "g", first)
        held = await daemon.consume(topic, "g", no_ack=True)
        assert held.offset == 1

        async def offered_twice() -> Any:
            await daemon.get(f"/topics/{topic}/messages?group=g&noAck")
            return await trace(daemon, topic=topic, partition=0, offset=1)

        await eventually(
            offered_twice,
            lambda found: (
                [each["detail"]["attempt"] for each in found["events"] if each["event"] == "offered"][-1:]
                >= [2]
            ),
        )
        story = await trace(daemon, topic=topic, partition=0, offset=1)
        kinds = [each["event"] for each in story["events"]]
        assert kinds[0] == "written" and {"produced", "assigned", "offered"} <= set(kinds), kinds
        [produced] = [each for each in story["events"] if each["event"] == "produced"]
        assert produced["daemon"] == "daemon-1" and produced["detail"]["answered"]
        assert produced["detail"]["took"] > 0
        [standing] = story["groups"]
        assert (standing["group"], standing["owner"]) == ("g", "here")
        assert standing["state"] in ("held", "waits again") and standing["detail"]["attempts"] >= 2
        assert standing["detail"]["client"]
        assert story["record"]["key"] == {"text": "key"} and story["record"]["value_size"] == 7
        assert "value 1" not in json.dumps(story)
        batch = story["record"]["batch"]
        assert batch["producer_id"] >= 0 and batch["base_offset"] <= 1 <= batch["last_offset"]
        assert "archive and replays" in whys(story)
        assert not any("journal" in why for why in whys(story).values())

        done = await eventually(
            lambda: trace(daemon, topic=topic, partition=0, offset=0),
            lambda found: found["groups"][0]["committed"] == 1 and "acked" in str(found["events"]),
        )
        assert done["groups"][0]["state"] == "done" and done["groups"][0]["detail"]["committed"]
        [acked] = [each for each in done["events"] if each["event"] == "acked"]
        assert acked["detail"]["client"] == produced["detail"]["client"] == "127.0.0.1"
        assert acked["group"] == "g" and acked["source"] == "journal" and not acked["detail"]["auto"]

        code, out, err = await command(daemon, f"{topic}/0/0")
        assert (code, err) == (0, "")
        assert "acked" in out and "daemon daemon-1" in out and "Kafka keeps no history" in out
        code, out, _ = await command(daemon, f"{topic}/0/1", "--json", "-g", "g")
        assert code == 0 and json.loads(out)["groups"][0]["group"] == "g"
        code, out, _ = await command(daemon, f"{topic}/0/1", "--output", "yaml", "--group", "other")
        assert code == 0 and out.startswith("---\n") and "groups: []" in out


async def test_without_a_journal_live_state_and_offsets_speak_and_the_rest_is_said_to_be_unknown(
    kafka: Cluster, name: str
) -> None:
    topic = kafka.create_topic(name)
    async with serving(config(kafka)) as daemon:
        await daemon.produce(topic, b"v")
        await daemon.produce(topic, b"w")
        await daemon.consume(topic, "g", no_ack=True)
        await daemon.consume(topic, "h", auto_ack=True)
        story = await eventually(
            lambda: trace(daemon, topic=topic, partition=0, offset=0),
            lambda found: [each["committed"] for each in found["groups"]] == [0, 1],
        )
        held, done = story["groups"]
        assert (held["state"], done["state"]) == ("held", "done")
        [offered] = [each for each in story["events"] if each["event"] == "offered"]
        assert offered["source"] == "live" and offered["detail"]["client"] == held["detail"]["client"]
        why = whys(story)["who produced it, offers, retries and acks of the past"]
        assert why == "the journal is off (proxies.default.journal.topic)"
        ahead = await trace(daemon, topic=topic, partition=0, offset=7)
        assert ahead["record"] is None and "the log ends at offset 2" in whys(ahead)["the message itself"]
        assert ahead["groups"][0]["state"] == "not fetched"
        assert (await trace(daemon, 404, topic=f"{topic}-none", partition=0, offset=0))["error"]
        assert (await trace(daemon, 404, topic=topic, partition=9, offset=0))["error"]
        for wrong in (
            {"offset": "x"},
            {"offset": 0, "cluster": "none"},
            {},
            {"header": "x"},
            {"key_base64": "%"},
        ):
            assert (await trace(daemon, 400, topic=topic, **wrong))["error"]


async def test_messages_are_found_by_key_and_header(kafka: Cluster, name: str) -> None:
    topic = kafka.create_topic(name, 2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap()[0]})
    for number in range(40):
        headers = [("order", b"%d" % number), ("traceparent", TRACEPARENT.encode())]
        producer.produce(topic, b"v", b"k%d" % (number % 10), partition=number % 2, headers=headers)
    producer.flush()
    settings = config(kafka)
    async with serving(settings) as daemon:
        found = await trace(daemon, topic=topic, header="order=31")
        assert [(each["partition"], each["offset"]) for each in found["matches"]] == [(1, 15)]
        assert all(each["complete"] for each in found["searched"]) and len(found["searched"]) == 2
        keys = await trace(daemon, topic=topic, key="k4")
        assert keys["total"] == 4 and {each["partition"] for each in keys["matches"]} == {0}
        assert (await trace(daemon, topic=topic, key="k4", partition=1))["total"] == 0

        code, out, err = await command(daemon, topic, "--header", "order=31")
        assert code == 0 and f"{topic}/1/15" in out and TRACEPARENT in out and "order=31" in out
        code, out, err = await command(daemon, topic, "--key", "k4")
        assert code == 4 and out.count(f"{topic}/0/") == 4 and "4 messages" in err
        code, out, _ = await command(daemon, topic, "--key", "k4", "--newest", "--json")
        assert code == 0 and json.loads(out)["offset"] == 17
        code, _, err = await command(daemon, topic, "--key", "nothing")
        assert code == 4 and "no such message" in err
        code, _, err = await command(daemon, topic)
        assert code == 2 and "name an offset" in err

        daemon.engine.config.tracing.search_records = 10
        part = await trace(daemon, topic=topic, key="k0")
        assert part["total"] == 1, "the newest five of each partition"
        assert [(each["from"], each["to"], each["complete"]) for each in part["searched"]] == [
            (15, 20, True)
        ] * 2


async def test_a_message_that_retention_has_removed_is_still_told(
    kafka: Cluster, name: str, tmp_path: Path
) -> None:
    topic, journal = kafka.create_topic(name), kafka.create_topic(f"{name}-journal")
    async with serving(config(kafka, journal)) as daemon:
        for _ in range(3):
            await daemon.produce(topic, b"v")
        await daemon.consume(topic, "g", auto_ack=True)
        kafka.delete_records(topic, 0, 2)
        story = await eventually(
            lambda: trace(daemon, topic=topic, partition=0, offset=0),
            lambda found: "acked" in str(found["events"]),
        )
        assert "the log begins at offset 2" in whys(story)["the message itself"]
        kinds = {each["event"] for each in story["events"]}
        assert {"produced", "offered", "acked"} <= kinds

        lake = make_lake(tmp_path / "lake")
        file = write_file(lake, topic, "2023-11-14", "part-0", rows(0, [0, 1]))
        publish(lake, lake.ledger(), 0, [file], {0: (0, 2)})
        code, out, err = await command(daemon, f"{topic}/0/0", "--lake", str(tmp_path / "lake"), "--json")
        assert code == 0, err
        [archived] = [each for each in json.loads(out)["events"] if each["event"] == "archived"]
        assert archived["source"] == "lake" and "part-0" in archived["detail"]["file"]
        code, out, err = await command(daemon, f"{topic}/0/2", "--lake", str(tmp_path / "lake"))
        assert code == 0 and "covers the partition up to offset 2" in out, err
