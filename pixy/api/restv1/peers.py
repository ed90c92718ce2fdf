"""Forward requests about a consumer instance to the daemon that owns it.

The name alone determines the owner: a generated name contains the node, and any other name belongs to the
node that rendezvous hashing selects (the highest hash of node and name). So a name is unique over all
daemons, and finding its owner takes no lookup.
"""

from __future__ import annotations

import hashlib
import logging
import os
import ssl
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from pixy.api.edge.proxies import FORWARDED, HOP_HEADER, TrustedProxies
from pixy.api.identity import single
from pixy.api.restv1 import errors
from pixy.api.restv1.cors import Cors
from pixy.api.restv1.ended_credentials import while_recognized
from pixy.api.restv1.errors import ApiError
from pixy.api.restv1.origins import below_of, host_of, origin_of
from pixy.auth.authenticator import Authenticator
from pixy.auth.hops import PROOF_HEADER, Hop, Hops
from pixy.auth.principal import current
from pixy.config.model import Rest
from pixy.engine import shares
from pixy.engine.instances.registry import node_of
from pixy.engine.shares import Shares
from pixy.errors import Unauthenticated

if TYPE_CHECKING:
    from pixy.api.restv1.workers import Workers

logger = logging.getLogger("pixy.api")

_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "content-length",
    }
)
_NOT_FORWARDED = _HOP_BY_HOP | {
    "host",
    "expect",
    # The body was unpacked.
    "content-encoding",
    HOP_HEADER.lower(),
    PROOF_HEADER.lower(),
    # This daemon has checked where a browser's request comes from; its name is none of the owner's.
    "origin",
    "sec-fetch-dest",
    "sec-fetch-mode",
    "sec-fetch-site",
    "sec-fetch-user",
}
"""Headers of a request that its owner does not get."""
_CREDENTIALS = frozenset({"authorization", "x-api-key"})
# aiohttp has typed keys since 3.14.
_HOP: Any = web.RequestKey("pixy_hop", Hop) if hasattr(web, "RequestKey") else "pixy_hop"
_MAX_CONNECTIONS = 1024
"""Requests that may be forwarded to one peer at the same time; one caller may have three quarters of them."""
_NONE: frozenset[int] = frozenset()
_TRANSFER = 600.0
"""Seconds that bodies may take beside the longest wait."""
_CHUNK = 64 * 1024


