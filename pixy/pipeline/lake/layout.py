"""Names of the folders and files in a lake, relative to its root.

A lake holds the topics of one Kafka cluster::

    LAKE/_lake.json                                   identity: format, version, id, cluster
    LAKE/_manifests/000000000000.json ...             the log: everything published, in order
    LAKE/_checkpoints/<job>/                          the position from which a job resumes
    LAKE/_staging/                                    unpublished files; every reader ignores them
    LAKE/data/topic=<topic>/date=<day>/<...>.parquet  records; a file counts only if a manifest lists it
"""

from __future__ import annotations

import re
from typing import Final

IDENTITY = "_lake.json"
MANIFESTS = "_manifests"
CHECKPOINTS = "_checkpoints"
STAGING = "_staging"
DATA = "data"


TOPIC: Final = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}\Z")
"""Names that Kafka allows."""


def is_inside(path: str) -> bool:
    """Return whether a relative path stays below the folder that it is relative to; symbolic links are not followed."""
    return not path.startswith("/") and "\0" not in path and ".." not in path.replace("\\", "/").split("/")


def is_data_path(path: str) -> bool:
    """Return whether a path is one of a data file, below ``DATA`` and written in the one way that names it."""
    folder, *below = path.split("/")
    return folder == DATA and bool(below) and is_inside(path) and not {"", "."} & set(below)


def manifest_path(seq: int) -> str:
    """Path of an entry of the log."""
    return f"{MANIFESTS}/{seq:012d}.json"


def data_folder(topic: str, date: str) -> str:
    """Folder of a topic's records of one day.

    Args:
        topic: the topic's name; Kafka allows only characters that file systems take as they are.
        date: ISO 8601, in UTC.
    """
    return f"{DATA}/topic={topic}/date={date}"
