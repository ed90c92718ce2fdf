"""A replay into the topic that its records came from: refused by ids where there are some, else by names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from pixy.cli.pipeline import run
from pixy.config import Kafka as KafkaConfig, Proxy
from pixy.errors import KafkaError
from pixy.kafka import settings
from pixy.kafka.blocking import ClusterView
from pixy.kafka.sandbox import Sandbox
from pixy.pipeline.errors import UsageError
from pixy.pipeline.lake.lake import Identity
from pixy.pipeline.lake.selection import Selection
from pixy.pipeline.lake.state import Ledger
from pixy.pipeline.replay.own_topic import refuse_own_topic
from pixy.pipeline.replay.request import ReplayRequest
from tests.unit.pipeline.support import make_lake, publish, rows, write_file


class Kafka:
    """A cluster with an id and some topics, by id; without an id it does not answer."""

    def __init__(self, cluster_id: str | None, topics: dict[str, str]) -> None:
        self._cluster_id, self._topics = cluster_id, topics
        self.asked = 0

    def cluster_id(self) -> str:
        self.asked += 1
        if self._cluster_id is None:
            raise KafkaError("tried localhost:1", -195, "_TRANSPORT")
        return self._cluster_id

    def topic_ids(self, names: list[str]) -> dict[str, str]:
        return {name: self._topics[name] for name in names if name in self._topics}


def refuse(kafka: Kafka, to: str = "orders", cluster: str = "main", **fields: Any) -> str:
    """Return the refusal; empty if there is none. The lake: topic `orders` with id `t-1` of cluster `main`, with id `k-1`."""
    source = Identity("lake", "main", fields.pop("source_id", "k-1"), 0)
    topic_id = fields.pop("topic_id", "t-1")
    request = ReplayRequest("orders", to, Selection(), **fields)
    try:
        refuse_own_topic(request, source, topic_id, cluster, kafka)  # type: ignore[arg-type]
    except UsageError as error:
        return str(error)
    return ""


def test_the_same_topic_of_the_same_cluster_is_refused_whatever_the_cluster_is_called() -> None:
    for cluster in ("main", "standby"):
        text = refuse(Kafka("k-1", {"orders": "t-1"}), cluster=cluster)
        assert text == (
            f"the records of topic orders came from this topic of this cluster, {cluster} (k-1): it would have each of them "
            "twice. --to names another topic; --allow-same-topic writes them to this one"
        )


@pytest.mark.parametrize(
    ("kafka", "fields"),
    [
        pytest.param(Kafka("k-2", {"orders": "t-1"}), {}, id="another cluster of that name"),
        pytest.param(Kafka("k-1", {}), {}, id="deleted"),
        pytest.param(Kafka("k-1", {"orders": "t-2"}), {}, id="created again"),
        pytest.param(Kafka(None, {}), {"cluster": "standby"}, id="no answer, another name"),
        pytest.param(
            Kafka("k-2", {"orders": ""}), {"source_id": "", "cluster": "standby"}, id="no id, another name"
        ),
    ],
)
def test_another_topic_of_that_name_is_not(kafka: Kafka, fields: dict[str, Any]) -> None:
    assert refuse(kafka, **fields) == ""


@pytest.mark.parametrize(
    ("kafka", "fields", "named"),
    [
        pytest.param(Kafka(None, {}), {}, "main (by its name: Kafka does not answer)", id="no answer"),
        pytest.param(Kafka("k-1", {"orders": "t-1"}), {"source_id": ""}, "main (k-1)", id="lake without id"),
        pytest.param(Kafka("", {"orders": "t-1"}), {}, "cluster, main:", id="Kafka without id"),
        pytest.param(Kafka("k-1", {"orders": ""}), {}, "main (k-1)", id="Kafka without topic ids"),
        pytest.param(Kafka("k-1", {"orders": "t-1"}), {"topic_id": ""}, "main (k-1)", id="topic without id"),
    ],
)
def test_names_decide_where_ids_are_missing(kafka: Kafka, fields: dict[str, Any], named: str) -> None:
    assert named in refuse(kafka, **fields)


def test_kafka_is_not_asked_for_another_name_or_with_the_flag() -> None:
    kafka = Kafka("k-1", {"orders": "t-1", "again": "t-2"})
    assert refuse(kafka, to="again") == refuse(kafka, allow_same_topic=True) == ""
    assert kafka.asked == 0


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_the_command_says_it_in_one_line_without_kafka(
    options: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lake = make_lake(tmp_path / "lake")
    some = write_file(lake, "orders", "2026-01-01", "a", rows(0, range(3)))
    publish(lake, Ledger(), 0, [some], {0: (0, 3)})
    config = tmp_path / "pixy.yaml"
    times = dict.fromkeys(("dial_timeout", "read_timeout", "write_timeout"), "1s")
    config.write_text(
        yaml.safe_dump({"proxies": {"main": {"kafka": {"seed_peers": ["localhost:1"]}, "net": times}}})
    )
    argv = ["replay", "--config", str(config), "--lake", "lake", "--topic", "orders", "--to", "orders"]
    assert run([*argv, *options]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err == (
        "kafka-pixy pipeline replay: the records of topic orders came from this topic of this cluster, main (by its name: "
        "Kafka does not answer): it would have each of them twice. --to names another topic; --allow-same-topic writes them "
        "to this one\n"
    )
    assert not (tmp_path / "replays").exists()
    if options:
        assert run([*argv, *options, "--allow-same-topic"]) == 0
        assert "records: 3\n" in capfd.readouterr().out


def test_a_cluster_that_answers_is_known_by_its_id() -> None:
    """The sandbox's broker has an id, whatever the configuration calls the cluster."""
    sandbox = Sandbox()
    producer = Producer({"bootstrap.servers": ",".join(sandbox.seed_peers)})
    producer.produce("orders", b"there")
    assert producer.flush(30) == 0
    view = ClusterView(settings.admin(Proxy(kafka=KafkaConfig(seed_peers=sandbox.seed_peers))))
    request = ReplayRequest("orders", "orders", Selection())
    topic_id = view.topic_ids(["orders"])["orders"]
    with pytest.raises(UsageError, match="this topic of this cluster, standby"):
        refuse_own_topic(request, Identity("lake", "main", view.cluster_id(), 0), topic_id, "standby", view)
    refuse_own_topic(request, Identity("lake", "main", "another", 0), topic_id, "main", view)
    del sandbox
