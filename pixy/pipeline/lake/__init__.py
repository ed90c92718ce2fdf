"""The lake: topics of a Kafka cluster as a Delta table, with the proof of what it holds. Needs neither Spark nor Java.

    from pixy.pipeline.lake import Lake

    lake = Lake.open("/lake")
    files = [lake.path(file.path) for file in lake.state().select("orders")]

Modules, in reading order:

- ``layout``: names of folders and files; ``locations``: the same for delta-rs, pyarrow and Spark.
- ``entry``: the metadata of a commit: ranges, counts, checksums, chained by digests.
- ``data_table``: the table of records; ``ranges_table``: the entries as a table.
- ``state``: the folded history, with the live files and the covered offsets.
- ``lake``: open a lake, read its history, publish to it.
- ``locking``: one process at a time on this machine.
- ``checksum``: hashes and sums of records, the definition in Python.
- ``data_files``: Parquet files of records; ``parquet_stats`` sums one up by its small columns.
- ``selection``: conditions on records; ``record_reader`` reads the selected ones in order.
- ``find_message``: which batch covers an offset, and which file has its record.
- ``verify``: compare history, files and records with the checksums.
- ``removal``: records that are gone on purpose; ``expire`` removes whole days.
- ``migrate``: make a lake of format 1, whose log ``manifest_v1`` reads, such a table.
"""

from pixy.pipeline.lake.checksum import Stats
from pixy.pipeline.lake.data_table import DataFile
from pixy.pipeline.lake.entry import Entry, Range
from pixy.pipeline.lake.lake import Identity, Lake
from pixy.pipeline.lake.locations import Location
from pixy.pipeline.lake.record_reader import Record, read_records
from pixy.pipeline.lake.selection import Selection, partitions_of
from pixy.pipeline.lake.state import Archived, Ledger, State

__all__ = [
    "Archived",
    "DataFile",
    "Entry",
    "Identity",
    "Lake",
    "Ledger",
    "Location",
    "Range",
    "Record",
    "Selection",
    "State",
    "Stats",
    "partitions_of",
    "read_records",
]
