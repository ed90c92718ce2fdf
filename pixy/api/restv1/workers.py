"""Forward requests about a consumer instance to the worker of this daemon that owns it.

The name alone determines the number of the owner, by rendezvous hashing as between daemons (:mod:`pixy.api.restv1.peers`); a generated
name is drawn until it belongs to the worker that makes the instance. While a worker is replaced, its instances live in the one that
retires, which is asked first.
"""

from __future__ import annotations

from typing import Final

import aiohttp
from aiohttp import web

from pixy.api.edge.proxies import TrustedProxies
from pixy.api.restv1 import errors
from pixy.api.restv1.cors import Cors
from pixy.api.restv1.errors import ApiError
from pixy.api.restv1.peers import MakePeers, Peers, heaviest
from pixy.api.siblings import Sibling, WorkerSockets
from pixy.auth.hops import Hops
from pixy.config.model import Rest
from pixy.engine.instances.registry import generated_name

_SENDER: Final = "worker"
_RECEIVER: Final = "owner"
_NOT_FOUND: Final = frozenset({404})
"""The answer of a worker that retires, and has no such instance."""
_GONE: Final = errors.UNAVAILABLE


class Workers(Peers):
    """The other workers, as peers.

    Args:
        sockets: connections to them.
        config: the section ``rest``.
        proxies: whose forwarding headers are believed; None: nobody's.
        longest: seconds that a worker may take to answer.
        cors: adds its headers to answers; None: they have none.
    """

    KIND = "worker"

    def __init__(
        self,
        sockets: WorkerSockets,
        config: Rest,
        proxies: TrustedProxies | None = None,
        longest: float = 0.0,
        cors: Cors | None = None,
    ) -> None:
        alone = Rest(node_id=_SENDER, peer_timeout=config.peer_timeout)
        super().__init__(alone, proxies, longest, cors)
        self._sockets = sockets
        self._number = sockets.worker.number
        self._numbers = tuple(str(each + 1) for each in range(sockets.worker.count))
        self._hops = Hops(sockets.worker.secret, _SENDER, (_RECEIVER,))
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    def number_of(self, group: str, name: str) -> int:
        """Return the number of the worker that owns an instance."""
        return int(heaviest(self._numbers, group, name))

    def generated_name(self, group: str, node: str) -> str:
        """Return a new name that this worker owns.

        Args:
            group: the id of the instance's group.
            node: this daemon's, to be a part of the name; empty: there is none.
        """
        while self.number_of(group, name := generated_name(node)) != self._number:
            pass
        return name

    async def forward(
        self, request: web.BaseRequest, group: str, name: str | None, body: bytes, *, creates: bool = False
    ) -> web.StreamResponse | None:
        """See :class:`pixy.api.restv1.peers.Peers`."""
        if name is None:
            return None
        number = self.number_of(group, name)
        if not creates:
            for each in self._sockets.retiring(number):
                answer = await self._ask(request, each, body, _NOT_FOUND)
                if answer is not None:
                    return answer
        if number == self._number:
            return None
        owner = self._sockets.current(number)
        if owner is None:
            raise ApiError(
                _GONE, f"the consumer instance belongs to worker {number}, which is starting again"
            )
        return await self._ask(request, owner, body, frozenset())

    async def _ask(
        self, request: web.BaseRequest, owner: Sibling, body: bytes, passed: frozenset[int]
    ) -> web.StreamResponse | None:
        url = f"http://worker{request.raw_path}"
        try:
            return await self._deliver(request, owner.path, url, body, passed)
        except ApiError:
            if owner.retiring:  # it has just ended
                return None
            raise

    def _proof(self, request: web.BaseRequest, owner: str, url: str, body: bytes) -> dict[str, str]:
        del owner  # a path, and each worker is the same receiver
        return super()._proof(request, _RECEIVER, url, body)

    def _session_to(self, owner: str) -> aiohttp.ClientSession:
        session = self._sessions.get(owner)
        if session is None:
            session = self._sessions[owner] = self._open(aiohttp.UnixConnector(owner, limit=0))
        return session

    async def close(self) -> None:
        """Close the connections."""
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()


def with_workers(sockets: WorkerSockets) -> MakePeers:
    """Return what makes the peers of a daemon with workers: other daemons first, then the workers of this one."""

    def make(config: Rest, proxies: TrustedProxies | None, longest: float, cors: Cors) -> Peers:
        return Peers(config, proxies, longest, cors, Workers(sockets, config, proxies, longest, cors))

    return make


class FromWorkers(Peers):
    """What a worker knows of requests that other workers have forwarded to it: it answers all of them.

    Args:
        secret: proves them.
        config: the section ``rest``.
        proxies: not asked: a worker says who its client is.
        longest: not used.
        cors: not used: the worker that has the client adds these headers.
    """

    def __init__(
        self, secret: str, config: Rest, _proxies: TrustedProxies | None, _longest: float, cors: Cors
    ) -> None:
        alone = Rest(node_id=_RECEIVER, advertised_url=config.advertised_url)
        super().__init__(alone, None, 0.0, cors)
        self._hops = Hops(secret, _RECEIVER, (_SENDER,))

    async def forward(
        self,
        request: web.BaseRequest,
        group: str,
        name: str | None,
        body: bytes,
        *,
        creates: bool = False,
    ) -> web.StreamResponse | None:
        """Check that the body is the one that was forwarded; answer here. See :class:`pixy.api.restv1.peers.Peers`."""
        del group, name, creates
        self._was_forwarded(request, body)
        return None

    def _trusts(self, request: web.BaseRequest) -> bool:
        return True


__all__ = ["FromWorkers", "Workers", "with_workers"]