class Peers:
    """This daemon and its peers, from ``rest.node_id`` and ``rest.peers``.

    Args:
        config: the section ``rest``.
        proxies: whose forwarding headers are believed; None: nobody's.
        longest: seconds that a peer may take to answer.
        cors: adds its headers to answers of peers; None: they have none.
        workers: the other workers of this daemon; None: it has one process.
    """

    KIND = "node"
    """A peer in words."""

    def __init__(
        self,
        config: Rest,
        proxies: TrustedProxies | None = None,
        longest: float = 0.0,
        cors: Cors | None = None,
        workers: Workers | None = None,
    ) -> None:
        self._workers = workers
        self._longest = longest
        self._cors = cors
        self._places: dict[str, Shares] = {}
        self._proxies = proxies
        self._node = config.node_id
        self._redirect = config.peer_requests == "redirect"
        self._timeout = config.peer_timeout
        self._advertised = config.advertised_url.rstrip("/")
        self._urls = {name: url.rstrip("/") for name, url in config.peers.items() if name != self._node}
        self._session: aiohttp.ClientSession | None = None
        secret = config.peer_secret
        self._hops = Hops(secret, self._node, self._urls) if secret and self._urls else None
        self._authenticator: Authenticator | None = None

    def recognized_by(self, authenticator: Authenticator) -> None:
        """Give up a forwarded read when ``authenticator``, which has recognized its caller, would not do so any more."""
        self._authenticator = authenticator
        if self._workers is not None:
            self._workers.recognized_by(authenticator)

    def hop(self, request: web.BaseRequest) -> Hop | None:
        """Check who has forwarded a request.

        Returns:
            What the peer has proved; None: it does not prove to be forwarded.

        Raises:
            Unauthenticated: its proof is wrong, or was sent several times, or is that of another node than the one it names.
        """
        if self._hops is None:
            return None
        known = request.get(_HOP)
        proofs = request.headers.getall(PROOF_HEADER, ())
        if known is None and proofs:
            proof = single(proofs, PROOF_HEADER)
            assert proof is not None
            known = self._hops.verify(proof, request.method, request.raw_path)
            if set(request.headers.getall(HOP_HEADER, ())) - {known.node}:
                raise Unauthenticated(f"{HOP_HEADER} names another node than {PROOF_HEADER}", "bad_hop")
            request[_HOP] = known
        return known

    def refuse_unknown(self, request: web.BaseRequest) -> None:
        """Raise Unauthenticated for a proof that cannot be checked here: its request is its caller's, not that of whoever has sent it."""
        if self._hops is None and PROOF_HEADER in request.headers:
            raise Unauthenticated(
                f"{PROOF_HEADER} was sent, and this daemon has no `rest.peer_secret`", "bad_hop"
            )

    def _was_forwarded(self, request: web.BaseRequest, body: bytes) -> bool:
        if self._hops is None:
            return HOP_HEADER in request.headers
        hop = self.hop(request)
        if hop is not None:
            hop.check_body(body)
        return hop is not None

    def owner(self, group: str, name: str | None) -> str | None:
        """Return the peer that owns an instance; None: this daemon owns it.

        Args:
            group: the id of the instance's group.
            name: None: this daemon will generate it, and owns the instance.
        """
        if not self._urls or name is None:
            return None
        node = node_of(name)
        if node != self._node and node not in self._urls:
            node = heaviest((*self._urls, self._node), group, name)
        return None if node == self._node else node

    async def forward(
        self, request: web.BaseRequest, group: str, name: str | None, body: bytes, *, creates: bool = False
    ) -> web.StreamResponse | None:
        """Forward a request to the owner of an instance and return its answer.

        Args:
            request: aiohttp's.
            group: the id of the instance's group.
            name: the instance's; None: to be generated.
            body: of the request, unpacked.
            creates: whether the request makes the instance.

        Returns:
            The answer; None if this daemon has to answer: it owns the instance, or the request was forwarded already.

        Raises:
            ApiError: 503, the owner cannot be reached, or does not answer; 429, too many wait for it; 421, it was
                forwarded, and would make what belongs elsewhere.
        """
        owner = self.owner(group, name)
        forwarded = self._was_forwarded(request, body)
        if owner is None or forwarded:
            # Forwarded by a peer that has other `rest.peers`, or by a client that says what only peers say.
            if owner is not None and creates:
                raise ApiError(errors.MISDIRECTED, f"the consumer instance belongs to node {owner}")
            if self._workers is None:
                return None
            return await self._workers.forward(request, group, name, body, creates=creates)
        url = self._urls[owner] + request.raw_path
        if self._redirect:
            return web.Response(status=307, headers={"Location": without_credentials(url)})
        return await self._deliver(request, owner, url, body)

    def own_name(self, group: str, name: str | None) -> str | None:
        """Return the name of an instance that this process makes; None: any that contains the node.

        Args:
            group: the id of its group.
            name: the one that its client wants; None: generated, so that this process owns it.
        """
        if self._workers is None or name is not None:
            return name
        return self._workers.generated_name(group, self._node)

    async def _deliver(
        self,
        request: web.BaseRequest,
        owner: str,
        url: str,
        body: bytes,
        passed: frozenset[int] = _NONE,
    ) -> web.StreamResponse | None:
        """Send a request to a peer, within the bounds; return its answer, or None for one with a status in ``passed``."""
        places = self._places.get(owner)
        if places is None:
            places = self._places[owner] = Shares(_MAX_CONNECTIONS, total=True)
        caller = shares.caller.get()
        if not places.enter(caller):
            raise ApiError(
                errors.TOO_MANY_REQUESTS, f"too many requests wait for {self.KIND} {owner}, try again"
            )
        try:
            return await self._send(request, owner, url, body, passed)
        finally:
            places.leave(caller)

    def _open(self, connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
        session = aiohttp.ClientSession(
            auto_decompress=False,
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(
                total=self._longest + _TRANSFER,
                connect=self._timeout,
                sock_connect=self._timeout,
                sock_read=self._longest + self._timeout,
            ),
            skip_auto_headers=("Content-Type", "User-Agent", "Accept", "Accept-Encoding"),
        )
        # The records of a read whose answer is lost may count as consumed: only its client may read again.
        session._retry_connection = False
        return session

    def _session_to(self, _owner: str) -> aiohttp.ClientSession:
        """Return the connections to a peer."""
        if self._session is None:
            self._session = self._open(aiohttp.TCPConnector(limit=0))
        return self._session

    async def _send(
        self, request: web.BaseRequest, owner: str, url: str, body: bytes, passed: frozenset[int]
    ) -> web.StreamResponse | None:
        response: web.StreamResponse | None = None
        # A change that was begun is not given up: nobody would know how far it got.
        watching = self._authenticator if request.method == "GET" else None
        try:
            asking = self._session_to(owner).request(
                request.method,
                URL(url, encoded=True),
                headers=self._headers(request, owner, url, body),
                data=body or None,
                allow_redirects=False,
            )
            async with await while_recognized(watching, asking) as answer:
                if answer.status in passed:
                    return None
                headers = CIMultiDict(
                    (name, value) for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP
                )
                if answer.content_length is not None:
                    headers["Content-Length"] = str(answer.content_length)
                response = web.StreamResponse(status=answer.status, headers=headers)
                if self._cors is not None:
                    self._cors.allow(request, response)
                await response.prepare(request)
                async for chunk in answer.content.iter_chunked(_CHUNK):
                    await response.write(chunk)
                await response.write_eof()
                return response
        except (TimeoutError, aiohttp.ClientError) as error:
            if response is not None and response.prepared:
                # Closing the connection tells the client that the answer is cut short.
                raise ConnectionError(f"{self.KIND} {owner}: {error}") from error
            raise ApiError(
                errors.UNAVAILABLE,
                f"the consumer instance belongs to {self.KIND} {owner}, which cannot be reached: {_reason(error)}",
            ) from error

    def _headers(self, request: web.BaseRequest, owner: str, url: str, body: bytes) -> CIMultiDict[str]:
        trusted, authorized = self._trusts(request), "@" in urlsplit(url).netloc
        headers = CIMultiDict(
            (name, value)
            for name, value in request.headers.items()
            if name.lower() not in _NOT_FORWARDED
            and (trusted or name.lower() not in FORWARDED)
            and not (name.lower() == "authorization" and authorized)  # the peer gets ours
            # The proof says who calls; his credentials stay here.
            and not (name.lower() in _CREDENTIALS and self._hops is not None and current.get() is not None)
        )
        headers.update(self._proof(request, owner, url, body))
        headers[HOP_HEADER] = self._node
        if "X-Forwarded-For" not in headers and request.remote:
            # The owner counts the request for who makes it, not for this daemon.
            headers["X-Forwarded-For"] = request.remote
        if "Forwarded" not in headers:
            headers.setdefault("X-Forwarded-Host", host_of(request))
            headers.setdefault("X-Forwarded-Proto", request.scheme)
        return headers

    def _proof(self, request: web.BaseRequest, owner: str, url: str, body: bytes) -> dict[str, str]:
        if self._hops is None:
            return {}
        caller = current.get()
        principal = caller.principal if caller is not None else None
        target = URL(url, encoded=True).raw_path_qs
        return {PROOF_HEADER: self._hops.sign(owner, request.method, target, principal, body)}

    def _trusts(self, request: web.BaseRequest) -> bool:
        return self._proxies is not None and self._proxies.trusts(request)

    def base_uri(self, request: web.BaseRequest, group: str, name: str) -> str:
        """Return the URL of an instance of this daemon, below ``rest.advertised_url`` or else the address that the
        client used, also through proxies that are trusted.

        Args:
            request: the one that creates the instance.
            group: the id of the instance's group.
            name: the instance's.
        """
        path = request.raw_path.partition("?")[0]
        below = path[: path.index("/consumers/")] if "/consumers/" in path else ""
        tail = f"/consumers/{quote(group, safe='')}/instances/{quote(name, safe='')}"
        if self._advertised:
            return self._advertised + below + tail
        if not self._trusts(request):
            return f"{request.scheme}://{host_of(request)}{below}{tail}"
        return f"{origin_of(request)}{below_of(request)}{tail}"

    async def close(self) -> None:
        """Close the connections to peers."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        if self._workers is not None:
            await self._workers.close()


def _reason(error: Exception) -> str:
    """Say why a peer cannot be reached, without its address, which is none of the client's business."""
    logger.info("%s", error)
    # The numbers of these errors are not the system's: that of most TLS errors is 1, as is EPERM.
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name cannot be resolved"
    if isinstance(error, ssl.CertificateError):
        return "its TLS certificate is not valid"
    if isinstance(error, ssl.SSLError) or isinstance(error.__cause__, ssl.SSLError):
        return "TLS with it has failed"
    number = error.errno if isinstance(error, OSError) else None
    if number:
        return os.strerror(number)
    return "it does not answer in time" if isinstance(error, TimeoutError) else "the connection has failed"


def heaviest(nodes: Iterable[str], group: str, name: str) -> str:
    """Return the node to which a name belongs that tells no node (rendezvous hashing)."""
    return max(nodes, key=lambda each: _weight(each, group, name))


def _weight(node: str, group: str, name: str) -> bytes:
    # In lower case, because letter case does not matter in names (see Instances).
    return hashlib.blake2b(f"{node}\0{group}\0{name.casefold()}".encode("utf-8", "replace")).digest()


def without_credentials(url: str) -> str:
    """Return a URL without the user and password in it."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


MakePeers = Callable[[Rest, TrustedProxies | None, float, Cors], Peers]
"""Makes what forwards requests from the section ``rest``, the proxies, the longest wait for an answer, and CORS."""
