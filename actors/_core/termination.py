"""The end of a life, and of all of them: order, last hooks, who is told.

Children stop before their parent, the youngest first. From the moment an actor leaves
(``depart``) it is dead for others, as pykka has it before ``on_stop``: its mailbox is closed and
what was in it is answered.
"""

from __future__ import annotations

import asyncio
from types import CoroutineType
from typing import TYPE_CHECKING, Any

import pykka

from actors._core.lifecycle import RUNNING, STARTING, STOPPED, STOPPING, ended_from_outside
from actors._core.pykka_names import ActorStop
from actors._core.supervision import Supervised
from actors._core.timers import TimerFired
from actors._events import ActorStopped
from actors._future import Future
from actors._messages import ChildStopped, Terminated, Unwatch, Watch

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._core.envelope import Envelope
    from actors._ref import ActorRef


class Mortal(Supervised):
    """A life that ends."""

    __slots__ = ()

    async def end_life(self, hook: str | None, *args: Any) -> None:
        """Stop what belongs to this life, children youngest first, then run its last hook."""
        if self._timers is not None:
            self._timers.clear()
        for task in tuple(self._tasks or ()):
            task.cancel()
        for child in reversed(tuple(self.children.values())):
            await child.stop_now()
        if hook is not None:
            await self.safely(hook, *args)
        if self._timers is not None:
            self._timers.clear()  # what the hook, or a thread's last handler, has set
        if self.stashed:
            self.mailbox.put_back(self.stashed)
            self.stashed = None
        for ref in tuple(self.watching or ()):
            self.unwatch(ref)
        owed, self._owed = self._owed, None
        for reply in owed or ():
            reply.try_fail(self.dead("stopped before it answered"))

    async def safely(self, hook: str, *args: Any) -> None:
        """Run a hook; its failure is reported and changes nothing."""
        try:
            await self.call(hook, *args)
        except BaseException as error:
            if ended_from_outside(error):
                raise
            self.hook_failed(hook, error)

    def request_stop(self) -> None:
        """Begin to stop, once."""
        if self.state in (STOPPING, STOPPED):
            return
        ran = self.state in (STARTING, RUNNING)
        self.state = STOPPING
        restart, self._lifecycle = self._lifecycle, None
        if restart is not None:
            restart.cancel()
        if self._at_rest():
            self._stop_at_once(ran)
        else:
            self._lifecycle = self.loop.create_task(self._stop(ran), context=self.context)

    def _at_rest(self) -> bool:
        """Nothing to wait for: no task is needed (half the cost of stopping 10,000 actors)."""
        return self.task is None and not (self.children or self._tasks or self.threaded)

    def _stop_at_once(self, ran: bool) -> None:
        left = self.depart()
        if ran and self.actor_class.on_stop is not pykka.Actor.on_stop:
            try:
                result: Any = self.context.copy().run(self.actor.on_stop)
            except BaseException as error:
                self.hook_failed("on_stop", error)
            else:
                if type(result) is CoroutineType:
                    self._lifecycle = self.loop.create_task(
                        self._finish_stop(result, left), context=self.context
                    )
                    return
        self._clear(left)

    async def _finish_stop(self, hook: CoroutineType[Any, Any, Any], left: list[Envelope]) -> None:
        try:
            await hook
        except BaseException as error:
            if ended_from_outside(error):
                raise
            self.hook_failed("on_stop", error)
        self._clear(left)

    def _clear(self, left: list[Envelope]) -> None:
        if self._timers is not None:
            self._timers.clear()
        for reply in self._owed or ():
            reply.try_fail(self.dead("stopped before it answered"))
        for ref in tuple(self.watching or ()):
            self.unwatch(ref)
        self._owed = None
        self.bury(left)

    async def stop_now(self) -> None:
        """Stop without handling the rest of the mailbox; wait until it is done."""
        if self.state is not STOPPED:
            self.request_stop()
        if self.state is not STOPPED:
            gone: Future[None] = Future()
            self._gone = [*(self._gone or ()), gone]
            await gone

    async def _stop(self, ran: bool) -> None:
        handler = self.task
        if handler is not None:
            # The handler may end by itself; past the grace it is cancelled.
            await asyncio.wait([handler], timeout=self.system.stop_grace)
            if not handler.done():
                handler.cancel()
                await asyncio.wait([handler], timeout=self.system.stop_grace)
        self.cut_off()
        left = self.depart()
        await self.end_life("on_stop" if ran else None)
        self.bury(left)

    def depart(self) -> list[Envelope]:
        """From now on the actor is dead for others, as pykka has it before the last hook."""
        left = self.mailbox.close()
        self.stopped_flag.set()
        self.system.unregister(self)  # type: ignore[arg-type]
        return left

    def bury(self, left: list[Envelope]) -> None:
        self.state = STOPPED
        for envelope in (*left, *(self.stashed or ())):
            self.dead_letter(envelope)
        self.stashed = None
        for reply in self._stop_replies or ():
            reply.try_set(True)
        siblings = self.system.place_of(self)  # type: ignore[arg-type]
        if siblings.get(self.name) is self:
            del siblings[self.name]
        if self.parent is not None:
            self.parent.send_system(ChildStopped(self.ref))
        for watcher in self._watchers or ():
            watcher.send_system(Terminated(self.ref, self.error))
        for future in self._waiting_start or ():
            future.try_fail(self.dead("never started"))
        for gone in self._gone or ():
            gone.try_set(None)
        self._watchers = self._waiting_start = self._gone = self._stop_replies = None
        events = self.system.events
        if events.wants(ActorStopped):
            events.publish(ActorStopped(self.path, self.actor_class.__name__, self.error))

    def dead_letter(self, envelope: Envelope) -> None:
        """A message that will not be handled: its asker is told, a watcher gets its answer."""
        message, reply, *_ = envelope
        kind = type(message)
        if kind is ActorStop:
            if reply is not None:
                reply.try_set(True)
        elif kind is Watch:
            message.watcher.send_system(Terminated(self.ref, self.error))
        elif kind is not TimerFired and kind is not ChildStopped and kind is not Unwatch:
            if reply is not None:
                if reply.done():
                    return
                reply.try_fail(self.dead("stopped before handling the message"))
            self.system.dead_letter(envelope, self, "left in the mailbox")  # type: ignore[arg-type]

    # -- death watch ----------------------------------------------------------------------------

    def watch(self, ref: ActorRef[Any]) -> None:
        """See :meth:`actors.Actor.watch`."""
        if self.watching is None:
            self.watching = {}
        if ref not in self.watching:
            self.watching[ref] = None
            if not ref._cell.send_system(Watch(self)):  # type: ignore[arg-type]
                self.send_system(Terminated(ref, ref._cell.error))

    def unwatch(self, ref: ActorRef[Any]) -> None:
        """See :meth:`actors.Actor.unwatch`."""
        if self.watching and ref in self.watching:
            del self.watching[ref]
            ref._cell.send_system(Unwatch(self))  # type: ignore[arg-type]

    def watched_by(self, watcher: Cell, watched: bool) -> None:
        """Another actor began or ceased to watch this one."""
        if self._watchers is None:
            self._watchers = {}
        if watched:
            self._watchers[watcher] = None
        else:
            self._watchers.pop(watcher, None)
