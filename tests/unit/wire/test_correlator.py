"""Matching responses to requests, and the cases that break their order."""

from __future__ import annotations

from typing import Any

import pytest

from pixy.wire import frames
from pixy.wire.correlator import Correlator, Token, produce_acks
from pixy.wire.exceptions import DecodeError, TruncatedError, WireError
from pixy.wire.frames import RequestHeader


def request(api: str, version: int, correlation_id: int, **body: Any) -> bytes:
    return frames.encode_request(api, version, correlation_id, "c", body)[4:]


def response(api: str, version: int, correlation_id: int, **body: Any) -> bytes:
    return frames.encode_response(api, version, correlation_id, body)[4:]


def header(found: RequestHeader | Token) -> tuple[int, int, int]:
    assert isinstance(found, RequestHeader)
    return found.key, found.version, found.correlation_id


def test_answers_come_in_order() -> None:
    correlator = Correlator()
    for number in range(5):
        correlator.request(request("Heartbeat", number, 100 + number))
    assert len(correlator) == 5
    for number in range(5):
        assert header(correlator.response(response("Heartbeat", number, 100 + number))) == (
            12,
            number,
            100 + number,
        )
    with pytest.raises(DecodeError, match="nothing waits"):
        correlator.response(response("Heartbeat", 0, 105))


def test_an_answer_out_of_order() -> None:
    correlator = Correlator()
    correlator.request(request("Heartbeat", 0, 1))
    with pytest.raises(DecodeError, match="correlation id 2 where 1 is due"):
        correlator.response(response("Heartbeat", 0, 2))
    with pytest.raises(TruncatedError):
        correlator.response(b"\0\0")
    assert header(correlator.response(response("Heartbeat", 0, 1))) == (12, 0, 1)


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("transaction", [None, "", "a-transaction", "x" * 200])
def test_produce_without_acks_is_not_answered(version: int, transaction: str | None) -> None:
    body = {} if version < 3 else {"TransactionalId": transaction}
    correlator = Correlator()
    for acks in (0, 1, -1):
        frame = request("Produce", version, acks + 10, Acks=acks, **body)
        found = correlator.request(frame)
        assert isinstance(found, RequestHeader) and produce_acks(frame, found) == acks
    assert len(correlator) == 2
    assert header(correlator.response(response("Produce", version, 11))) == (0, version, 11)


def test_a_truncated_produce_awaits_an_answer() -> None:
    correlator = Correlator()
    correlator.request(request("Produce", 9, 1, Acks=0)[:13])
    assert len(correlator) == 1


def test_the_limit_of_unanswered_requests() -> None:
    correlator = Correlator(limit=2)
    correlator.request(request("Heartbeat", 0, 1))
    correlator.request(request("Heartbeat", 0, 2))
    with pytest.raises(WireError, match="more than 2 requests"):
        correlator.request(request("Heartbeat", 0, 3))
    correlator.clear()
    assert len(correlator) == 0


TOKENS = {
    "PLAIN": [(b"\0alice\0secret", b"")],
    "SCRAM-SHA-256": [
        (b"n,,n=alice,r=abc", b"r=abcdef,s=c2FsdA==,i=4096"),
        (b"c=biws,r=abcdef,p=x", b"v=abc"),
    ],
    "GSSAPI": [
        (b"\x60\x82\x02\x1a", b"\x60\x81\x9a"),
        (b"", b"\x05\x04\x05\xff"),
        (b"\x05\x04\x04\xff", None),
    ],
}


@pytest.mark.parametrize("mechanism", TOKENS)
def test_tokens_without_headers_after_handshake_0(mechanism: str) -> None:
    correlator = Correlator()
    correlator.request(request("SaslHandshake", 0, 1, Mechanism=mechanism))
    correlator.response(response("SaslHandshake", 0, 1, Mechanisms=[mechanism]))
    for token, answer in TOKENS[mechanism]:
        assert correlator.request(token) == Token(len(token))
        if answer is not None:
            assert correlator.response(answer) == Token(len(token))
    correlator.request(request("Metadata", 4, 2))
    assert header(correlator.response(response("Metadata", 4, 2))) == (3, 4, 2)
    assert len(correlator) == 0


def test_handshake_1_and_a_refused_one_have_no_tokens() -> None:
    for version, error in ((1, 0), (0, 33)):
        correlator = Correlator()
        correlator.request(request("SaslHandshake", version, 1, Mechanism="PLAIN"))
        correlator.response(response("SaslHandshake", version, 1, ErrorCode=error))
        found = correlator.request(request("SaslAuthenticate", 0, 2, AuthBytes=b"secret"))
        assert header(found) == (36, 0, 2)


def test_a_token_does_not_show_its_bytes() -> None:
    assert "secret" not in repr(Token(13))
