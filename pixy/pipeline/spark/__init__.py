"""Spark for the pipeline's jobs.

Modules, in reading order:

- ``session``: starts Spark with the settings that the lake relies on; ``log4j2.properties`` is its log.
- ``jars``: fetches and finds the connector's jars (``pom.xml``) and Delta's.
- ``kafka_options``: a configured cluster as options of Spark's Kafka source.
- ``columns``: the lake's columns, hashes and stats as Spark expressions.
- ``sources``: ranges of offsets as a frame; ``tasks``: checks of files on executors.
- ``predicate``: a SQL condition over a lake's files.
- ``java_errors``: the cause in a stack trace of Java.
"""
