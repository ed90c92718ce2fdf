"""Bootstrap addresses from DNS SRV records (RFC 2782), looked up with dnspython.

dnspython is imported at the first lookup. It retries truncated answers over TCP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from pixy.wire.exceptions import WireError

if TYPE_CHECKING:
    from dns.asyncresolver import Resolver as AsyncResolver
    from dns.exception import DNSException
    from dns.message import Message
    from dns.name import Name
    from dns.resolver import Answer, Resolver

_RCODES: Final = {"FORMERR": "format error", "SERVFAIL": "server failure", "REFUSED": "refused"}
_NONE: Final = "there is none"


def lookup(name: str, *, servers: Sequence[tuple[str, int]] | None = None, timeout: float = 5.0) -> list[str]:
    """Look up the addresses of an SRV record in the caller's thread.

    Args:
        name: of the record, as ``_kafka._tcp.example.com``. It is taken as absolute; search domains are not tried.
        servers: name servers as (IP address, port), asked in turn. Default: those of the system.
        timeout: seconds for the whole lookup, shared equally by the name servers.

    Returns:
        Addresses ``host:port``, lowest priority number first, equal priorities by weight.

    Raises:
        WireError: the name is invalid, no server answered, there is no record, or dnspython is not installed.
    """
    resolver, query = _prepare(name, servers, timeout, blocking=True)
    try:
        return _addresses(name, resolver.resolve(query, "SRV", lifetime=timeout))
    except _dns_exception() as error:
        raise _failure(name, error) from error


async def lookup_async(
    name: str, *, servers: Sequence[tuple[str, int]] | None = None, timeout: float = 5.0
) -> list[str]:
    """Look up the addresses of an SRV record on the running event loop, without blocking it.

    Arguments, result and errors are those of :func:`lookup`.
    """
    # In a thread, because importing dnspython and reading the system's configuration block.
    resolver, query = await asyncio.to_thread(_prepare, name, servers, timeout, blocking=False)
    try:
        return _addresses(name, await resolver.resolve(query, "SRV", lifetime=timeout))
    except _dns_exception() as error:
        raise _failure(name, error) from error


def _prepare(
    name: str, servers: Sequence[tuple[str, int]] | None, timeout: float, *, blocking: bool
) -> tuple[Any, Name]:
    """Return a dnspython resolver, blocking or for asyncio, and the parsed name."""
    try:
        import dns.asyncresolver
        import dns.name
        import dns.nameserver
        import dns.resolver
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("dns"):
            raise
        raise WireError(f"SRV record of {name} needs dnspython: pip install dnspython") from None
    try:
        query = dns.name.from_text(name)
    except dns.exception.DNSException:
        query = dns.name.root
    if query == dns.name.root:
        raise WireError(f"not a host name: {name!r}")
    kind: type[Resolver | AsyncResolver] = dns.resolver.Resolver if blocking else dns.asyncresolver.Resolver
    try:
        resolver = kind(configure=servers is None)
    except dns.exception.DNSException as error:
        raise _failure(name, error) from error
    if servers is not None:
        resolver.nameservers = [dns.nameserver.Do53Nameserver(*each) for each in servers]
    resolver.timeout = timeout / max(len(resolver.nameservers), 1)
    return resolver, query


def _addresses(name: str, answer: Answer) -> list[str]:
    records: list[Any] = answer.rrset.processing_order() if answer.rrset else []
    # A target "." means that the service does not exist.
    found = [(each.target.to_text(omit_final_dot=True), each.port) for each in records]
    addresses = [f"{host}:{port}" for host, port in found if host != "."]
    if not addresses:
        raise WireError(f"SRV record of {name}: {_NONE}")
    return addresses


def _dns_exception() -> type[DNSException]:
    from dns.exception import DNSException

    return DNSException


def _failure(name: str, error: DNSException) -> WireError:
    """Say in one line why a lookup failed, in terms of the last name server asked."""
    from dns.resolver import NXDOMAIN, NoAnswer

    if isinstance(error, NXDOMAIN):
        return WireError(f"SRV record of {name}: no such name")
    if isinstance(error, NoAnswer):
        return WireError(f"SRV record of {name}: {_NONE}")
    attempts = error.kwargs.get("errors")
    if not attempts:
        return WireError(f"SRV record of {name}: no name server")
    server, _, _, cause, response = attempts[-1]
    return WireError(f"SRV record of {name}: {server.removeprefix('Do53:')}: {_reason(cause, response)}")


def _reason(cause: Any, response: Message | None) -> str:
    from dns.exception import Timeout
    from dns.rcode import to_text

    if isinstance(cause, Timeout):
        return "timed out"
    if response is None or isinstance(cause, BaseException):
        return str(cause)
    code = to_text(response.rcode())
    return _RCODES.get(code, code)
