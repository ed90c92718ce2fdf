"""librdkafka takes the settings of every configuration that is valid: a daemon would give up with tracebacks otherwise."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer

from pixy.config import kinds, model
from pixy.config.validate import validate
from pixy.kafka import settings

_SECTIONS = ("net", "producer", "consumer", "instances", "journal")
_MOST = {int: 2**63 - 1, kinds.Duration: 9_223_372_036.0}
"""What the file can say at all."""


def largest() -> Iterator[tuple[str, str, float]]:
    """Yield each number and duration of a cluster's configuration, with the largest value that is valid."""
    for section in _SECTIONS:
        values = getattr(model.Proxy(), section)
        for name, kind in typing.get_type_hints(type(values), include_extras=True).items():
            plain = getattr(kind, "__origin__", kind)
            if plain in _MOST:
                bounds = [meta.le for meta in getattr(kind, "__metadata__", ()) if meta.le is not None]
                yield section, name, min([*bounds, _MOST[plain]])


@pytest.mark.parametrize(("section", "name", "value"), list(largest()))
def test_the_largest_valid_value(section: str, name: str, value: float) -> None:
    proxy = model.Proxy()
    changed = dataclasses.replace(getattr(proxy, section), **{name: value})
    if name == "batch_events":
        changed.buffer_events = value
    setattr(proxy, section, changed)
    validate(model.App(proxies={"a": proxy}))
    for made in (settings.producer(proxy, "random"), settings.journal(proxy)):
        Producer(made)
    for made in (
        settings.consumer(proxy, "g"),
        settings.instance(proxy, "g", "i", "latest", "read_committed"),
    ):
        Consumer(made).close()


def test_both_bounds_of_a_messages_time() -> None:
    most = dataclasses.replace(model.Producer(), retry_max=2**63 - 1, retry_backoff=9_223_372_036.0)
    Producer(settings.producer(dataclasses.replace(model.Proxy(), producer=most), "random"))
