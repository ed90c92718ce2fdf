"""Benchmarks of the data pipeline: archive, replay, data source, journal, audit."""
