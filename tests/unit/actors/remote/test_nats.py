"""The NATS transport over a client that loses its connection, refuses, and fails when told to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from actors import Actor, ActorDeadError, ActorSystem, Backoff, Future, MailboxFull, Supervision
from actors.remote import ConnectionLost, PickleCodec

actors_nats = pytest.importorskip("actors.nats")
nats_client = pytest.importorskip("actors.remote.nats_client")


class Client:
    """Stands for nats-py's: it keeps what is published while it reconnects, as that one does."""

    max_payload = 1 << 20

    def __init__(self) -> None:
        self.is_connected = True
        self.published: list[tuple[str, bytes, str]] = []
        self.failure: Exception | None = None
        self.subscriptions: list[Subscription] = []
        self.flush_failure: BaseException | None = None

    async def publish(self, subject: str, data: bytes, reply: str = "", headers: Any = None) -> None:
        if self.failure is not None:
            raise self.failure
        self.published.append((subject, data, reply))

    async def subscribe(self, subject: str, **_: Any) -> Subscription:
        self.subscriptions.append(made := Subscription(self))
        return made

    async def flush(self) -> None:
        if self.flush_failure is not None:
            raise self.flush_failure

    settled = flush
    check_size = nats_client.SteadyClient.check_size

    async def close(self) -> None:
        self.is_connected = False

    async def end_tasks(self) -> None:
        pass

    async def leave(self, subscription: Subscription) -> None:
        await subscription.unsubscribe()


class Subscription:
    def __init__(self, client: Client) -> None:
        self.client = client

    async def unsubscribe(self) -> None:
        self.client.subscriptions.remove(self)


@pytest.fixture
async def transport() -> AsyncIterator[Any]:
    client: Any = Client()
    made = actors_nats.NatsTransport(client, PickleCodec(), "actors", 3, 2, 30.0)
    made._inbox = "inbox"
    made._sender = asyncio.create_task(made._send())
    yield made
    await made.close()


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_waits_when_the_connection_is_lost_is_not_sent_later(
    transport: Any, caplog: pytest.LogCaptureFixture
) -> None:
    ref = transport.ref("a")
    ref.tell(1)
    ref.tell(2)
    asked = ref.ask(3, block=False)
    transport._client.is_connected = False
    await transport._lost()
    with pytest.raises(ConnectionLost, match=r"the message to actors\.a is not sent"):
        await asked
    transport._client.is_connected = True
    await turns()
    assert transport._client.published == [], "a message of an ask that has failed is sent"
    assert "2 messages that waited to be written are lost" in caplog.text
    for number in range(3):
        ref.tell(number)
    await turns()
    assert len(transport._client.published) == 3, "there is room again"


async def test_the_client_gets_nothing_while_it_reconnects(
    transport: Any, caplog: pytest.LogCaptureFixture
) -> None:
    ref = transport.ref("a")
    ref.tell(1)
    asked = ref.ask(2, block=False)
    transport._client.is_connected = False  # nobody has heard of it yet
    await turns()
    assert transport._client.published == []
    assert isinstance(asked.exception(), ConnectionLost)
    assert "1 messages that waited to be written are lost" in caplog.text


async def test_what_reaches_the_loop_after_the_end_is_refused_at_once(
    transport: Any, caplog: pytest.LogCaptureFixture
) -> None:
    ref = transport.ref("a")
    asked: list[Any] = []
    await transport.close()
    transport._client.is_connected = True  # as it was when the thread began to send

    def send() -> None:
        asked.append(ref.ask(1, block=False))
        ref.tell(2)

    thread = threading.Thread(target=send)
    thread.start()
    thread.join()
    transport._client.is_connected = False
    await turns()
    assert isinstance(asked[0].exception(), ConnectionLost)
    assert "1 messages that waited to be written are lost" in caplog.text


async def test_a_tell_that_cannot_be_published_is_reported(
    transport: Any, caplog: pytest.LogCaptureFixture
) -> None:
    transport._client.failure = OSError("broken pipe")
    transport.ref("a").tell(1)
    asked = transport.ref("a").ask(2, block=False)
    await turns()
    assert "a message to actors.a is lost: OSError('broken pipe')" in caplog.text
    assert "was not sent: OSError('broken pipe')" in str(asked.exception())


