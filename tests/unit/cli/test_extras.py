"""What is missing is installed from a checkout: no index has Kafka-Pixy."""

from __future__ import annotations

import configparser
import io
import re
import sys
from pathlib import Path

import pytest

from pixy.cli.tap_otlp import check_otlp
from pixy.errors import StartError
from pixy.tap import capture_file

ROOT = Path(__file__).resolve().parents[3]
SOURCES = [path.read_text() for path in (ROOT / "pixy").rglob("*.py")]


def test_a_capture_without_its_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dpkt", None)
    advice = "reading captures needs the extra pcap: pip install '.[pcap]' in a checkout of Kafka-Pixy (import of dpkt"
    with pytest.raises(StartError, match=re.escape(advice)):
        next(iter(capture_file.segments(io.BytesIO())))


def test_times_for_opentelemetry_without_the_library_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pixy.tap.otlp", None)
    with pytest.raises(
        StartError, match=re.escape("--otlp needs the extra otel: pip install '.[otel]' in a checkout")
    ):
        check_otlp("http://localhost:4318")


def test_the_extras_that_are_advised_exist_and_no_advice_needs_an_index() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    advised = {name for text in SOURCES for name in re.findall(r'needs_extra\("[^"]+", "(\w+)"', text)}
    assert {"lake", "otel", "decode", "pcap", "mcp"} <= advised <= set(setup["options.extras_require"])
    assert not [text for text in SOURCES if "install 'kafka-pixy[" in text]
