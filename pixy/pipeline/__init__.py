"""Topics to a lake and back, exactly once, and the proof of it: archive, compact, replay, verify, audit.

The only importer of pyspark, and only the modules that run a job import it: importing this package
needs neither Spark nor Java. Usable without the daemon.
"""
