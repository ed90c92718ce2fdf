"""This project's runtime with parts taken out, to see what the parts cost.

The variants are made from the source of the real hot path, so that they can not drift away from it:
a part that is not found there ends the run.
"""

from __future__ import annotations

import asyncio
import inspect
import textwrap
from typing import Any

from actors import ActorSystem, _cell as cell_module
from tests.bench.actors.handlers import MESSAGE, Result, expect, rate_async
from tests.bench.actors.on_actors import EchoActor

HOOKS = (
    """            if hooks is not None and (fault := hooks.began(self, envelope)) is not None:
                raise fault
""",
    """        if hooks is not None:
            hooks.ended(self, envelope, began, ended, error)
""",
    "        hooks = self.hooks\n",
)
ACCOUNTING = (
    """        try:
            self.waits[((began - sent) >> SHIFT).bit_length()] += 1
            self.runs[(run >> SHIFT).bit_length()] += 1
        except IndexError:
            self._count_long(began - sent, run)
        if self.recent is None:
            self.recent = deque(maxlen=RECENT)
        self.recent.append((kind, sender, sent))
""",
    """        if run > self.system.slow_ns:
            self._slow(kind, run)
""",
    "        self.began = self.ended = ended = self.clock()\n        run = ended - began\n",
)


def without(parts: tuple[str, ...]) -> type[Any]:
    """An actor whose messages are handled without these parts."""
    source = textwrap.dedent(inspect.getsource(cell_module.Cell._handle))
    for part in parts:
        lines = textwrap.indent(textwrap.dedent(part), "")
        depth = len(part) - len(part.lstrip()) - 4
        part = textwrap.indent(lines, " " * depth)
        if part not in source:
            raise LookupError(f"not in the hot path any more:\n{part}")
        source = source.replace(part, "")
    made: dict[str, Any] = {}
    exec(compile(source, "<variant>", "exec"), vars(cell_module), made)
    variant = type("Variant", (cell_module.Cell,), {"__slots__": (), "_handle": made["_handle"]})
    return type("Variant", (EchoActor,), {"_cell_class": variant})


def _asks(actor_class: type[Any], count: int, clock: Any = None) -> Result:
    async def main() -> Result:
        options = {} if clock is None else {"clock": clock}
        async with ActorSystem(**options) as system:
            ref = system.spawn(actor_class)

            async def work(calls: int) -> None:
                for _ in range(calls):
                    reply = await ref.ask(MESSAGE, block=False)
                expect(reply, MESSAGE)

            return await rate_async(work, count)

    return asyncio.run(main())


def ask_without_accounting(count: int) -> Result:
    """Asks, with no counter, no histogram and a clock that costs next to nothing."""
    return _asks(without((*HOOKS[1:2], *ACCOUNTING)), count, clock=int)


def ask_without_hooks(count: int) -> Result:
    """Asks, with the tests for instruments taken out."""
    return _asks(without(HOOKS), count)
