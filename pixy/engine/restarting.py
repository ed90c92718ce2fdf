"""Actors that an operator may restart: those whose failure is a part of their design, and which begin again where they were."""

from __future__ import annotations

from dataclasses import dataclass

from actors import Actor, handles


@dataclass(frozen=True, slots=True)
class RestartWanted:
    """Fail, so that supervision restarts this actor. To be told, not asked: an error that answers an ask is no failure."""

    by: str


class OperatorRestart(Exception):
    """The failure that an operator has wanted; the text says who."""


class Restartable(Actor):
    """Fails when it is told :class:`RestartWanted`."""

    @handles(RestartWanted)
    def _restart_wanted(self, message: RestartWanted) -> None:
        raise OperatorRestart(f"{message.by} has wanted a restart")


__all__ = ["OperatorRestart", "RestartWanted", "Restartable"]
