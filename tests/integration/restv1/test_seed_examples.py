"""Every example request of KIP-80 that produces to or reads a partition, unchanged."""

from __future__ import annotations

from tests.integration.restv1.support import BINARY_V1, V1, ask
from tests.kafka.cluster import Cluster
from tests.support import make_config, serving

PRODUCE = b"""{

 "records": [

   {

     "key": "a2V5",

     "value": "dmFsdWU="

   },

   {

     "value": "dmFsdWU=",

     "partition": 1

   }

 ]

}
"""
PRODUCE_TO_PARTITION = PRODUCE.replace(b',\n\n     "partition": 1', b"")


async def test_kip80_example_post_topics_test(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name, 3)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        answer = await ask(daemon, "POST", f"/topics/{name}", PRODUCE, content_type=BINARY_V1, accept=V1)
    assert (answer.status, answer.headers["Content-Type"]) == (200, V1)
    first, second = answer.json["offsets"]
    assert (first["partition"], first["offset"]) == (1, 0), "the key decides"
    assert (second["partition"], second["offset"]) == (1, 1), "the record decides"
    for entry in (first, second):
        assert entry["error_code"] is None and entry["error"] is None
    assert answer.json["key_schema_id"] is None and answer.json["value_schema_id"] is None


async def test_kip80_example_post_topics_test_partitions_1(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name, 2)
    path = f"/topics/{name}/partitions/1"
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await ask(daemon, "POST", path, b'{"records":[{"value":""}]}', content_type=BINARY_V1)
        answer = await ask(daemon, "POST", path, PRODUCE_TO_PARTITION, content_type=BINARY_V1, accept=V1)
    assert (answer.status, answer.headers["Content-Type"]) == (200, V1)
    assert [(entry["partition"], entry["offset"]) for entry in answer.json["offsets"]] == [(1, 1), (1, 2)]


async def test_kip80_example_get_partition_with_an_offset(kafka: Cluster, name: str) -> None:
    """Its description says ``/topics/...``, its example line ``/consume/...``."""
    kafka.create_topic(name, 2)
    record = {"key": "a2V5", "value": "dmFsdWU="}
    async with serving(make_config(kafka.bootstrap())) as daemon:
        made = await ask(
            daemon, "POST", f"/topics/{name}/partitions/1", {"records": [record] * 3}, content_type=BINARY_V1
        )
        assert made.status == 200
        for path in (f"/consume/{name}/partitions/1?offset=1", f"/topics/{name}/partitions/1?offset=1"):
            answer = await ask(daemon, "GET", path, accept=BINARY_V1)
            assert (answer.status, answer.headers["Content-Type"]) == (200, BINARY_V1)
            assert [
                {key: found[key] for key in ("key", "value", "partition", "offset")} for found in answer.json
            ] == [{"key": "a2V5", "value": "dmFsdWU=", "partition": 1, "offset": offset} for offset in (1, 2)]


async def test_kip80_status_codes_of_the_seed(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name, 2)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        for method, path, code in (
            ("POST", f"/topics/{name}x", 40401),
            ("POST", f"/topics/{name}x/partitions/1", 40401),
            ("POST", f"/topics/{name}/partitions/5", 40402),
            ("GET", f"/topics/{name}x/partitions/1?offset=0", 40401),
            ("GET", f"/topics/{name}/partitions/5?offset=0", 40402),
            ("GET", f"/consume/{name}/partitions/5?offset=0", 40402),
        ):
            body = PRODUCE_TO_PARTITION if method == "POST" else None
            answer = await ask(daemon, method, path, body, content_type=BINARY_V1, accept=BINARY_V1)
            assert (answer.status, answer.json["error_code"]) == (404, code), (method, path)
