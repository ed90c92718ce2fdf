"""Errors of the pipeline. Each text names the file, topic or option."""

from __future__ import annotations

from pixy.errors import PixyError


class PipelineError(PixyError):
    """Base of the pipeline's errors. Batches published before the error stay as they are."""


class UsageError(PipelineError):
    """The command line contradicts itself or the lake (exit code 2)."""


class SetupError(PipelineError):
    """Spark, Java, Maven or a jar is missing."""


class LakeError(PipelineError):
    """The folder is not a lake, or the lake differs from its manifests."""


class UnknownVersion(LakeError):
    """A lake, a manifest or a file has a format version that this program does not know."""


class ManifestError(LakeError):
    """A manifest is missing, unreadable or altered."""


class Published(LakeError):
    """Another writer was first to publish a file of this name."""


class CheckpointError(PipelineError):
    """The checkpoint belongs to another job, lake or cluster, or contradicts the manifests."""


class SourceError(PipelineError):
    """Kafka lacks what the job needs: the topic is gone or was created again, or offsets have expired."""


class Overlap(PipelineError):
    """Another job has archived offsets of the batch meanwhile, or changed the table's columns; nothing was published."""
