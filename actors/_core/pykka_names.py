"""The private names of pykka that the runtime relies on, all in one place (pykka >=4.5,<4.6).

pykka's own test suite gates them (``tests/conformance``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pykka import ActorRegistry
from pykka._envelope import Envelope as PykkaEnvelope
from pykka._future import _Unset as Unset
from pykka._introspection import AttrInfo, get_attr_directly, get_obj_dict
from pykka.messages import _ActorStop as ActorStop

if TYPE_CHECKING:
    from collections.abc import Iterator

R = TypeVar("R")


class Refs(Generic[R]):
    """What pykka keeps as a list of refs, with all that it does to it in constant time.

    pykka looks for a ref from the start of its list to take it out: stopping 10,000 actors newest
    first took it 1.3 to 2.2 s where oldest first took 0.25.
    """

    def __init__(self, refs: Any = ()) -> None:
        self._refs: dict[R, None] = dict.fromkeys(refs)

    def append(self, ref: R) -> None:
        """Add a ref at the end."""
        self._refs[ref] = None

    def remove(self, ref: R) -> None:
        """Take a ref out."""
        del self._refs[ref]

    def discard(self, ref: R) -> None:
        """Take a ref out if it is there."""
        self._refs.pop(ref, None)

    def __contains__(self, ref: object) -> bool:
        return ref in self._refs

    def __iter__(self) -> Iterator[R]:
        return iter(tuple(self._refs))

    def __len__(self) -> int:
        return len(self._refs)

    def __getitem__(self, which: slice) -> list[R]:
        return list(self._refs)[which]


def install_registry() -> Refs[Any]:
    """Give pykka's registry the storage above, once; what is registered already stays."""
    refs: Any = ActorRegistry._actor_refs
    if not isinstance(refs, Refs):
        with ActorRegistry._actor_refs_lock:
            refs = Refs(ActorRegistry._actor_refs)
            ActorRegistry._actor_refs = refs
    return refs  # type: ignore[no-any-return]


__all__ = [
    "ActorRegistry",
    "ActorStop",
    "AttrInfo",
    "PykkaEnvelope",
    "Refs",
    "Unset",
    "get_attr_directly",
    "get_obj_dict",
    "install_registry",
]