async def test_the_bounds_hold_for_threads_while_the_loop_is_busy(transport: Any) -> None:
    ref = transport.ref("a")
    refused: list[Any] = []
    asked: list[Any] = []

    def send() -> None:
        for number in range(5):
            asked.append(ref.ask(number, block=False))
        for number in range(5):
            if not ref.notify(number):
                refused.append(number)

    thread = threading.Thread(target=send)
    thread.start()
    thread.join()  # the loop is busy meanwhile
    assert [isinstance(each.exception(), MailboxFull) for each in asked] == [False] * 2 + [True] * 3
    assert refused == [1, 2, 3, 4], "two asks and one tell fill a queue of three"
    await turns()
    assert len(transport._client.published) == 3
    for inbox in tuple(transport._waiting):
        transport._settle(inbox, None, "answer")
    assert [await each for each in asked[:2]] == ["answer"] * 2
    assert transport.ref("a").ask("again", block=False).exception() is None, "there is room for asks again"


async def test_an_ask_that_is_given_up_makes_room_and_is_not_sent(transport: Any) -> None:
    ref = transport.ref("a")
    sent, unsent = ref.ask("sent", block=False), None
    await turns()
    unsent = ref.ask("not sent", block=False)
    assert isinstance(ref.ask("too many", block=False).exception(), MailboxFull)
    sent.cancel()
    unsent.cancel()
    await turns()
    assert [PickleCodec().decode(each[1]) for each in transport._client.published] == ["sent"]
    assert transport._waiting == {} and transport._unanswered == transport._unwritten == 0
    for number in range(2):
        assert ref.ask(number, block=False).exception() is None, "there is room again"


async def test_a_name_is_left_to_others_when_its_actor_stops(transport: Any) -> None:
    async with ActorSystem() as system:
        ref, other = system.spawn(Actor), system.spawn(Actor)
        await transport.serve("name", ref)
        await transport.serve("name", other)
        await ref.stop(block=False)
        await turns()
        assert len(transport._client.subscriptions) == len(transport._serving._served) == 1
        with pytest.raises(ActorDeadError):
            await transport.serve("name", ref)
        await transport.close()
        assert not other._cell.stop_replies, "an actor that lives on does not hold the transport"


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Begin a connection as a server does."""
    writer.write(b'INFO {"max_payload":1048576}\r\n')
    await reader.readuntil(b"PING\r\n")
    writer.write(b"PONG\r\n")


async def test_a_server_that_falls_silent_holds_up_neither_the_end_nor_the_next_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes nothing more, as one that is frozen, or behind a link that drops everything."""
    monkeypatch.setattr(actors_nats, "CLOSE_TIME", 0.01)
    talking: list[asyncio.StreamWriter] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talking.append(writer)
        await greet(reader, writer)
        reader._transport.pause_reading()  # type: ignore[attr-defined]

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        url = "nats://{}:{}".format(*server.sockets[0].getsockname())
        try:
            transport = await actors_nats.NatsTransport.connect(
                url, codec=PickleCodec(), reconnect_time_wait=0
            )
            client = transport._client
            for again in (2, 3):
                while client._transport._io_writer.transport.get_write_buffer_size() == 0:
                    transport.ref("a").notify(bytes(500_000))
                    await asyncio.sleep(0)
                if again == 2:
                    await client._process_op_err(OSError("it does not answer"))
                    while not client.is_connected:
                        await asyncio.sleep(0.001)
                    assert len(talking) == 2, "the second connection did not come about at once"
            await transport.close(0.01)
        finally:  # from Python 3.12 on the server's end waits for its connections
            for writer in talking:
                writer.transport.abort()


async def test_a_name_is_refused_at_once_if_the_connection_is_lost_while_it_is_served() -> None:
    talking: list[asyncio.StreamWriter] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talking.append(writer)
        await greet(reader, writer)
        if len(talking) == 1:
            await reader.readuntil(b"SUB actors.name")  # behind a ping, which gets no answer
            writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server, ActorSystem() as system:
        url = "nats://{}:{}".format(*server.sockets[0].getsockname())
        try:
            transport = await actors_nats.NatsTransport.connect(
                url, codec=PickleCodec(), reconnect_time_wait=0, max_reconnect_attempts=-1
            )
            async with asyncio.timeout(nats_client.nats.aio.client.DEFAULT_FLUSH_TIMEOUT / 2):
                with pytest.raises(ConnectionLost, match="the connection was lost"):
                    await transport.serve("name", system.spawn(Actor))
                while not transport._client.is_connected:
                    await asyncio.sleep(0.001)
            await transport.close(0.01)
        finally:
            for writer in talking:
                writer.transport.abort()


