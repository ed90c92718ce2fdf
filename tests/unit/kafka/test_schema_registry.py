"""Settings and client of a schema registry, against a server on a real socket."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from pixy.errors import ConfigError
from pixy.kafka import schema_registry
from pixy.kafka.schema_registry import Registry, RegistryError, RegistrySettings, load_settings
from tests.schema_registry import TestRegistry, serving

TEXT = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'


@pytest.fixture
def server() -> Iterator[TestRegistry]:
    with serving(TestRegistry()) as found:
        yield found


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[]", "no settings"),
        ("url: [", "not YAML"),
        ("url: ftp://r", "url is not"),
        ("url: http://a,http://b", "url is not"),
        ("url: 5", "url is not text"),
        ("url: http://u:p@r", "credentials"),
        ("{url: http://r, token: x}", "unknown key 'token'"),
        ("{url: http://r, username: u}", "password_file go together"),
        ("{url: http://r, timeout: soon}", "timeout"),
        ("{url: http://r, timeout: 1h}", "timeout"),
        ("{url: http://r, max_schemas: true}", "max_schemas"),
    ],
)
def test_bad_settings_are_one_line_that_names_the_key(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "registry.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_settings(str(file))
    assert named in str(caught.value)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "u:p@" not in str(caught.value)


def test_settings_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "registry.yaml"
    file.write_text(
        "{url: https://r:8081, ca: ca.pem, username: u, password_file: p, timeout: 2s, max_schemas: 7}"
    )
    assert load_settings(str(file)) == RegistrySettings("https://r:8081", "ca.pem", "u", "p", 2.0, 7)


def test_schemas_of_a_subject_are_fetched_once(server: TestRegistry) -> None:
    first = server.register("t-value", TEXT)
    registry = Registry(RegistrySettings(server.url))
    assert [each.id for each in registry.schemas("t-value")] == [first]
    second = server.register("t-value", "message M {}", "PROTOBUF")
    found = registry.schemas("t-value")
    assert [(each.id, each.version, each.kind) for each in found] == [
        (first, 1, "AVRO"),
        (second, 2, "PROTOBUF"),
    ]
    assert found[0].text == TEXT
    assert server.asked.count("/subjects/t-value/versions/1") == 1
    assert registry.schemas("other-value") == []


def test_more_schemas_than_allowed_are_refused(server: TestRegistry) -> None:
    for number in range(3):
        server.register("t-value", f'"string{number}"')
    with pytest.raises(RegistryError, match="3 schemas, max_schemas allows 2"):
        Registry(RegistrySettings(server.url, max_schemas=2)).schemas("t-value")


def test_tls_and_password_come_from_files(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    (tmp_path / "right").write_text("se:cret\n")
    (tmp_path / "wrong").write_text("guess\n")
    with serving(TestRegistry("pixy:se:cret"), context) as server:
        server.register("t-value", TEXT)
        ca = str(tmp_path / "ca.pem")
        right = RegistrySettings(server.url, ca, "pixy", str(tmp_path / "right"))
        assert len(Registry(right).schemas("t-value")) == 1
        wrong = RegistrySettings(server.url, ca, "pixy", str(tmp_path / "wrong"))
        with pytest.raises(RegistryError, match="HTTP 401") as caught:
            Registry(wrong).schemas("t-value")
        assert "guess" not in str(caught.value)


def test_an_untrusted_registry_and_one_that_is_gone_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry, "_RETRY_WAIT_MS", 1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    with serving(TestRegistry("pixy:x"), context) as server:
        registry = Registry(RegistrySettings(server.url))
        with pytest.raises(RegistryError, match=r"does not answer: .*certificate"):
            registry.schemas("t-value")
    with pytest.raises(RegistryError, match=f"{server.url}, subject t-value does not answer"):
        registry.schemas("t-value")


def test_a_ca_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.pem cannot be used"):
        Registry(RegistrySettings("https://r", str(tmp_path / "missing.pem")))
