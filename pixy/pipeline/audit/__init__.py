"""The delivery audit: were all messages archived, offered and acknowledged, once and in order?

Each source is turned into *facts*, one per record of the log, row of the lake or event of the journal. Facts
meet by topic, partition and block of offsets, where vectors classify them into *tallies*: counts, sketches
and ranges of offsets that merge over blocks.

To follow one run, read the files in this order:

1. ``request``, ``job``: the request, and the steps of the run.
2. ``previous_run``: the earlier run in the same folder.
3. ``check_sources``: what is refused before Spark starts; ``open_sources``, ``frames``: lake, cluster and journal, and their records as Spark frames.
4. ``journal_scan``, ``journal_view``: the journal's first pass, and the driver's view of it.
5. ``spark_jobs``, ``facts``, ``classify``, ``tallies``, ``sketch``: facts are packed, classified and merged.
6. ``tables``: tallies become ranges of offsets, windows and sketches.
7. ``partitions``, ``intervals``, ``log_scan``, ``gaps``: missing offsets are looked up in the log and
   explained.
8. ``merge_windows``: the windows are merged with the earlier run's.
9. ``findings``, ``producers``, ``sequence_scan``, ``sequences``, ``duplicate_contents``: the findings.
10. ``result``, ``summary``, ``report``, ``plots``, ``output``, ``prometheus``: the result is summarized,
    rendered and written.
"""
