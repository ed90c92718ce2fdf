"""The lake: topics of a Kafka cluster as Parquet files and a log of manifests. Needs neither Spark nor Java.

    from pixy.pipeline.lake import Lake

    lake = Lake.open("/lake")
    files = [lake.path(file.path) for file in lake.state().select("orders")]

Modules, in reading order:

- ``layout``: names of folders and files.
- ``manifest``: one entry of the log, to JSON and back.
- ``state``: the folded log, with the live files and the archived ranges.
- ``lake``: open a lake, read its log, append to it.
- ``store``: where files are kept; ``arrow_store`` reads a lake elsewhere through pyarrow.
- ``locking``: one process at a time on this machine.
- ``checksum``: hashes and sums of records, the definition in Python.
- ``data_files``: Parquet files of records; ``parquet_stats`` sums one up by its small columns.
- ``selection``: conditions on records; ``record_reader`` reads the selected ones in order.
- ``verify``: compare log, files and records with the checksums.
"""

from pixy.pipeline.lake.arrow_store import ArrowStore, filesystem_of, reading_store
from pixy.pipeline.lake.checksum import Stats
from pixy.pipeline.lake.lake import Identity, Lake
from pixy.pipeline.lake.manifest import DataFile, Manifest, Range
from pixy.pipeline.lake.record_reader import Record, read_records
from pixy.pipeline.lake.selection import Selection, partitions_of
from pixy.pipeline.lake.state import Archived, State
from pixy.pipeline.lake.store import LocalStore, Store

__all__ = [
    "Archived",
    "ArrowStore",
    "DataFile",
    "Identity",
    "Lake",
    "LocalStore",
    "Manifest",
    "Range",
    "Record",
    "Selection",
    "State",
    "Stats",
    "Store",
    "filesystem_of",
    "partitions_of",
    "read_records",
    "reading_store",
]
