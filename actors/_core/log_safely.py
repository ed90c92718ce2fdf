"""Lines of the log that a filter or handler of the program's own must not turn into a failure of the runtime.

``Logger.handle`` lets pass what a filter raises. A failure that is being dealt with, a restart or a stop would end there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from actors._core.error_text import repr_of
from actors._core.interruption import failed_itself

logger = logging.getLogger("actors")


def log_safely(log: Callable[..., object], *args: Any, **options: Any) -> None:
    """Write a line of the log; say so in another one if that is not possible.

    Args:
        log: a logger's method, or what takes its ``stacklevel``.
        args: for it.
        options: for it, too.
    """
    try:
        log(*args, stacklevel=2, **options)
    except BaseException as error:
        if not failed_itself(error):
            return
        try:
            logger.error(
                f"a line cannot be logged: {repr_of(error)}"
            )  # without arguments: a filter may choke on those
        except BaseException as again:  # whatever has raised may see this line, too
            failed_itself(again)
