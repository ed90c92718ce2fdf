"""The request of a replay: which records, where to, and how."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from pixy.pipeline.lake.selection import Selection

PARTITIONERS = ("keep", "murmur2_random", "fnv1a_random", "consistent_random")
"""``keep``, or a partitioner of librdkafka: that of Java, of Sarama (and the proxy), and its own."""


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """A replay's topics, conditions and settings: the options of the command.

    Attributes:
        topic: the topic in the lake.
        to: the topic to write to.
        selection: conditions on the records.
        partitioner: one of ``PARTITIONERS``.
        create: create the topic to write to if it does not exist.
        any_timestamp_type: write also to a topic that replaces timestamps.
        now_if_missing: give records without a timestamp the time of the replay.
        max_rate: records a second; 0 is unlimited.
        groups: (group of the old topic, group to commit for).
        topic_id: Kafka's id of an earlier topic of the name, whose records to write; empty for the last one.
        registries: URLs of the registries whose schema ids to replace, and of those to replace them by; empty for none.
        allow_same_topic: write to the topic, of the same cluster, that the records came from.
    """

    topic: str
    to: str
    selection: Selection
    partitioner: str = "keep"
    create: bool = False
    any_timestamp_type: bool = False
    now_if_missing: bool = False
    max_rate: int = 0
    groups: tuple[tuple[str, str], ...] = ()
    topic_id: str = ""
    registries: tuple[str, ...] = ()
    allow_same_topic: bool = False

    def identity(self, lake: str, cluster_id: str) -> dict[str, Any]:
        """Return, as JSON, the fields that tell this replay from others.

        Args:
            lake: id of the lake.
            cluster_id: Kafka's id of the cluster.
        """
        selection = asdict(replace(self.selection, ends={}))
        selection["partitions"] = sorted(self.selection.partitions)
        selection["keys"] = [key.hex() for key in self.selection.keys]
        document = {
            "lake": lake,
            "cluster_id": cluster_id,
            "topic": self.topic,
            "to": self.to,
            "selection": selection,
            "partitioner": self.partitioner,
            **({"topic_id": self.topic_id} if self.topic_id else {}),
            **({"registries": self.registries} if self.registries else {}),
        }
        return dict(json.loads(json.dumps(document)))

    def name(self, lake: str) -> str:
        """Return a name derived from the request, so repeating the request finds the same state folder.

        Args:
            lake: id of the lake.
        """
        text = json.dumps(self.identity(lake, ""), sort_keys=True)
        return f"{self.topic}-to-{self.to}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
