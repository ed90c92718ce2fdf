"""What is remembered of requests' hosts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from pixy.api.edge.browsers import Browsers
from pixy.config.model import App


def test_long_hosts_are_allowed_and_not_remembered() -> None:
    browsers = Browsers(App(allowed_hosts=[".example.com"]))
    for host in ("a" * 60_000 + ".example.com", "a.example.com:19092"):
        request = cast(Any, SimpleNamespace(headers={"Host": host}, method="GET"))
        assert browsers.problem(request, "/topics", True) == ""
    assert browsers._seen == {"a.example.com:19092"}
