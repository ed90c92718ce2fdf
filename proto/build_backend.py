"""The build backend: setuptools, after compiling ``proto/kafkapixy.proto`` into ``pixy/proto``.

The stubs are build products: never committed, never edited. The proto's file name stays plain
``kafkapixy.proto``, so that clients generated from the same file can live in one process with us.
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
    """Generate the stubs, with their import of each other made relative."""
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
    """PEP 517, after compiling the proto."""
    compile_proto()
    return _build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):  # type: ignore[no-untyped-def]
    """PEP 660, after compiling the proto."""
    compile_proto()
    return _build_editable(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory, config_settings=None):  # type: ignore[no-untyped-def]
    """PEP 517, after compiling the proto, so that nothing is missing in the archive."""
    compile_proto()
    return _build_sdist(sdist_directory, config_settings)


if __name__ == "__main__":
    compile_proto()
