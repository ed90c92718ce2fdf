"""Forwarded reads end with their caller's credential.

The owner of a consumer instance learns only who calls, so the process that has recognized the caller watches his
credential. When it ends, that process closes its connection to the owner, which gives the records back as for any client
that goes.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable

import aiohttp

from pixy.auth.authenticator import Authenticator
from pixy.auth.principal import current
from pixy.errors import Unauthenticated


async def while_recognized(
    authenticator: Authenticator | None, asking: Awaitable[aiohttp.ClientResponse]
) -> aiohttp.ClientResponse:
    """Wait for the head of an answer, as long as the caller of this task would be recognized again.

    Args:
        authenticator: has recognized him; None: nobody has.
        asking: the request to the owner.

    Raises:
        Unauthenticated: his credential has ended; the request is given up.
    """
    caller = current.get()
    if authenticator is None or caller is None or caller.seen is None:
        return await asking
    loop = asyncio.get_running_loop()
    ended = Unauthenticated("the credential ended while the read waited")

    def look() -> None:
        if limit.expired():
            return
        known = authenticator.again(caller)
        left = 0.0 if known is None else known.until - authenticator.wall()
        limit.reschedule(loop.time() + left if math.isfinite(left) else None)

    try:
        async with asyncio.timeout(None) as limit:
            with authenticator.watched(look):
                look()
                answer = await asking
    except TimeoutError:
        if limit.expired():
            raise ended from None
        raise
    if authenticator.again(caller) is None:  # the clock was set, or the loop is late
        answer.close()
        raise ended
    return answer


__all__ = ["while_recognized"]
