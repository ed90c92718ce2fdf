"""One answer of what all workers say."""

from __future__ import annotations

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from pixy.api.admin.merging import merge_findings, merge_metrics, merge_readiness

ONE = """\
# HELP pixy_up 1 if it is up.
# TYPE pixy_up gauge
pixy_up{cluster="a{b} c"} 1.0
# HELP pixy_calls_total Calls.
# TYPE pixy_calls_total counter
pixy_calls_total 5.0
"""
TWO = """\
# HELP pixy_up 1 if it is up.
# TYPE pixy_up gauge
pixy_up{cluster="a{b} c"} 0.0
# HELP pixy_own Only here.
# TYPE pixy_own gauge
pixy_own 2.0
"""


def test_samples_of_a_family_stand_together_and_name_their_worker() -> None:
    families = {each.name: each for each in prometheus(merge_metrics({2: TWO, 1: ONE}))}
    assert list(families) == ["pixy_up", "pixy_calls", "pixy_own"]
    found = [(each.labels, each.value) for each in families["pixy_up"].samples]
    assert found == [({"worker": "1", "cluster": "a{b} c"}, 1.0), ({"worker": "2", "cluster": "a{b} c"}, 0.0)]
    assert families["pixy_calls"].samples[0].labels == {"worker": "1"}


def test_openmetrics_ends_once_and_keeps_exemplars() -> None:
    text = (
        "# HELP s S.\n# TYPE s histogram\n"
        's_bucket{le="1.0"} 1.0 # {trace_id="t"} 0.5 1700000000.0\ns_bucket{le="+Inf"} 1.0\ns_count 1.0\ns_sum 0.5\n# EOF\n'
    )
    merged = merge_metrics({1: text, 2: text})
    assert merged.count("# EOF") == 1
    assert merged.endswith("# EOF\n")
    (family,) = openmetrics(merged)
    buckets = [each for each in family.samples if each.name == "s_bucket"]
    assert [each.exemplar is not None for each in buckets] == [True, False, True, False]


def test_a_finding_names_its_worker() -> None:
    merged = merge_findings({1: {"at": 5.0, "findings": []}, 2: {"at": 6.0, "findings": [{"rule": "x"}]}})
    assert merged == {"at": 6.0, "findings": [{"rule": "x", "worker": 2}]}


def test_the_daemon_is_ready_without_a_worker_that_is_gone_but_not_with_one_that_is_unready() -> None:
    good = {"ready": True, "checks": [{"check": "kafka", "ok": True}]}
    bad = {"ready": False, "checks": [{"check": "kafka", "ok": False}]}
    assert merge_readiness({1: good}, 2)["ready"]
    assert not merge_readiness({1: good, 2: bad}, 2)["ready"]
    assert not merge_readiness({}, 2)["ready"]
    checks = merge_readiness({2: good}, 2)["checks"]
    assert [(each["check"], each["worker"], each["ok"]) for each in checks] == [
        ("worker", 1, False),
        ("worker", 2, True),
        ("kafka", 2, True),
    ]
