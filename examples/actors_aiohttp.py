"""An aiohttp service with an actor system inside: bounded, supervised, stopped cleanly.

    python examples/actors_aiohttp.py --port 8080      # serve until Ctrl-C or SIGTERM
    curl localhost:8080/square/12
    python examples/actors_aiohttp.py --self-test      # start the service, call it, stop it

The service answers 429 if the actor's mailbox is full, 503 if the actor has stopped, and 504 if the reply
takes too long. When a client disconnects, aiohttp cancels the request's task (``handler_cancellation``). That
cancels the ask, and a message that the actor has not begun to handle is skipped.
"""

import argparse
import asyncio
import signal

from aiohttp import ClientSession, web

from actors import (
    Actor,
    ActorDeadError,
    ActorRef,
    ActorSystem,
    Backoff,
    MailboxFull,
    Supervision,
    Timeout,
)

ROOT: web.AppKey["ActorRef[Squarer]"] = web.AppKey("squarer")


class Squarer(Actor):
    """Square one number at a time, slowly enough to fill the mailbox."""

    mailbox_capacity = 4

    async def on_receive(self, message: int) -> int:
        await asyncio.sleep(0.05)
        return message * message


async def square(request: web.Request) -> web.Response:
    try:
        number = int(request.match_info["number"])
    except ValueError:
        raise web.HTTPBadRequest(text="not a number") from None
    try:
        value = await request.app[ROOT].ask(number, block=False, timeout=5.0)
    except MailboxFull:
        return web.json_response({"error": "busy"}, status=429, headers={"Retry-After": "1"})
    except ActorDeadError:
        return web.json_response({"error": "stopping"}, status=503)
    except Timeout:
        return web.json_response({"error": "too slow"}, status=504)
    return web.json_response({"square": value})


async def serve(port: int, stop: asyncio.Event, ready: "asyncio.Future[str]") -> None:
    """Serve until ``stop`` is set or a top-level actor gives up; then end connections first, actors second.

    Args:
        port: TCP port; 0 takes a free one.
        stop: set it to stop the service.
        ready: gets the URL of the service once it accepts requests.
    """
    system = ActorSystem("squares", stop_grace=2.0)
    squarer = system.spawn(Squarer, name="squarer", supervision=Supervision(backoff=Backoff(first=0.1)))
    app = web.Application()
    app[ROOT] = await squarer
    app.router.add_get("/square/{number}", square)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=5.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        ready.set_result(f"http://127.0.0.1:{runner.addresses[0][1]}")
        system.failure.add_done_callback(lambda _: stop.set())
        await stop.wait()
    finally:
        await runner.cleanup()  # refuse new requests and finish those under way
        report = await system.stop(timeout=10.0)
        if ready.done():  # it has served
            print("stopped:", "clean" if report.clean else report.left, flush=True)
    if system.failure.done():
        raise system.failure.result()


async def run(port: int) -> None:
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    ready.add_done_callback(lambda url: print("serving", url.result(), flush=True))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await serve(port, stop, ready)


async def self_test() -> None:
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(0, stop, ready))
    await asyncio.wait([serving, ready], return_when=asyncio.FIRST_COMPLETED)
    url = ready.result()

    async def call(number: int) -> int:
        async with session.get(f"{url}/square/{number}") as response:
            if response.status == 200:
                assert await response.json() == {"square": number * number}
            return response.status

    async with ClientSession() as session:
        assert await call(12) == 200
        # The actor handles one message and its mailbox holds four; the other five requests get 429.
        statuses = await asyncio.gather(*(call(number) for number in range(10)))
        print(f"{statuses.count(200)} answered, {statuses.count(429)} refused")
        assert statuses.count(200) >= 5 and statuses.count(429) >= 1
        last = asyncio.create_task(call(7))
        await asyncio.sleep(0.02)
        stop.set()  # the request under way is still answered
        assert await last == 200
    await serving
    print("Good news everyone!")


def tcp_port(text: str) -> int:
    """Parse a port."""
    if not 0 <= (number := int(text)) < 65536:
        raise argparse.ArgumentTypeError(f"{text} is not a port: 0 to 65535")
    return number


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=tcp_port, default=8080)
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    try:
        asyncio.run(self_test() if arguments.self_test else run(arguments.port))
    except OSError as error:
        parser.exit(1, f"actors_aiohttp.py: port {arguments.port}: {error.strerror}\n")
