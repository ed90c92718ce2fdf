"""A replay into the topic that its records came from, judged by a real Kafka's ids. The lake is made without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from pixy.config import Kafka, Proxy
from pixy.kafka import settings
from pixy.kafka.blocking import ClusterView
from pixy.pipeline.errors import UsageError
from pixy.pipeline.lake import Lake
from pixy.pipeline.lake.selection import Selection
from pixy.pipeline.lake.state import Ledger
from pixy.pipeline.replay.job import ReplayJob
from pixy.pipeline.replay.request import ReplayRequest
from pixy.pipeline.replay.state import ReplayState
from tests.kafka.cluster import Cluster
from tests.unit.pipeline.support import publish, rows, write_file


def test_a_topic_gets_its_records_back_only_after_it_was_created_again(
    kafka: Cluster, name: str, tmp_path: Path
) -> None:
    proxy = Proxy(kafka=Kafka(seed_peers=kafka.bootstrap()))
    view = ClusterView(settings.admin(proxy))
    kafka.create_topic(name)
    archived = view.topic_ids([name])[name]
    lake = Lake.open_or_create(str(tmp_path / "lake"), "main", view.cluster_id())
    file = write_file(lake, name, "2023-11-14", "a", rows(0, range(10)), archived)
    publish(lake, Ledger(), 0, [file], {0: (0, 10)}, archived)

    def job(**fields: bool) -> ReplayJob:
        request = ReplayRequest(name, name, Selection(), create=True, **fields)  # type: ignore[arg-type]
        return ReplayJob(
            lake, request, proxy, view, ReplayState(str(tmp_path / "state")), cluster="other name"
        )

    for refused in (job().run, job().dry_run):
        with pytest.raises(
            UsageError, match=f"topic {name} came from this topic of this cluster, other name"
        ):
            refused()
    assert view.bounds([(name, 0)]) == {(name, 0): (0, 0)}
    assert not (tmp_path / "state").exists()
    assert job(allow_same_topic=True).dry_run().selected == {0: 10}

    kafka.admin().delete_topics([name])[name].result(30)
    assert job().run().progress.records == 10, "of a deleted topic, which --create makes again"
    again = job().run()
    assert (again.ended, again.progress.skipped) == ("done before", 10)
    assert view.bounds([(name, 0)]) == {(name, 0): (0, 10)}
