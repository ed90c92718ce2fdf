"""A forwarded read, while its caller's credential ends where he was recognized."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pixy.api.restv1.ended_credentials import while_recognized
from pixy.auth.authenticator import Authenticator
from pixy.auth.keys import StoredKey, digest_of
from pixy.auth.principal import Caller, Credentials, Principal, current
from pixy.config.security import Auth
from pixy.errors import Unauthenticated

NOW = 1_900_000_000.0
KEY = "kp_" + "a" * 43
APP = Principal("key:app")


class Answer:
    """The head of an answer."""

    closed = False

    def close(self) -> None:
        self.closed = True


class Read:
    """A forwarded read of the key's owner, and the file that has the key."""

    def __init__(self, folder: Path) -> None:
        self.file, self.now = folder / "keys", NOW
        self.write(None)
        self.authenticator = Authenticator(
            Auth(enabled=True, keys_file=str(self.file), anonymous=True), lambda: self.now
        )
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def write(self, expires: float | None) -> None:
        self.file.write_text(StoredKey("app", digest_of(KEY), expires).line() + "\n")

    def reload(self) -> None:
        self.authenticator.read()()

    async def begin(self, seen: Credentials | None = None) -> asyncio.Task[Any]:
        shown = seen or Credentials(api_key=KEY)
        principal, until = self.authenticator.identify(shown)
        current.set(Caller(principal, "", "", until, self.authenticator.generation, shown))

        async def asking() -> Any:
            return await self.answer

        waiting = asyncio.create_task(while_recognized(self.authenticator, asking()))
        await asyncio.sleep(0)
        return waiting


@pytest.fixture
async def read(tmp_path: Path) -> Read:
    return Read(tmp_path)


@pytest.fixture(autouse=True)
def nobody() -> Iterator[None]:
    before = current.get()
    yield
    current.set(before)


async def test_it_is_given_up_once_the_key_is_removed(read: Read) -> None:
    waiting = await read.begin()
    read.file.write_text("# nobody\n")
    read.reload()
    read.reload()  # before the read has learned of the first one
    with pytest.raises(Unauthenticated, match="ended while the read waited"):
        await asyncio.wait_for(waiting, 60)
    assert read.answer.cancelled() and not read.authenticator._watchers


async def test_it_is_given_up_when_the_credential_expires(read: Read) -> None:
    read.write(NOW + 1)
    read.reload()
    read.now += 0.99
    waiting = await read.begin()
    with pytest.raises(Unauthenticated, match="ended while the read waited"):
        await asyncio.wait_for(waiting, 60)
    assert read.answer.cancelled()


async def test_an_answer_after_the_end_is_not_passed_on(read: Read) -> None:
    read.write(NOW + 3600)
    read.reload()
    waiting = await read.begin()
    read.now += 3601  # the clock was set
    answer = Answer()
    read.answer.set_result(answer)
    with pytest.raises(Unauthenticated):
        await asyncio.wait_for(waiting, 60)
    assert answer.closed


@pytest.mark.parametrize(
    "seen",
    [Credentials(api_key=KEY), Credentials(), Credentials(principal=APP)],
    ids=["key", "anonymous", "forwarded by a peer"],
)
async def test_a_caller_who_stays_gets_the_answer(read: Read, seen: Credentials) -> None:
    waiting = await read.begin(seen)
    read.write(NOW + 3600)
    read.reload()
    answer = Answer()
    read.answer.set_result(answer)
    assert await asyncio.wait_for(waiting, 60) is answer and not answer.closed


async def test_a_peer_that_does_not_answer_in_time_is_that(read: Read) -> None:
    waiting = await read.begin()
    read.answer.set_exception(TimeoutError())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(waiting, 60)
