"""Fixtures of the client tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.wire.sides import Blocking, OnLoop


@pytest.fixture(params=["blocking", "asyncio"])
def side(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "blocking":
        yield Blocking()
        return
    made = OnLoop()
    yield made
    made.loop.run_until_complete(asyncio.sleep(0))  # lets aborted transports close
    made.loop.close()
