"""The history of a run that nobody ran: what a test says that clients and the kit have written down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.chaos.kit.checker import Outcome, check
from tests.chaos.kit.record import Recorder

START = 1_000_000.0
"""When the run begins."""
Events = list[dict[str, Any]]
KINDS = (
    "produced",
    "unproduced",
    "accepted",
    "delivered",
    "acks",
    "polls",
    "commits",
    "groups",
    "faults",
    "events",
)
"""Files of :mod:`tests.chaos.kit.record`, each an attribute of a history."""


class MadeHistory:
    """The events of a run, a list for each kind. A subclass fills the lists, and writes plan and logs.

    Args:
        mode: how the group acknowledges.
        healed: when the last fault was over, in seconds of the run.
    """

    def __init__(self, mode: str, healed: float) -> None:
        self.mode = mode
        self.healed = healed
        self.produced: Events = []
        self.unproduced: Events = []
        self.accepted: Events = []
        self.delivered: Events = []
        self.acks: Events = []
        self.polls: Events = []
        self.commits: Events = []
        self.groups: Events = []
        self.faults: Events = []
        self.events: Events = [{"t": START, "what": "daemon started", "d": 1}]

    def write_plan_and_logs(self, records: Recorder) -> None:
        """Write what is not an event."""
        raise NotImplementedError

    def check(self, folder: Path) -> Outcome:
        """Write the records down and check them."""
        records = Recorder(folder)
        self.write_plan_and_logs(records)
        self.events.append({"t": START + self.healed, "what": "healed"})
        for kind in KINDS:
            for event in getattr(self, kind):
                records.write(kind, **event)
        records.close()
        return check(folder)


__all__ = ["KINDS", "START", "Events", "MadeHistory"]
