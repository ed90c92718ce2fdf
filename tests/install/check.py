"""Check an installed kafka-pixy. Run by the environment's own Python; it imports nothing of the tests.

PREFIX/bin/python tests/install/check.py FREE_PORT FREE_PORT
"""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

PROGRAM = str(Path(sys.prefix) / "bin" / "kafka-pixy")


def check_package() -> None:
    """What is imported is what was installed, with one version everywhere, and every file it reads."""
    import pixy
    from pixy.api.openapi.document import load
    from pixy.config import default_text

    assert Path(pixy.__file__).is_relative_to(sys.prefix), pixy.__file__
    version = importlib.metadata.version("kafka-pixy")
    shown = subprocess.run([PROGRAM, "--version"], check=True, capture_output=True, text=True).stdout
    assert shown == f"kafka-pixy {version}\n" and version == pixy.__version__, (shown, version)
    assert load()["info"]["version"] == version
    assert default_text().startswith("# The configuration of Kafka-Pixy")
    assert (Path(pixy.__file__).parent / "py.typed").exists()


def check_codecs() -> None:
    """Every codec, fast checksums and SRV records come with the plain install."""
    from pixy.wire import batch_header, compression

    for name in ("gzip", "snappy", "lz4", "zstd"):
        codec = compression.get(name)
        assert codec.decompress(codec.compress(b"news" * 100), 400) == b"news" * 100, name
    assert batch_header
    import dns.asyncresolver
    import fastcrc

    assert fastcrc and dns.asyncresolver


def _get(url: str, data: bytes | None = None) -> Any:
    request = urllib.request.Request(url, data, {"Content-Type": "text/plain"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read()


def check_daemon(grpc_port: int, tcp_port: int) -> None:
    """The daemon starts on its sandbox, takes a message over both APIs, and stops cleanly."""
    base = f"http://127.0.0.1:{tcp_port}"
    arguments = ["--sandbox", f"--grpcAddr=127.0.0.1:{grpc_port}", f"--tcpAddr=127.0.0.1:{tcp_port}"]
    daemon = subprocess.Popen(
        [PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        _wait_for(base, daemon)
        assert set(json.loads(_get(f"{base}/topics/foo/messages?sync", b"news"))) == {"partition", "offset"}
        _produce(grpc_port)
        assert b"<html" in _get(f"{base}/docs") and b'"openapi"' in _get(f"{base}/openapi.json")
    finally:
        daemon.terminate()
        output, _ = daemon.communicate(timeout=60)
    assert daemon.returncode == 0 and "Traceback" not in output, output


def _wait_for(base: str, daemon: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while True:
        assert daemon.poll() is None and time.monotonic() < deadline, daemon.communicate()[0]
        try:
            _get(f"{base}/_ping")
            return
        except urllib.error.URLError:
            time.sleep(0.05)


def _produce(port: int) -> None:
    import grpc

    from pixy.proto import kafkapixy_pb2 as pb
    from pixy.proto.kafkapixy_pb2_grpc import KafkaPixyStub

    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        answer = KafkaPixyStub(channel).Produce(
            pb.ProdRq(topic="foo", key_undefined=True, message=b"news"), timeout=30
        )
    assert answer.partition >= 0 and answer.offset >= 0


if __name__ == "__main__":
    check_package()
    check_codecs()
    check_daemon(int(sys.argv[1]), int(sys.argv[2]))
    print("works")
