"""An archive's progress in Prometheus' terms: to a file for its textfile collector, or on a port."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, start_http_server, write_to_textfile

from pixy.pipeline.archive.job import Progress
from pixy.pipeline.errors import UsageError


class Metrics:
    """Gauges of one run; all have the label ``job``."""

    def __init__(self, job: str, file: str = "", port: int = 0) -> None:
        self._job = job
        self._file = file
        self._registry = CollectorRegistry()
        if file and not Path(file).resolve().parent.is_dir():
            raise UsageError(f"--metrics-file {file}: there is no such folder")

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"kafka_pixy_archive_{name}", text, ("job", *labels), registry=self._registry)

        self._batches = gauge("batches", "Batches published by this run")
        self._seconds = gauge("batch_seconds", "How long the last batch took")
        self._last = gauge("last_batch_timestamp_seconds", "When the last batch was published")
        self._records = gauge("records", "Records archived by this run", "topic")
        self._bytes = gauge("bytes", "Payload bytes archived by this run", "topic")
        self._offset = gauge("offset", "Next offset to be archived", "topic", "partition")
        self._lag = gauge("lag", "Offsets in Kafka and not in the lake", "topic", "partition")
        if port:
            try:
                start_http_server(port, registry=self._registry)
            except OSError as error:
                raise UsageError(f"--metrics-port {port}: {error.strerror}") from error

    def update(self, progress: Progress, published: int) -> None:
        """Take over a run's progress; ``published`` is the last batch's time in milliseconds."""
        self._batches.labels(self._job).set(progress.batches)
        self._seconds.labels(self._job).set(progress.batch_seconds)
        self._last.labels(self._job).set(published / 1000)
        for topic, (count, size) in progress.by_topic.items():
            self._records.labels(self._job, topic).set(count)
            self._bytes.labels(self._job, topic).set(size)
        for (topic, partition), offset in progress.offsets.items():
            self._offset.labels(self._job, topic, str(partition)).set(offset)
        for (topic, partition), lag in progress.lag.items():
            self._lag.labels(self._job, topic, str(partition)).set(lag)
        if self._file:
            write_to_textfile(self._file, self._registry)
