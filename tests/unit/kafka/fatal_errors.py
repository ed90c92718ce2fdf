"""Fatal errors of a real librdkafka, on purpose, through functions that it exports for tests."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Producer

OUT_OF_ORDER = 45
_API_PRODUCE, _API_INIT_PRODUCER_ID = 0, 22


def _library() -> Any:
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    found = sorted(folder.glob("librdkafka*.so*"))
    if not found:
        pytest.skip("this confluent-kafka has no library of its own to call")
    library = ctypes.CDLL(str(found[0]))
    library.rd_kafka_name.argtypes = [ctypes.c_void_p]
    library.rd_kafka_name.restype = ctypes.c_char_p
    library.rd_kafka_test_fatal_error.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]
    library.rd_kafka_handle_mock_cluster.argtypes = [ctypes.c_void_p]
    library.rd_kafka_handle_mock_cluster.restype = ctypes.c_void_p
    library.rd_kafka_mock_push_request_errors_array.argtypes = [
        ctypes.c_void_p,
        ctypes.c_int16,
        ctypes.c_size_t,
        ctypes.POINTER(ctypes.c_int),
    ]
    return library


def _handle(producer: Producer) -> int:
    """The address of librdkafka's own object: the first field after Python's head of the object."""
    return int(ctypes.c_void_p.from_address(id(producer) + object.__basicsize__).value or 0)


def make_fatal(producer: Producer, code: int = OUT_OF_ORDER) -> None:
    """Let a producer have a fatal error, as if Kafka had answered with this error code."""
    assert _library().rd_kafka_test_fatal_error(_handle(producer), code, b"on purpose") == 0


def _refuse(mock_owner: Producer, request: int, codes: tuple[int, ...]) -> None:
    library = _library()
    mock = library.rd_kafka_handle_mock_cluster(_handle(mock_owner))
    library.rd_kafka_mock_push_request_errors_array(
        mock, request, len(codes), (ctypes.c_int * len(codes))(*codes)
    )


def refuse_produce(mock_owner: Producer, *codes: int) -> None:
    """Let the mock cluster answer the next Produce requests with these error codes, one each."""
    _refuse(mock_owner, _API_PRODUCE, codes)


def refuse_producer_ids(mock_owner: Producer, *codes: int) -> None:
    """Let the mock cluster answer the next InitProducerId requests with these error codes, one each."""
    _refuse(mock_owner, _API_INIT_PRODUCER_ID, codes)


__all__ = ["OUT_OF_ORDER", "make_fatal", "refuse_produce", "refuse_producer_ids"]
