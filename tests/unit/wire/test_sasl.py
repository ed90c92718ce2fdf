"""SASL exchanges: the examples of the RFCs, and a server that cannot prove its identity."""

from __future__ import annotations

import pytest

from pixy.wire.sasl import AuthenticationError, Sasl

SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"


def scram(password: str = "pencil") -> Sasl:
    return Sasl("SCRAM-SHA-256", "user", password, nonce=lambda: "rOprNGfwEbeRWgbNEkqO")


def test_scram_sha_256_as_in_rfc_7677() -> None:
    dialogue = scram().exchange()
    assert next(dialogue) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert dialogue.send(SERVER_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    with pytest.raises(StopIteration):
        dialogue.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(
    ("first", "last", "words"),
    [
        (b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", None, "nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=!,i=4096", None, "first message"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,i=4096", None, "first message"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=c2FsdA==,i=x", None, "first message"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=c2FsdA==,i=1", None, "1 iterations"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=c2FsdA==,i=999999999", None, "999999999 iterations"),
        (SERVER_FIRST, b"e=invalid-proof", "invalid-proof"),
        (SERVER_FIRST, b"v=AAAA", "does not know the password"),
        (SERVER_FIRST, b"\xff\xff", "does not know the password"),
    ],
)
def test_scram_with_a_wrong_server(first: bytes, last: bytes | None, words: str) -> None:
    dialogue = scram().exchange()
    next(dialogue)
    with pytest.raises(AuthenticationError, match=words):
        dialogue.send(first)
        assert last is not None
        dialogue.send(last)


def test_names_are_escaped() -> None:
    assert next(Sasl("SCRAM-SHA-512", "a,b=c", "p", nonce=lambda: "n").exchange()) == b"n,,n=a=2Cb=3Dc,r=n"


def test_plain() -> None:
    assert list(Sasl("PLAIN", "alice", "s\u00e9cret").exchange()) == [b"\0alice\0s\xc3\xa9cret"]


def test_a_nonce_is_used_once_and_the_password_is_not_shown() -> None:
    made = Sasl("SCRAM-SHA-256", "alice", "secret")
    assert next(made.exchange()) != next(made.exchange())
    assert "secret" not in repr(made)


def test_the_cap_of_iterations() -> None:
    """Each costs time, and the server chooses the number: Kafka's own has at most 16,384."""
    dialogue = scram().exchange()
    next(dialogue)
    with pytest.raises(AuthenticationError, match="asks for 100001 iterations"):
        dialogue.send(SERVER_FIRST.replace(b"4096", b"100001"))


def test_oauthbearer_as_in_rfc_7628() -> None:
    tokens = iter(("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==", "other"))
    made = Sasl("OAUTHBEARER", token=lambda: next(tokens), extensions={"host": "server.example.com"})
    exchange = made.exchange()
    assert next(exchange) == (
        b"n,,\1auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\1host=server.example.com\1\1"
    )
    with pytest.raises(StopIteration):
        exchange.send(b"")
    exchange = made.exchange()
    assert b"Bearer other\1" in next(exchange), "each authentication has a new token"
    assert exchange.send(b'{"status":"invalid_token"}') == b"\1"
    with pytest.raises(AuthenticationError, match="invalid_token"):
        exchange.send(b"")


def test_tokens_that_cannot_be_sent() -> None:
    def fail() -> str:
        raise OSError("the identity provider is away")

    for token, words in ((lambda: "a\1b", "RFC 6750"), (lambda: "", "RFC 6750"), (fail, "provider is away")):
        with pytest.raises(AuthenticationError, match=words):
            next(Sasl("OAUTHBEARER", token=token).exchange())
    for wrong in ({"auth": "x"}, {"a1": "x"}, {"a": "\1"}):
        with pytest.raises(ValueError, match="cannot be sent"):
            Sasl("OAUTHBEARER", token=lambda: "x", extensions=wrong)
    for made in (lambda: Sasl("OAUTHBEARER"), lambda: Sasl("PLAIN", "a", "b", token=lambda: "x")):
        with pytest.raises(ValueError, match="needs a token"):
            made()


def test_an_unknown_mechanism() -> None:
    with pytest.raises(ValueError, match="GSSAPI"):
        Sasl("GSSAPI", "alice", "secret")
