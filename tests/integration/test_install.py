"""The source archive and the wheel: each is complete, installs into a clean environment, and runs there."""

from __future__ import annotations

import re
import tarfile
import zipfile
from pathlib import Path

import pytest

from pixy import __version__
from tests.install import builds
from tests.kafka.cluster import free_port
from tests.pages import blocks
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


@pytest.fixture(scope="module")
def actors(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("actors")
    source = builds.copy_source(folder / "source")
    return builds.build(source / "distributions" / "actors", folder / "dist", "--no-isolation")


class TestActors:
    """The actor runtime as a distribution of its own, which needs pykka only."""

    def test_it_has_every_file_of_the_package_and_nothing_else(self, actors: tuple[Path, Path]) -> None:
        with zipfile.ZipFile(actors[1]) as wheel:
            found = {name for name in wheel.namelist() if ".dist-info" not in name}
            [metadata] = [name for name in wheel.namelist() if name.endswith("METADATA")]
            needs = re.findall(r"^Requires-Dist: ([^;\n]*)$", wheel.read(metadata).decode(), re.MULTILINE)
        assert found == {
            str(path.relative_to(ROOT))
            for path in (ROOT / "actors").rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        assert [need.split("<")[0].split(">")[0] for need in needs] == ["pykka"]
        assert actors[1].name == f"kafka_pixy_actors-{__version__}-py3-none-any.whl"

    @pytest.mark.parametrize("kind", ["sdist", "wheel"])
    def test_with_pykka_alone_its_programs_run(
        self, actors: tuple[Path, Path], kind: str, tmp_path: Path
    ) -> None:
        python = builds.bare_environment(tmp_path / "env", "pykka")
        archive = str(actors[("sdist", "wheel").index(kind)])
        if kind == "sdist":  # a build needs setuptools, which the environment has not
            archive = str(next(builds.wheel_of(Path(archive), tmp_path).glob("*.whl")))
        builds.install(python, archive)
        [program] = [each for each in blocks("distributions/actors/README.md") if each.language == "python"]
        assert program.expected is not None
        assert builds.run(str(python), "-P", "-c", program.text, cwd=tmp_path) == program.expected.text
        for example in ("actors_workers.py", "actors_ported.py"):
            output = builds.run(str(python), "-P", str(ROOT / "examples" / example), cwd=tmp_path)
            assert output.endswith("Good news everyone!\n")
        modules = "import actors.patterns, actors.process, actors.remote, actors.testing, actors.tracing"
        builds.run(str(python), "-P", "-c", modules, cwd=tmp_path)
