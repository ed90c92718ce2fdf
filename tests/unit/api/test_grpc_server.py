"""The gRPC server as an actor, in a process of its own: what is tested here has crashed the interpreter."""

from __future__ import annotations

import pytest

from tests.alone import run_alone

CANCELLED = '''
import asyncio, gc
from types import SimpleNamespace

from actors import ActorSystem
from pixy.api.edge.edge import Edge
from pixy.api.grpc.server import GrpcServer
from pixy.config import App, Proxy
from pixy.engine.message_spans import MessageSpans
from pixy.engine.service import Bind


def of_every_size():
    """Coroutines whose memory takes the place of what grpc frees, whatever its size."""
    for arguments in range(24):
        names = {"asyncio": asyncio}
        exec(f"async def wait({', '.join(f'a{n}=0' for n in range(arguments))}): await asyncio.sleep(30)", names)
        yield from (names["wait"]() for _ in range(300))


async def main():
    system = ActorSystem()
    engine = SimpleNamespace(
        guard=None, config=App(proxies={"default": Proxy()}), diagnostics=SimpleNamespace(traced=False), spans=MessageSpans()
    )
    server = await system.spawn(GrpcServer, engine, "127.0.0.1:0", Edge(engine.config))
    await server.ask(Bind(), block=False)
    await asyncio.sleep(0.05)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    del task
    for _ in range(10):
        await asyncio.sleep(0)
    waiting = list(of_every_size())
    print("stopped", (await system.stop(20)).clean, flush=True)
    del server
    gc.collect()
    await asyncio.sleep(0.05)  # for what grpc may do in its own thread
    for each in waiting:
        each.close()


asyncio.run(main())
print("done")
'''


@pytest.mark.slow
def test_a_server_whose_tasks_were_cancelled_stops_without_writing_into_freed_memory() -> None:
    ended = run_alone(CANCELLED)
    assert (ended.returncode, ended.stdout.split()) == (0, ["stopped", "True", "done"]), ended.stderr[-3000:]
    assert "its tasks were cancelled, it cannot be stopped" in ended.stderr