@pytest.mark.parametrize("error", [OSError("gone"), asyncio.CancelledError()])
async def test_a_name_that_cannot_be_served_leaves_no_subscription(
    transport: Any, error: BaseException
) -> None:
    async with ActorSystem() as system:
        ref = system.spawn(Actor)
        transport._client.flush_failure = error
        with pytest.raises((ConnectionLost, asyncio.CancelledError)):
            await transport.serve("name", ref)
        assert transport._client.subscriptions == [], "a second attempt would handle each message twice"
        transport._client.flush_failure = None
        await transport.serve("name", ref)
        assert len(transport._client.subscriptions) == 1


class Odd(BaseException):
    """What no ``except Exception`` catches."""


class Quits(Actor):
    """Exits, or cancels its reply, or keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = []

    def on_receive(self, message: str) -> Any:
        if message == "exit":
            raise SystemExit(3)
        if message == "odd":
            raise Odd
        if message == "keep":
            self.kept.append(self.take_reply())
        if message == "cancel":
            self.take_reply().cancel()
        return "here"


@pytest.mark.parametrize(
    ("message", "published"),
    [("exit", b"SystemExit: 3"), ("odd", b"Odd: "), ("cancel", b"CancelledError: ")],
)
async def test_what_ends_an_ask_otherwise_than_by_an_exception_is_an_answer(
    transport: Any, message: str, published: bytes
) -> None:
    async with ActorSystem() as system:
        ref = system.spawn(Quits, supervision=Supervision(backoff=Backoff(first=0.001)))
        codec = PickleCodec()
        for text in (message, "again"):
            asked = SimpleNamespace(headers=None, data=codec.encode(text), reply="theirs", subject="actors.a")
            await transport._serving._handle(ref, asked)
        answers = tuple(transport._serving._answers)
        await asyncio.wait(answers)
        assert [each.cancelled() for each in answers] == [False, False]
        data = [each[1] for each in transport._client.published]
        assert data[0] == published and codec.decode(data[1]) == "here"


async def test_an_answering_task_that_is_cancelled_publishes_nothing(transport: Any) -> None:
    async with ActorSystem() as system:
        ref = system.spawn(Quits)
        asked = SimpleNamespace(
            headers=None, data=PickleCodec().encode("keep"), reply="theirs", subject="actors.a"
        )
        await transport._serving._handle(ref, asked)
        (answering,) = transport._serving._answers
        await turns()
        answering.cancel()
        await asyncio.wait([answering])
        assert answering.cancelled(), "the cancellation is swallowed"
        assert transport._client.published == [], "the handler was cut off here, not by its actor"


class Stubborn:
    """Raises when it is pickled."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        raise self.error


@pytest.mark.parametrize("error", [SystemExit(3), OSError("no"), KeyboardInterrupt()])
async def test_an_interrupt_of_the_program_is_no_answer(transport: Any, error: BaseException) -> None:
    asked = SimpleNamespace(headers=None, data=b"", reply="theirs", subject="actors.a")
    answer: Future[Any] = Future()
    answer.set(Stubborn(error))
    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            await transport._serving._answer(asked, answer)
    else:
        await transport._serving._answer(asked, answer)
    assert len(transport._client.published) == (not isinstance(error, KeyboardInterrupt))


