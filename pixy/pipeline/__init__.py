"""Archive topics to a lake and replay them, exactly once, with the proof: archive, optimize, replay, verify, audit.

Packages, in reading order:

- ``lake``: the tables and files of a lake; needs neither Spark nor Java.
- ``spark``: session, jars, columns and file systems for the packages that run Spark.
- ``archive``: topics to a lake, and its days to large files.
- ``replay``: records of a lake to a topic.
- ``datasource``: ``format("pixy")``, Kafka for Spark by the project's own wire library.
- ``audit``: what was lost, doubled or late.

This is the only package that imports pyspark, and only the modules that run a job do. It works without the
daemon.
"""
