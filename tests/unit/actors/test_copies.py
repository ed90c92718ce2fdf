"""Copies of futures and proxies: of a settled reply a copy has the outcome; of a pending one there is none."""

from __future__ import annotations

import asyncio
import copy
import pickle
from typing import Any

import pytest

from actors import Actor, ActorSystem, Future


class Holder(Actor):
    def __init__(self) -> None:
        super().__init__()
        self.value = 1

    async def on_receive(self, message: Any) -> Any:
        if isinstance(message, Exception):
            raise message
        await asyncio.sleep(message)
        return [message]

    def double(self, value: int) -> int:
        return 2 * value


class Traversable:
    pykka_traversable = True

    def __init__(self) -> None:
        self.depth = 3


class Nested(Holder):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Traversable()


COPIES = [copy.copy, copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))]


@pytest.mark.parametrize("made", COPIES)
async def test_a_pending_future_is_not_copied(made: Any) -> None:
    async with ActorSystem() as system:
        future = system.spawn(Holder).ask(0.0, block=False)
        for pending in (future, future.map(len)):
            with pytest.raises(TypeError, match=r"^a future is not copied or pickled before it is done"):
                made(pending)
        assert await future == [0.0]


@pytest.mark.parametrize("made", COPIES)
async def test_a_copy_of_a_settled_future_has_its_outcome(made: Any) -> None:
    async with ActorSystem() as system:
        ref = system.spawn(Holder)
        value, failed = (ref.ask(each, block=False, timeout=9) for each in (0.0, OSError("no")))
        await asyncio.wait([value.as_asyncio(), failed.as_asyncio()])
        cancelled: Future[Any] = Future()
        cancelled.cancel()
        assert await made(value) == [0.0]
        assert (made(value).value() is value.value()) == (made is copy.copy)
        with pytest.raises(OSError, match="no"):
            await made(failed)
        assert made(cancelled).cancelled()
        mapped: Future[int] = value.map(len)
        assert await mapped == 1 and await made(mapped) == 1


@pytest.mark.parametrize("made", [copy.copy, copy.deepcopy])
async def test_a_copy_of_a_proxy_reaches_the_same_actor(made: Any) -> None:
    async with ActorSystem() as system:
        ref = system.spawn(Nested)
        proxy = made(ref.proxy())
        assert proxy.actor_ref is ref and proxy == ref.proxy()
        assert await proxy.value == 1 and await proxy.double(2) == 4
        assert await made(proxy.inner).depth == 3
        assert await made(proxy.double)(4) == 8
        with pytest.raises(TypeError, match="cannot be pickled: actors live in one process"):
            pickle.dumps(proxy)