async def test_names_are_bounded(transport: Any) -> None:
    most = actors_nats.MAX_SUBJECT - len("actors.")
    transport.ref("a" * most)
    for name in ("a" * (most + 1), "\xe4" * (most // 2 + 1), "\udcff" * (most // 3 + 1)):
        with pytest.raises(ValueError, match=f"bytes, more than {actors_nats.MAX_SUBJECT}"):
            transport.ref(name)


async def test_a_served_name_is_bounded_with_its_group(transport: Any) -> None:
    async with ActorSystem() as system:
        with pytest.raises(ValueError, match="the group"):
            await transport.serve("a" * 2000, system.spawn(Actor), group="g" * 2000)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"prefix": "a b"}, "'a b' is no prefix for NATS: it has an empty level, a space or a wildcard"),
        ({"prefix": "a.*"}, "'a.*' is no prefix for NATS: it has an empty level, a space or a wildcard"),
        ({"prefix": ""}, "'' is no prefix for NATS: it has an empty level, a space or a wildcard"),
        ({"prefix": None}, "prefix is of class str, not None"),
        ({"codec": "pickle"}, "a codec is an object such as PickleCodec(), not 'pickle'"),
        ({"codec": PickleCodec}, f"a codec is an object such as PickleCodec(), not {PickleCodec!r}"),
        ({"max_pending": 0}, "max_pending is 1 or more, not 0"),
        ({"max_asks": "2"}, "max_asks is a whole number, not '2'"),
        ({"ask_timeout": 0}, "ask_timeout is a number of seconds above 0, not 0"),
    ],
)
async def test_a_wrong_setting_is_no_lost_connection(settings: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        await actors_nats.NatsTransport.connect(
            "nats://127.0.0.1:1", **{"codec": PickleCodec(), "connect_timeout": 0.01, **settings}
        )
    assert str(caught.value) == words


@pytest.mark.parametrize("group", ["", "a b", "g\r\nPUB x 1"])
async def test_what_is_no_group_is_no_lost_connection(transport: Any, group: str) -> None:
    async with ActorSystem() as system:
        with pytest.raises(ValueError, match=r"is no group for NATS: it is empty or has a space$"):
            await transport.serve("name", system.spawn(Actor), group=group)
    assert transport._client.subscriptions == []


async def test_what_serves_a_name_is_an_actors_ref(transport: Any) -> None:
    async with ActorSystem() as system:
        for wrong in ("ref", system.spawn(Actor).proxy(), system.spawn_pool(Actor), transport.ref("name")):
            with pytest.raises(TypeError, match=r"^what serves a name is an actor's ref, not "):
                await transport.serve("name", wrong)
    with pytest.raises(TypeError, match=r"^name is of class str, not 5$"):
        transport.ref(5)


async def test_why_there_is_no_connection_is_said_without_the_password() -> None:
    with pytest.raises(ConnectionLost) as caught:
        await actors_nats.NatsTransport.connect(
            "nats://user:secret@127.0.0.1:1", codec=PickleCodec(), connect_timeout=0.2
        )
    assert str(caught.value).startswith("no connection to nats://127.0.0.1:1: not within 0.2 s (")
    assert "Connect call failed" in str(caught.value)


async def test_an_errors_text_need_not_be_utf_8(transport: Any) -> None:
    await transport._serving._publish_error(SimpleNamespace(reply="inbox.1"), ValueError("no file \udcff"))
    assert b"no file \\udcff" in transport._client.published[0][1]


async def test_no_task_is_left_of_a_closed_transport() -> None:
    tasks = asyncio.all_tasks()
    client: Any = Client()
    made = actors_nats.NatsTransport(client, PickleCodec(), "actors", 3, 2, 30.0)
    made._sender = asyncio.create_task(made._send())
    await made.close()
    assert asyncio.all_tasks() == tasks


@pytest.mark.parametrize("stage", ["refused", "says nothing", "does not answer the ping", "back, and lost"])
@pytest.mark.parametrize("turns_later", [0, 1, 2, 5, 20])
async def test_no_task_is_left_of_a_transport_that_is_closed_while_it_reconnects(
    monkeypatch: pytest.MonkeyPatch, stage: str, turns_later: int
) -> None:
    monkeypatch.setattr(actors_nats, "CLOSE_TIME", 0.05)
    talking: list[asyncio.StreamWriter] = []
    again = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talking.append(writer)
        if len(talking) == 1:
            await greet(reader, writer)
            return
        again.set()
        if stage == "does not answer the ping":
            writer.write(b'INFO {"max_payload":1048576}\r\n')
        elif stage == "back, and lost":
            await greet(reader, writer)
            writer.close()

    before = asyncio.all_tasks()
    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    url = "nats://{}:{}".format(*server.sockets[0].getsockname())
    transport = await actors_nats.NatsTransport.connect(
        url, codec=PickleCodec(), reconnect_time_wait=0.01, max_reconnect_attempts=-1, connect_timeout=60
    )
    if stage == "refused":
        server.close()
        again.set()
    talking[0].transport.abort()
    await again.wait()
    for _ in range(turns_later):
        await asyncio.sleep(0)
    await transport.close(0.01)
    server.close()
    for writer in talking:
        writer.transport.abort()
    await turns()
    left = asyncio.all_tasks() - before
    assert not {each for each in left if "nats" in repr(each)}
