"""The kinds of faults, and what the checker allows for each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    Attributes:
        uses: what no other fault may use at the same time: ``broker``, ``daemon`` (that one), ``daemons``
            (all), the name of a topic, or nothing.
        seconds: how long it lasts, at least and at most; the fault itself may take longer.
        recovery: seconds after its end in which the group may still be busy with it.
        ungraceful: whether an acknowledgement that was accepted may be forgotten, so that the message comes
            again. Otherwise only messages without an accepted acknowledgement may.
    """

    uses: str
    seconds: tuple[float, float]
    recovery: float
    ungraceful: bool = True


_SESSION = 8.0
"""The session timeout, and a rebalance."""
_ELECTION = 8.0
"""Until a broker that died is noticed, and its partitions have leaders that clients know."""

KINDS: dict[str, Kind] = {
    "daemon-kill": Kind("daemon", (0, 0), _SESSION),
    "daemon-freeze": Kind("daemon", (0.5, 4), 4),
    "session-expiry": Kind("daemon", (8, 12), _SESSION),
    "daemon-restart": Kind("daemon", (0, 0), 6, ungraceful=False),
    "rolling-restart": Kind("daemons", (25, 25), 6, ungraceful=False),
    "daemon-leave": Kind("daemon", (2, 8), 6, ungraceful=False),
    "broker-kill": Kind("broker", (1, 8), _ELECTION),
    "broker-freeze": Kind("broker", (1, 10), _ELECTION),
    "broker-restart": Kind("broker", (0, 2), _ELECTION),
    "leader-loss": Kind("broker", (1, 8), _ELECTION),
    "coordinator-loss": Kind("broker", (1, 8), _ELECTION),
    "disk-full": Kind("broker", (2, 6), _ELECTION),
    "cut-broker": Kind("daemon", (1, 8), 6),
    "cut-brokers": Kind("daemon", (1, 12), _SESSION),
    "hold-broker": Kind("daemon", (1, 10), 8),
    "hold-brokers": Kind("daemon", (2, 12), _SESSION),
    "slow-brokers": Kind("daemon", (3, 12), 6),
    "cut-zookeeper": Kind("daemon", (1, 12), _SESSION),
    "hold-zookeeper": Kind("daemon", (2, 12), _SESSION),
    "silent-coordinator": Kind("daemon", (12, 14), 8),
    "cut-clients": Kind("daemon", (0.2, 5), 3),
    "hold-clients": Kind("daemon", (1, 8), 4),
    "slow-clients": Kind("daemon", (3, 12), 4),
    "clients-vanish": Kind("", (0, 0), 2),
    "rebalance-storm": Kind("storm", (3, 8), 6, ungraceful=False),
    "recreate-topic": Kind("recreated", (0, 3), 15),
    "recreate-chosen": Kind("chosen", (0, 3), 15),
    "grow-topic": Kind("grown", (0, 0), 10, ungraceful=False),
    "grow-chosen": Kind("chosen", (0, 0), 10, ungraceful=False),
    "delete-records": Kind("trimmed", (0, 0), 4, ungraceful=False),
    "reset-offsets": Kind("reset", (0, 0), 10),
    "full-batch": Kind("", (0, 0), 1, ungraceful=False),
    "bad-records": Kind("", (0, 0), 1, ungraceful=False),
    "open-transaction": Kind("odd", (0, 0), 18, ungraceful=False),
    "crash-owner": Kind("", (0, 0), 3),
    "crash-committer": Kind("", (0, 0), 6),
    "crash-group": Kind("", (0, 0), 6),
    "crash-producer": Kind("", (0, 0), 3),
    "crash-instance": Kind("", (0, 0), 6),
    "crash-instances": Kind("", (0, 0), 6),
    "crash-admin": Kind("", (0, 0), 3),
    "crash-fetcher": Kind("", (0, 0), 3),
    "crash-cluster": Kind("daemon", (0, 0), 8),
}


def kinds_of(membership: str) -> list[str]:
    """Return the kinds of faults that make sense with a membership."""
    return sorted(name for name in KINDS if membership == "zookeeper" or "zookeeper" not in name)


__all__ = ["KINDS", "Kind", "kinds_of"]
