"""Refuse to write records to the topic that they came from, which would then have each of them twice.

Kafka's ids tell clusters and topics apart: the same cluster has many addresses, and a topic that was created again since has
none of the records. Names are compared where there are no ids to compare: Kafka does not answer, or has none.
"""

from __future__ import annotations

from pixy.errors import KafkaError
from pixy.kafka.blocking import ClusterView
from pixy.pipeline.errors import UsageError
from pixy.pipeline.lake.lake import Identity
from pixy.pipeline.replay.request import ReplayRequest


def refuse_own_topic(
    request: ReplayRequest, source: Identity, topic_id: str, cluster: str, view: ClusterView
) -> None:
    """Raise UsageError if the records came from the topic that they are to be written to, unless that is wanted.

    Args:
        request: the replay's request.
        source: the lake's identity, with the cluster that it archives.
        topic_id: Kafka's id of the topic in the lake; empty if it has none.
        cluster: name in the configuration of the cluster to write to.
        view: that cluster; it is asked only if the topics have the same name.
    """
    if request.to != request.topic or request.allow_same_topic:
        return
    try:
        id_ = view.cluster_id()
        there = view.topic_ids([request.to])
    except KafkaError:
        if cluster == source.cluster:
            raise _refusal(request, cluster, " (by its name: Kafka does not answer)") from None
        return  # a run ends at its next question to Kafka
    same = id_ == source.cluster_id if id_ and source.cluster_id else cluster == source.cluster
    if not same or request.to not in there:
        return
    created_again = topic_id and there[request.to] and topic_id != there[request.to]
    if not created_again:
        raise _refusal(request, cluster, f" ({id_})" if id_ else "")


def _refusal(request: ReplayRequest, cluster: str, known: str) -> UsageError:
    return UsageError(
        f"the records of topic {request.topic} came from this topic of this cluster, {cluster}{known}: it would have each of "
        "them twice. --to names another topic; --allow-same-topic writes them to this one"
    )
