"""The source archive and the wheel: each is complete, installs into a clean environment, and runs there."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.install import builds
from tests.kafka.cluster import free_port
from tests.support import ROOT

CHECK = ROOT / "tests" / "install" / "check.py"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("built")
    return builds.build(builds.copy_source(folder / "source"), folder / "dist", "--no-isolation")


def test_the_source_archive_can_be_built_from(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        assert all(member.isfile() or member.isdir() for member in archive.getmembers()), (
            "links may lead nowhere"
        )
    assert {"proto/kafkapixy.proto", "proto/build_backend.py", "pyproject.toml", "setup.cfg"} <= names
    assert {"config/default.yaml", "constraints.txt", "LICENSE", "CHANGELOG.md"} <= names


def test_the_wheel_has_every_file_of_the_packages(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[1]) as wheel:
        names = set(wheel.namelist())
        for name in ("pixy/config/default.yaml",):
            assert wheel.read(name) == (ROOT / name).read_bytes()
    wanted = {
        str(path.relative_to(ROOT))
        for package in ("pixy", "actors")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }
    assert wanted - names == set(), "in the source tree but not in the wheel"
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == {"pixy", "actors"}


@pytest.mark.parametrize("kind", ["sdist", "wheel"])
def test_it_installs_and_runs(built: tuple[Path, Path], kind: str, tmp_path: Path) -> None:
    python = builds.environment(tmp_path / "env")
    builds.install(python, str(built[("sdist", "wheel").index(kind)]))
    output = builds.run(str(python), "-P", str(CHECK), str(free_port()), str(free_port()), cwd=tmp_path)
    assert output.endswith("works\n")
