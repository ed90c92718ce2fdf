"""The build backend: compile ``proto/kafkapixy.proto`` into ``pixy/proto``, then build with setuptools.

The stubs are build products: do not commit or edit them. The file is compiled under its bare name,
``kafkapixy.proto``, so that one process can load our stubs and a client's own stubs of the same file.
"""

from __future__ import annotations

import re
from pathlib import Path

from setuptools.build_meta import *
from setuptools.build_meta import (
    build_editable as _build_editable,
    build_sdist as _build_sdist,
    build_wheel as _build_wheel,
)

ROOT = Path(__file__).resolve().parent.parent
STUBS = ROOT / "pixy" / "proto"


def compile_proto() -> None:
    """Generate the stubs, and make the gRPC stub import the messages from ``pixy.proto``."""
    import grpc_tools
    from grpc_tools import protoc

    include = Path(grpc_tools.__file__).parent / "_proto"
    failed = protoc.main(
        [
            "protoc",
            f"-I{ROOT / 'proto'}",
            f"-I{include}",
            f"--python_out={STUBS}",
            f"--pyi_out={STUBS}",
            f"--grpc_python_out={STUBS}",
            "kafkapixy.proto",
        ]
    )
    if failed:
        raise RuntimeError("protoc failed on proto/kafkapixy.proto")
    stub = STUBS / "kafkapixy_pb2_grpc.py"
    text = stub.read_text(encoding="utf-8")
    stub.write_text(
        re.sub(r"^import kafkapixy_pb2", "from pixy.proto import kafkapixy_pb2", text, flags=re.M),
        encoding="utf-8",
    )


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):  # type: ignore[no-untyped-def]
    """Compile the stubs, then build a wheel (PEP 517)."""
    compile_proto()
    return _build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):  # type: ignore[no-untyped-def]
    """Compile the stubs, then build an editable wheel (PEP 660)."""
    compile_proto()
    return _build_editable(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory, config_settings=None):  # type: ignore[no-untyped-def]
    """Compile the stubs, so that the archive contains them, then build it (PEP 517)."""
    compile_proto()
    return _build_sdist(sdist_directory, config_settings)


if __name__ == "__main__":
    compile_proto()
