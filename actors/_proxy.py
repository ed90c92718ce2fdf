"""pykka's proxy, for actors on an event loop.

Reading an attribute and calling a method are asks, as in pykka. Assigning to an attribute waits for the
actor, which the loop's thread cannot do: there it raises, and ``await proxy.set_attr(...)`` replaces it.

pykka merges the dicts of all base classes once per attribute (84 microseconds for a small actor); this
module merges them once per object.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import pykka
from pykka import ActorDeadError
from pykka.messages import ProxyCall, ProxyGetAttr, ProxySetAttr

from actors._core.log_safely import log_safely
from actors._core.pykka_names import AttrInfo, get_attr_directly, get_obj_dict
from actors._errors import WouldDeadlock
from actors._future import on_event_loop

if TYPE_CHECKING:
    from actors._future import Future
    from actors._ref import ActorRef

logger = logging.getLogger("actors")

A = TypeVar("A", bound=pykka.Actor)

AttrPath = tuple[str, ...]


class ActorProxy(pykka.ActorProxy[A], Generic[A]):
    """See :class:`pykka.ActorProxy`. Made by ``ref.proxy()``."""

    def __init__(self, *, actor_ref: ActorRef[A], attr_path: AttrPath | None = None) -> None:
        actor = actor_ref._actor_weakref()
        if not actor_ref.is_alive() or actor is None:
            raise ActorDeadError(f"{actor_ref} not found")
        self.actor_ref = actor_ref
        self._actor = actor
        self._attr_path = attr_path or ()
        self._known_attrs = {}
        self._actor_proxies = {}
        self._callable_proxies = {}
        self._known_attrs = _introspect(actor, self)

    def __getattr__(self, name: str) -> Any:
        attr_path = (*self._attr_path, name)
        info = self._known_attrs.get(attr_path)
        if info is None:
            # A restart makes another instance, and attributes may have been added.
            actor = self.actor_ref._actor_weakref()
            if actor is not None:
                self._actor = actor
            self._known_attrs = _introspect(self._actor, self)
            info = self._known_attrs.get(attr_path)
        if info is None:
            raise AttributeError(f"{self} has no attribute {name!r}")
        if info.callable:
            found: Any = self._callable_proxies.get(attr_path)
            if found is None:
                found = CallableProxy(actor_ref=self.actor_ref, attr_path=attr_path)
                self._callable_proxies[attr_path] = found
            return found
        if info.traversable:
            inner = self._actor_proxies.get(attr_path)
            if inner is None:
                inner = ActorProxy(actor_ref=cast("ActorRef[A]", self.actor_ref), attr_path=attr_path)
                self._actor_proxies[attr_path] = inner
            return inner
        return self.actor_ref.ask(ProxyGetAttr(attr_path=attr_path), block=False)

    def __reduce__(self) -> Any:
        """Let ``copy`` make a proxy of the same actor. Like its ref, it cannot be pickled."""
        return _proxy_of, (self.actor_ref, self._attr_path)

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "actor_ref" and not name.startswith("_") and on_event_loop():
            raise WouldDeadlock(
                f"assigning to {name!r} waits for the actor, which the event loop's thread cannot; "
                f"use 'await proxy.set_attr({name!r}, value)' instead"
            )
        super().__setattr__(name, value)

    def set_attr(self, name: str, value: Any) -> Future[None]:
        """Set an attribute of the actor.

        Args:
            name: the attribute's.
            value: the new value.

        Returns:
            a future that is done when the attribute is set, or has the actor's error.
        """
        message = ProxySetAttr(attr_path=(*self._attr_path, name), value=value)
        return cast("Future[None]", self.actor_ref.ask(message, block=False))


class CallableProxy(pykka.CallableProxy[A], Generic[A]):
    """See :class:`pykka.CallableProxy`."""

    def send(self, *args: Any, **kwargs: Any) -> Any:
        """Like ``defer``, but a coroutine that waits for room in the mailbox.

        Args:
            args: for the method.
            kwargs: for the method.
        """
        ref: Any = self.actor_ref
        return ref.send(ProxyCall(attr_path=self._attr_path, args=args, kwargs=kwargs))


def _proxy_of(actor_ref: ActorRef[A], attr_path: AttrPath) -> ActorProxy[A]:
    return ActorProxy(actor_ref=actor_ref, attr_path=attr_path)


def _introspect(root: Any, proxy: ActorProxy[Any]) -> dict[AttrPath, AttrInfo]:
    """pykka's ``introspect_attrs``, with the dicts of each object merged once."""
    found: dict[AttrPath, AttrInfo] = {}
    todo: list[AttrPath] = [()]
    while todo:
        path = todo.pop()
        parent = get_attr_directly(root, path)
        attrs = get_obj_dict(parent)
        for name in dir(parent):
            if name.startswith("_") or name not in attrs:
                continue
            attr = attrs[name]
            here = (*path, name)
            if proxy == attr:  # in this order, it is the proxy's own __eq__
                log_safely(
                    logger.warning,
                    "%s attribute %r is a proxy to itself. Consider making it private by renaming it to %r.",
                    root,
                    ".".join(here),
                    "_" + name,
                )
                continue
            traversable = (
                getattr(attr, "_pykka_traversable", False) is True
                or getattr(attr, "pykka_traversable", False) is True
            )
            found[here] = AttrInfo(callable=callable(attr), traversable=traversable)
            if traversable:
                todo.append(here)
    return found
