"""What a lake, and the state folders of replays, know of a message: added to what the daemon has told. Needs no Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from pixy.cli.importing import importing
from pixy.cli.shell.errors import ShellError
from pixy.errors import PixyError, needs_extra

ASKED: Final = "archive and replays"
"""The question that the daemon leaves open; :data:`pixy.engine.life.lives.LAKE`."""
REPLAYS: Final = "replays"
"""Where `kafka-pixy pipeline replay` keeps its state folders unless somebody says otherwise."""


def add_lake(story: dict[str, Any], lake: str, replays: str) -> None:
    """Add events of a lake and of replays to a story, and what they do not know.

    Args:
        story: the daemon's answer.
        lake: a folder or URI; empty: not asked.
        replays: the folder with state folders of replays; empty: the usual one, if there is any.

    Raises:
        ShellError: the extra `lake` is missing.
    """
    if not lake and not replays:
        return
    story["unknown"] = [each for each in story["unknown"] if each["what"] != ASKED]
    with importing():
        try:
            from pixy.pipeline.lake.find_message import ends, find_message
            from pixy.pipeline.lake.lake import Lake
            from pixy.pipeline.replay.find_message import find_copies
        except ImportError as error:
            raise ShellError(needs_extra("--lake", "lake", error)) from error
    where = story["topic"], story["partition"], story["offset"]
    if lake:
        try:
            opened = Lake.open(lake)
            found = find_message(opened, *where)
            story["events"] += [_archived(each, opened.location.root) for each in found]
            if not found:
                end = ends(opened, where[0], where[1])
                why = (
                    "has nothing of the partition"
                    if end is None
                    else f"covers the partition up to offset {end}"
                )
                _unknown(story, "archive", f"the lake {opened.location.root} {why}, and not this offset")
        except (PixyError, OSError) as error:
            _unknown(story, "archive", f"the lake {lake} cannot be read: {error}")
    else:
        _unknown(story, "archive", "no --lake is given")
    folder = replays or (REPLAYS if Path(REPLAYS).is_dir() else "")
    if not folder or not Path(folder).is_dir():
        _unknown(
            story, "replays", f"there is no folder {replays or REPLAYS}: --replays names that of their state"
        )
    else:
        try:
            copies, origins = find_copies(folder, *where)
            story["events"] += [
                _event(
                    each.noted,
                    "replayed",
                    to=f"{each.to}/{each.new_partition}/{each.new_offset}",
                    state=each.state,
                )
                for each in copies
            ]
            story["events"] += [
                _event(
                    each.noted,
                    "written_by_replay",
                    of=f"{each.topic}/{each.partition}/{each.offset}",
                    state=each.state,
                )
                for each in origins
            ]
        except (PixyError, OSError, KeyError) as error:
            _unknown(story, "replays", f"{folder} cannot be read: {error}")
    story["events"].sort(key=lambda each: each["time"])


def _archived(found: Any, root: str) -> dict[str, Any]:
    named = {"job": found.job, "batch": found.batch, "topic_id": found.topic_id or None}
    if found.skipped:
        return _event(
            found.published / 1000, "left_out_of_the_archive", reason=found.skipped, lake=root, **named
        )
    if not found.file:
        return _event(
            found.published / 1000,
            "covered_by_the_archive",
            reason="no record has this offset",
            lake=root,
            **named,
        )
    return _event(found.published / 1000, "archived", file=found.file, **named)


def _event(time: float, event: str, **detail: Any) -> dict[str, Any]:
    return {"time": time, "event": event, "source": "lake", "daemon": "", "group": "", "detail": detail}


def _unknown(story: dict[str, Any], what: str, why: str) -> None:
    story["unknown"].append({"what": what, "why": why})


__all__ = ["ASKED", "REPLAYS", "add_lake"]
