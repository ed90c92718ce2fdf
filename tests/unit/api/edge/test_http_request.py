"""The targets of requests."""

from __future__ import annotations

import pytest

from pixy.api.edge.http_request import without_origin


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("http://host/topics?x=y", "/topics?x=y"),
        ("HTTPS://user@host:1/a%2Fb", "/a%2Fb"),
        ("http://[::1]:1//x", "//x"),
        ("http://host", "/"),
        ("http://host?x=/y", "/?x=/y"),
        ("*", "*"),
        ("host:443", "host:443"),
        ("ftp://host/x", "ftp://host/x"),
    ],
)
def test_scheme_and_host_of_a_target_are_left_out(target: str, path: str) -> None:
    assert without_origin(target) == path
