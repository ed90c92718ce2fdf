"""Expose an archive's progress to Prometheus: in a file for the textfile collector, or on a port."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, start_http_server, write_to_textfile

from pixy.pipeline.archive.progress import Progress
from pixy.pipeline.errors import UsageError


class Metrics:
    """Gauges of one run; all have the label ``job``.

    Args:
        job: name of the job.
        file: rewritten after each batch; empty for none.
        port: serves the gauges over HTTP; 0 for none.

    Raises:
        UsageError: the file's folder does not exist, or the port is taken.
    """

    def __init__(self, job: str, file: str = "", port: int = 0) -> None:
        self._job = job
        self._file = file
        self._registry = CollectorRegistry()
        if file and not Path(file).resolve().parent.is_dir():
            raise UsageError(f"--metrics-file {file}: no such folder")

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"kafka_pixy_archive_{name}", text, ("job", *labels), registry=self._registry)

        self._batches = gauge("batches", "Batches published by this run")
        self._seconds = gauge("batch_seconds", "Duration of the last batch")
        self._last = gauge("last_batch_timestamp_seconds", "Time at which the last batch was published")
        self._records = gauge("records", "Records archived by this run", "topic")
        self._bytes = gauge("bytes", "Payload bytes archived by this run", "topic")
        self._offset = gauge("offset", "Next offset to archive", "topic", "partition")
        self._lag = gauge("lag", "Offsets that Kafka has and the lake lacks", "topic", "partition")
        if port:
            try:
                start_http_server(port, registry=self._registry)
            except OSError as error:
                raise UsageError(f"--metrics-port {port}: {error.strerror}") from error

    def update(self, progress: Progress, published: int) -> None:
        """Set the gauges, and rewrite the file.

        Args:
            progress: counts of the run.
            published: time of the last batch, milliseconds of the epoch.
        """
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
