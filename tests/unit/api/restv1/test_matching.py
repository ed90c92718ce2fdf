"""The listener matches a request once: to Kafka-Pixy's own API, or to the v1/v2 API, or to an error of either."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pixy.api.rest import router
from pixy.api.rest.server import RestServer, RestV1Server
from pixy.api.restv1.app import RestV1
from pixy.api.restv1.errors import ApiError
from pixy.api.restv1.routes import Match
from pixy.config.model import Rest

KAFKA = {"Accept": "application/vnd.kafka.v2+json"}
JSON = {"Content-Type": "application/json"}
NONE: dict[str, str] = {}


def match(
    server: type[RestServer], method: str, path: str, headers: dict[str, str], origins: tuple[str, ...] = ()
) -> str:
    """The result in one line."""
    rest = Rest(prefix="/rest", cors_origins=list(origins))
    engine: Any = SimpleNamespace(guard=None, config=SimpleNamespace(rest=rest))
    listener = object.__new__(server)
    listener._rest_v1 = RestV1(engine)
    request = cast(Any, SimpleNamespace(method=method, headers=headers))
    found = listener._match(request, path)
    if isinstance(found, Match):
        return f"v1 {found.cluster}{found.route.template}"
    if isinstance(found, ApiError):
        return f"v1 {found.kind.status}"
    if isinstance(found, router.Redirect):
        return f"redirect {found.path}"
    return f"pixy {found.endpoint}"


@pytest.mark.parametrize(
    ("method", "path", "headers", "expected"),
    [
        # both APIs have the path
        ("GET", "/topics", NONE, "pixy topics"),
        ("GET", "/topics", KAFKA, "v1 /topics"),
        ("GET", "/topics/t", NONE, "pixy topic"),
        ("GET", "/topics/t", KAFKA, "v1 /topics/{topic}"),
        ("GET", "/clusters/c/topics/t", KAFKA, "v1 c/topics/{topic}"),
        ("POST", "/topics/t", JSON, "v1 /topics/{topic}"),
        ("POST", "/topics/t", NONE, "pixy !"),
        ("PUT", "/topics/t", JSON, "pixy create_topic"),
        ("PUT", "/topics/t", KAFKA, "v1 405"),
        # one API has it
        ("POST", "/topics/t/messages", KAFKA, "pixy produce"),
        ("PUT", "/topics/t/messages", KAFKA, "pixy !"),
        ("GET", "/_ping", KAFKA, "pixy ping"),
        ("GET", "/topics/t/partitions", NONE, "v1 /topics/{topic}/partitions"),
        ("HEAD", "/brokers", NONE, "v1 /brokers"),
        ("PUT", "/brokers", NONE, "v1 405"),
        ("GET", "/consumers/g/i/offsets", NONE, "v1 /consumers/{group}/{instance}/offsets"),
        # none has it
        ("GET", "/nothing", NONE, "pixy "),
        ("GET", "/nothing", KAFKA, "v1 404"),
        ("GET", "//brokers", KAFKA, "redirect /brokers"),
        # below the prefix
        ("GET", "/rest/topics", NONE, "v1 /topics"),
        ("GET", "/rest", NONE, "v1 /"),
        ("POST", "/rest/topics/t/messages", NONE, "v1 404"),
        ("GET", "/restful", NONE, "pixy "),
    ],
)
def test_a_shared_listener(method: str, path: str, headers: dict[str, str], expected: str) -> None:
    assert match(RestServer, method, path, headers) == expected


@pytest.mark.parametrize("path", ["/topics", "/topics/t", "/clusters/c/topics/t"])
def test_a_preflight_is_for_the_v1_v2_api_where_origins_are_allowed(path: str) -> None:
    sent = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
    assert match(RestServer, "OPTIONS", path, sent, ("https://a.example",)) == "v1 405"
    assert match(RestServer, "OPTIONS", path, sent) == "pixy !"
    assert match(RestServer, "OPTIONS", path, NONE, ("https://a.example",)) == "pixy !"


@pytest.mark.parametrize(
    ("path", "expected"), [("/topics", "v1 /topics"), ("/_ping", "v1 404"), ("//topics", "v1 404")]
)
def test_a_listener_of_the_v1_v2_api_alone(path: str, expected: str) -> None:
    assert match(RestV1Server, "GET", path, NONE) == expected


def test_a_page_of_an_allowed_origin_can_read_what_is_refused_before_it_is_served() -> None:
    rest = Rest(cors_origins=["https://console.example"])
    api = RestV1(cast(Any, SimpleNamespace(guard=None, config=SimpleNamespace(rest=rest))))
    request = cast(Any, SimpleNamespace(method="GET", headers={"Origin": "https://console.example"}))
    for answer in (api.busy(request), api.forbidden(request, "no")):
        assert answer.headers["Access-Control-Allow-Origin"] == "https://console.example", answer.status
        assert answer.headers["Access-Control-Expose-Headers"] == "Retry-After"
