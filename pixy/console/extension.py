"""Kafka's part of the console: views and the sources behind them."""

from __future__ import annotations

from pathlib import Path

from actors.console import Extension, Link, View
from pixy.console.sources import Sources
from pixy.console.watch import Watch


def kafka_extension(watch: Watch) -> Extension:
    """Return the views of findings, groups and un-acked messages.

    Args:
        watch: looks at the engine.
    """
    return Extension(
        "kafka",
        Path(__file__).parent / "page",
        views=(
            View("findings", "Findings", "findings.js", "What is wrong, since when, and what to do?"),
            View("groups", "Groups", "groups.js", "Which groups lag or hold messages?"),
            View("trace", "Trace", "trace.js", "What happened to one message?"),
            View("tail", "Tail", "tail.js", "Which messages come to a topic?"),
            View("group", "Group", "group.js", "Who holds which message, since when?", True, "groups"),
        ),
        parts={"actor": "restart.js", "failures": "sampler.js"},
        sources=Sources(watch).by_name(),
        styles=("kafka.css",),
        links=(Link("Metrics", "/metrics"), Link("Findings as JSON", "/findings")),
        title="Kafka",
    )


__all__ = ["kafka_extension"]
