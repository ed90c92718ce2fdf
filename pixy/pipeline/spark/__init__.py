"""Spark for the pipeline: session, jars, columns, file systems, error texts."""
