"""What the greeting proposes to try names the credentials that the daemon wants, and a host that its certificate names."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from pixy.cli.credential_hints import covered
from pixy.cli.welcome import welcome
from pixy.config import App


def secured() -> App:
    app = App()
    app.auth.enabled = True
    return app


def test_without_auth_and_tls_nothing_is_added() -> None:
    assert "  curl 'http://127.0.0.1:19092/topics/foo/messages?group=bar'\n" in welcome(App())
    assert "stands for" not in welcome(App())


def test_a_key_or_a_token_is_named() -> None:
    app = secured()
    app.auth.keys_file = "keys.txt"
    shown = welcome(app)
    assert shown.count("-H 'Authorization: Bearer KEY' ") == 3
    assert "KEY stands for an API key of keys.txt, FILE has it." in shown
    app.tcp_addr = ""
    app.unix_addr = ""
    assert welcome(app).count("--token-file FILE --server") == 2
    app = secured()
    app.auth.jwt.jwks_file, app.auth.jwt.issuer = "jwks.json", "https://issuer"
    shown = welcome(app)
    assert "-H 'Authorization: Bearer TOKEN' " in shown and "a JWT of https://issuer" in shown


@pytest.mark.parametrize("kind", ["anonymous", "peer_uid"])
def test_whoever_is_let_in_needs_none(kind: str) -> None:
    app = secured()
    app.auth.keys_file = "keys.txt"
    setattr(app.auth, kind, True)
    app.tcp_addr, app.unix_addr = "", "/s"
    assert "Authorization" not in welcome(app)


def test_a_uid_is_known_on_the_unix_socket_only() -> None:
    app = secured()
    app.auth.peer_uid = True
    assert "auth recognizes nobody on this listener: see docs/security.md." in welcome(app)


def test_client_certificates_are_named_where_they_are_wanted() -> None:
    app = secured()
    app.tls.certificate_path, app.tls.client_ca_path, app.auth.certificates = "c", "ca.pem", True
    shown = welcome(app)
    assert shown.count("curl --cacert CA.pem --cert CLIENT.pem --key CLIENT.key ") == 3
    assert "a certificate of ca.pem" in shown and "Authorization" not in shown
    app.tls.client_certificates, app.auth.certificates = "optional", False
    app.auth.anonymous = True
    assert "--cert " not in welcome(app)
    app.tcp_addr, app.tls.client_certificates = "", "required"
    assert "--ca CA.pem --cert CLIENT.pem --cert-key CLIENT.key --server" in welcome(app)


@pytest.mark.parametrize(
    ("names", "host", "wanted", "note"),
    [
        (["localhost"], "127.0.0.1", "localhost", ""),
        (["127.0.0.1", "localhost"], "127.0.0.1", "127.0.0.1", ""),
        (["127.0.0.1"], "localhost", "127.0.0.1", ""),
        (["127.0.0.1"], "::1", "::1", "The certificate is for 127.0.0.1: call that name, and have it lead to ::1."),
        (["*.example.org"], "pixy.example.org", "pixy.example.org", ""),
        (
            ["pixy.example.org"],
            "localhost",
            "localhost",
            "The certificate is for pixy.example.org: call that name, and have it lead to localhost.",
        ),
    ],
)  # fmt: skip
def test_the_host_is_one_that_the_certificate_names(
    names: list[str], host: str, wanted: str, note: str, tmp_path: Path
) -> None:
    trustme.CA().issue_cert(*names).cert_chain_pems[0].write_to_path(tmp_path / "c.pem")
    assert covered(str(tmp_path / "c.pem"), host) == (wanted, note)


def test_a_certificate_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "c.pem").write_text("nothing")
    for path in (str(tmp_path / "c.pem"), str(tmp_path / "none"), ""):
        assert covered(path, "127.0.0.1") == ("127.0.0.1", "")
