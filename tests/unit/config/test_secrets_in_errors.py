"""An error in the configuration names the place, never a secret in it."""

from __future__ import annotations

import pytest
from yaml.parser import ParserError

from pixy.config import load_text, validate
from pixy.config.load import yaml_problem
from pixy.errors import ConfigError


@pytest.mark.parametrize(
    "text",
    [
        "proxies: {a: {net: {sasl: hunter2}}}",
        "proxies: {a: {net: hunter2}}",
        "proxies: {a: hunter2}",
        "auth: hunter2",
        "tls: hunter2",
        "proxies: {a: {net: {sasl: {password: *hunter2}}}}",
        "proxies: {a: {net: {sasl: {password: !hunter2!x}}}}",
        "proxies: {a: {net: {sasl: {password: &hunter2}}}}: x",
        "proxies: {a: {net: {sasl: {password: [*hunter2, ']'",
        "%TAG !hunter2! a\n%TAG !hunter2! b\n---\na: 1",
        "a: &hunter2 1\nb: &hunter2 2",
        "rest: {node_id: a, peers: {b: 'user:hunter2@host'}}\nproxies: {a: }",
        "rest: {node_id: a, peers: {b: 'ftp://user:hunter2@host'}}\nproxies: {a: }",
        "rest: {advertised_url: 'https:/user:hunter2@host'}\nproxies: {a: }",
        "rest: {node_id: a, peers: {b: 'http://user:hunter2/x@host:80'}}\nproxies: {a: }",
        "rest: {node_id: a, peers: {b: 'http://user:80/hunter2@host:80'}}\nproxies: {a: }",
        "proxies: {a: {kafka: {seed_peers: ['user:hunter2@host:9092']}}}",
        "proxies: {a: {kafka: {seed_peers: ['SASL_SSL://user:hunter2/x@host:9092']}}}",
        "logging: [{name: syslog, params: {addr: 'user:hunter2@host'}}]\nproxies: {a: }",
    ],
)
def test_an_error_keeps_secrets_back(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        validate(load_text(text))
    assert "hunter2" not in str(refused.value) and str(refused.value)


@pytest.mark.parametrize("quoted", ["'a hunter2'", '"it\'s hunter2"', "'<hunter2>'", "'hunter2', x'"])
def test_what_yaml_quotes_is_left_out_whatever_it_holds(quoted: str) -> None:
    """Its own tokens are kept, and one character."""
    error = ParserError(problem=f"expected ',' or ']', but got {quoted}")
    assert yaml_problem(error) == "expected ',' or ']', but got"


def test_what_cannot_be_a_secret_is_shown() -> None:
    with pytest.raises(ConfigError, match=r"cannot unmarshal !!str `soon` into time.Duration"):
        load_text("shutdown_timeout: soon")
