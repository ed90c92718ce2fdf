"""Completes the names of topics and groups by asking the daemon; a daemon that does not answer completes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from pixy.proto import kafkapixy_pb2 as pb

_PATIENCE: Final = 1.0
"""Seconds: a person waits for the Tab key."""

_GIVEN: Final = ("server", "cluster", "ca", "cert", "cert_key", "token_file")


def _names(method: str, request: Any, read: Callable[[Any], list[str]]) -> Callable[..., list[str]]:
    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        from pixy.cli.shell.session import Session, Settings

        given: dict[str, Any] = {name: str(ctx.params.get(name) or "") for name in _GIVEN}
        given["server"] = given["server"] or "localhost:19091"
        try:
            settings = Settings(**given, tls=bool(ctx.params.get("tls")))
            with Session(settings) as session:
                request.cluster = given["cluster"]
                found = read(session.call(method, request, _PATIENCE))
        except Exception:  # whatever is wrong, the Tab key is not the place to say it
            return []
        return sorted(name for name in found if name.startswith(incomplete))

    return complete


TOPIC: Final = _names("ListTopics", pb.ListTopicRq(), lambda answer: list(answer.topics))
"""For click's ``shell_complete``."""
GROUP: Final = _names("ListGroups", pb.ListGroupsRq(), lambda answer: [each.group for each in answer.groups])

__all__ = ["GROUP", "TOPIC"]
