"""Names of the folders and files in a lake, relative to its root.

A lake holds the topics of one Kafka cluster::

    LAKE/data/_delta_log/          log of the table of records, a Delta table: the truth
    LAKE/data/<job>/<attempt>/     Parquet files of records; a file counts only if the table lists it
    LAKE/ranges/                   table of the archived ranges, a Delta table that is made from that log
    LAKE/_jobs/<job>.lock          lets one process at a time run a job on this machine
"""

from __future__ import annotations

import re
from typing import Final

DATA: Final = "data"
LOG: Final = "_delta_log"
"""Folder of a Delta table's log, within the table."""
RANGES: Final = "ranges"
JOBS: Final = "_jobs"
OLD_IDENTITY: Final = "_lake.json"
"""Tells a lake of format 1, see :mod:`pixy.pipeline.lake.migrate`."""
OLD_LOG: Final = "_manifests"

TOPIC: Final = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}\Z")
"""Names that Kafka allows."""


def is_inside(path: str) -> bool:
    """Return whether a relative path stays below the folder that it is relative to; symbolic links are not followed."""
    return not path.startswith("/") and "\0" not in path and ".." not in path.replace("\\", "/").split("/")


def is_data_path(path: str) -> bool:
    """Return whether a path is one of a data file, below ``DATA`` and written in the one way that names it."""
    folder, *below = path.split("/")
    return folder == DATA and bool(below) and is_inside(path) and not {"", "."} & set(below)
