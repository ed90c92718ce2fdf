"""What the pipeline refuses, each with a text that names the file, topic or option."""

from __future__ import annotations

from pixy.errors import PixyError


class PipelineError(PixyError):
    """Base of the pipeline's errors; what was published before is as it was."""


class UsageError(PipelineError):
    """The command line asks for something that can not be (exit code 2)."""


class SetupError(PipelineError):
    """Spark, Java, Maven or a jar is missing."""


class LakeError(PipelineError):
    """The lake is not one, or not as its manifests say."""


class UnknownVersion(LakeError):
    """The lake, a manifest or a file was written in a format that this version does not know."""


class ManifestError(LakeError):
    """A manifest is missing, unreadable or altered."""


class Published(LakeError):
    """Somebody else has published the manifest with this number first."""


class CheckpointError(PipelineError):
    """The checkpoint belongs to another job, lake or cluster, or contradicts the manifests."""


class SourceError(PipelineError):
    """Kafka does not have what the job wants to read: topic gone or made anew, offsets expired."""
