"""The metrics' text, and what is generated from their table."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from pixy.console import exposition, generate
from pixy.console.metric_table import ALERTS, BY_NAME, METRICS, MOST_SERIES, PREFIX
from pixy.engine.counters import OTHERS, Bounded, GroupCounters
from pixy.engine.meter import MOST, Meter

ROOT = Path(__file__).resolve().parents[3]
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
_NAME = re.compile(r"kafka_pixy_[a-z_]+")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("name", generate.FILES)
def test_the_generated_files_are_those_of_the_table(name: str) -> None:
    wanted = generate.FILES[name]()
    assert (ROOT / name).read_text("utf-8") == wanted, "run: python -m pixy.console.generate"


def _known_series() -> set[str]:
    found = set()
    for each in METRICS:
        found.add(each.full_name)
        if each.kind == "histogram":
            found |= {f"{each.full_name}{end}" for end in ("_bucket", "_count", "_sum")}
    return found


def test_queries_name_metrics_that_there_are_and_labels_that_they_have() -> None:
    board = json.loads(generate.dashboard())
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    queries += [
        rule["expr"] for group in yaml.safe_load(generate.alert_rules())["groups"] for rule in group["rules"]
    ]
    assert len(queries) >= 20
    for query in queries:
        names = set(_NAME.findall(query))
        assert names and names <= _known_series(), query
        assert query.count("(") == query.count(")") and query.count("{") == query.count("}")
        labels = {label.strip() for by in re.findall(r"by \(([^)]*)\)", query) for label in by.split(",")}
        labels |= set(re.findall(r"([a-z]+)(?:=~|!=|=)\"", query))
        own = {"instance", "le"}.union(
            *(BY_NAME[each].labels for each in BY_NAME if any(PREFIX + each in name for name in names))
        )
        assert labels <= own, query


def test_panels_do_not_overlap_and_alerts_have_texts() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in json.loads(generate.dashboard())["panels"]:
        place = panel["gridPos"]
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & own and max(x for x, _ in own) < 24
        cells |= own
    assert all(re.fullmatch(r"\d+[smh]", each.wait) and each.text for each in ALERTS)


def test_names_follow_the_conventions() -> None:
    for each in METRICS:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", each.name) and not each.name.endswith("_total")
        assert each.text.endswith(".")
        assert not re.search(r"_(ms|millis|kb|minutes)\b", each.name)


class _Families(Collector):
    def __init__(self, families: list[object]) -> None:
        self._families = families

    def collect(self) -> list[object]:  # type: ignore[override]
        return self._families


def _parse(*families: object) -> dict[str, object]:
    registry = CollectorRegistry()
    registry.register(_Families(list(families)))
    text = openmetrics.generate_latest(registry).decode()
    return {each.name: each for each in text_string_to_metric_families(text)}


def test_requests_are_counted_with_their_durations_and_traces() -> None:
    clock = Clock()
    meter = Meter(clock, lambda: 1e9)
    for seconds in (0.0001, 0.004, 0.004, 99.0):
        began = clock.now
        clock.now += seconds
        meter.note("rest", "produce", "200", began, TRACE if seconds == 0.004 else "nonsense")
    found = _parse(exposition._requests(meter.series))["kafka_pixy_request_seconds"]
    buckets = {
        each.labels["le"]: each
        for each in found.samples
        if each.name.endswith("_bucket")  # type: ignore[attr-defined]
    }
    assert [buckets[le].value for le in ("0.0005", "0.0025", "0.005", "30.0", "+Inf")] == [1, 1, 3, 3, 4]
    assert buckets["0.005"].exemplar.labels == {"trace_id": TRACE[3:35]}
    assert buckets["+Inf"].exemplar is None


def test_series_are_bounded_whatever_clients_send() -> None:
    meter = Meter(Clock(), lambda: 1e9)
    for number in range(MOST + 50):
        meter.note("rest", f"made-up-{number}", "200", 100.0)
    assert len(meter.series) == MOST + 1
    assert sum(meter.series["rest", OTHERS, OTHERS].counts) == 50


def test_refusals_are_recent_for_some_minutes() -> None:
    clock = Clock()
    meter = Meter(clock, lambda: 1e9)
    meter.note("grpc", "Produce", "RESOURCE_EXHAUSTED", 100.0)
    meter.note("grpc", "Produce", "OK", 100.0)
    assert meter.refused() == {("grpc", "Produce", "RESOURCE_EXHAUSTED"): 1}
    clock.now += 301
    assert meter.refused() == {}


def test_the_largest_series_stay_and_the_others_are_added_up() -> None:
    rows = [(("main", f"g{at}", "t"), float(at)) for at in range(MOST_SERIES + 3)]
    found = dict(exposition._bounded(rows))
    assert len(found) == MOST_SERIES + 1
    assert found["main", OTHERS, OTHERS] == 0 + 1 + 2
    assert ("main", "g3", "t") in found and sum(found.values()) == sum(value for _, value in rows)
    assert dict(exposition._bounded(rows, max))["main", OTHERS, OTHERS] == 2


def test_names_that_clients_choose_are_counted_apart_up_to_a_bound() -> None:
    counted: Bounded[GroupCounters] = Bounded(GroupCounters, most=2)
    one, two = counted.of("a"), counted.of("b")
    assert counted.of("a") is one and counted.of("c") is counted.of("d") is not two
    assert set(counted) == {"a", "b", OTHERS}


def test_commits_fail_from_the_first_failure_to_a_whole_success() -> None:
    counted = GroupCounters()
    counted.commit_failed(ValueError("refused"), 5.0)
    counted.committed(1, whole=False)
    counted.commit_failed(ValueError("refused again"), 9.0)
    assert (counted.failing_since, counted.commit_error, counted.commits) == (5.0, "refused again", 1)
    counted.committed(2, whole=True)
    assert (counted.failing_since, counted.commit_error, counted.commits) == (None, "", 3)
