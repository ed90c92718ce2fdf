"""Count the consumer instances of each principal, in all clusters together. For one event loop, so it needs no lock."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from actors import ActorRef
from pixy.errors import Limited


class OwnedInstances:
    """Counts the instances of each principal.

    A registry that is restarted forgets its instances, so one counts only while it is alive.
    """

    def __init__(self) -> None:
        self._owners: WeakKeyDictionary[ActorRef[Any], str] = WeakKeyDictionary()

    def count(self, owner: str) -> int:
        """Count the instances of a principal."""
        return sum(each == owner and ref.is_alive() for ref, each in self._owners.items())

    def place(self, owner: str, most: int) -> InstancePlace:
        """Return a place for one more instance.

        Args:
            owner: whose.
            most: instances that he may have; 0: any number.
        """
        return InstancePlace(self, owner, most)

    def add(self, owner: str, ref: ActorRef[Any]) -> None:
        """Count an instance, as long as its actor lives.

        Args:
            owner: the principal's name.
            ref: of the actor.
        """
        self._owners[ref] = owner

    def discard(self, ref: ActorRef[Any]) -> None:
        """Count an instance no longer."""
        self._owners.pop(ref, None)


class InstancePlace:
    """The place of one instance among its owner's. The registry that makes the instance takes it, and gives it back."""

    __slots__ = ("_most", "_owned", "_owner", "_ref")

    def __init__(self, owned: OwnedInstances, owner: str, most: int) -> None:
        self._owned = owned
        self._owner = owner
        self._most = most
        self._ref: ActorRef[Any] | None = None

    def check(self) -> None:
        """Raise Limited if the owner may have no further instance."""
        if self._most and self._owned.count(self._owner) >= self._most:
            raise Limited(f"{self._owner} may have {self._most} consumer instances (`limits`)")

    def take(self, ref: ActorRef[Any]) -> None:
        """Count an instance."""
        self._ref = ref
        self._owned.add(self._owner, ref)

    def free(self) -> None:
        """Count the instance no longer."""
        if self._ref is not None:
            self._owned.discard(self._ref)


__all__ = ["InstancePlace", "OwnedInstances"]
