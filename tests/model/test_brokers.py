"""Scenarios of dying brokers show the same on the model and on three real ones."""

from __future__ import annotations

import pytest

from tests.kafka.cluster import Cluster
from tests.model import broker_scenarios
from tests.model.test_scenarios import compare, on_kafka
from tests.model.world import Script


@pytest.mark.parametrize("script", broker_scenarios.SCENARIOS, ids=lambda script: script.__name__)
def test_the_model_sees_of_brokers_what_kafka_shows(kafka3: Cluster, name: str, script: Script) -> None:
    compare(script, on_kafka(script, kafka3, name))
