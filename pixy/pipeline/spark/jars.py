"""Fetch the connector's jars with Maven, once, and find them for the jobs.

``python -m pixy.pipeline.spark.jars`` fetches them, with ``--delta`` Delta Lake's too.
``spark.jars.packages`` would fetch them whenever a job starts; a job must start without the network.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pixy.pipeline.errors import SetupError

SPARK = "4.0.0"
KAFKA_CLIENTS = "3.9.1"
"""Spark's connector was made with 3.9.0, which has the holes CVE-2025-27817 and CVE-2025-27818."""
POM = Path(__file__).with_name("pom.xml")
NAMES = (
    f"spark-sql-kafka-0-10_2.13-{SPARK}.jar",
    f"spark-token-provider-kafka-0-10_2.13-{SPARK}.jar",
    f"kafka-clients-{KAFKA_CLIENTS}.jar",
    "commons-pool2-2.12.0.jar",
)
ENVIRONMENT = "KAFKA_PIXY_JARS"
DELTA = "io.delta:delta-spark_2.13:4.0.0"
"""The version made for this Spark."""
DELTA_ENVIRONMENT = "KAFKA_PIXY_DELTA_JARS"
OLDEST_JAVA = 17
_FETCH_TIMEOUT = 900
_DELTA_NAMES = ("delta-spark_2.13-", "delta-storage-")
_COORDINATES = re.compile(r"[A-Za-z0-9._-]+:[A-Za-z0-9._-]+:[A-Za-z0-9._-]+\Z")


def default_folder() -> Path:
    """Return the jars' folder: ``$KAFKA_PIXY_JARS``, or one in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get(ENVIRONMENT) or Path(cache, "kafka-pixy", f"spark-{SPARK}-jars"))


def find(folder: str = "") -> list[str]:
    """Return the paths of all jars in a folder.

    Args:
        folder: default: :func:`default_folder`.

    Raises:
        SetupError: a jar of the connector is missing.
    """
    target = Path(folder) if folder else default_folder()
    missing = [name for name in NAMES if not (target / name).is_file()]
    if missing:
        raise SetupError(
            f"{target} lacks {', '.join(missing)}: run `make pipeline-install` (or "
            f"`python -m pixy.pipeline.spark.jars`), or name the folder with --jars or ${ENVIRONMENT}"
        )
    # Two kafka-clients would be mixed: an earlier version of this program has fetched another into the same folder.
    return sorted(
        str(path.resolve())
        for path in target.glob("*.jar")
        if path.name in NAMES or not path.name.startswith("kafka-clients-")
    )


def check_java() -> int:
    """Return Java's major version; raise SetupError if Java is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    needed = f"Java {OLDEST_JAVA} or later is needed; "
    todo = f"install one (Debian: openjdk-{OLDEST_JAVA}-jre-headless), or set $JAVA_HOME to one"
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        where = f"in $JAVA_HOME/bin ({home}/bin)" if home else "on the PATH"
        why = "" if isinstance(error, FileNotFoundError) else f" ({error})"
        raise SetupError(f"{needed}there is no usable java {where}{why}: {todo}") from error
    lines = (done.stderr + done.stdout).splitlines()
    said = [line for line in lines if not line.startswith(("Picked up ", "NOTE: "))] or ["silent"]
    match = re.search(r'version "(\d+)', "\n".join(said))
    if match is None:
        raise SetupError(
            f"{needed}`{java} -version` fails with exit code {done.returncode}: {said[0]}: {todo}"
        )
    if int(match[1]) < OLDEST_JAVA:
        found = next(line for line in said if 'version "' in line)
        raise SetupError(f"{needed}{java} is {found}: {todo}")
    return int(match[1])


def check_maven() -> None:
    """Raise SetupError if Java or Maven is missing."""
    problems = []
    try:
        check_java()
    except SetupError as error:
        problems.append(str(error))
    if shutil.which("mvn") is None:
        problems.append("Maven is needed; there is no mvn on the PATH")
    if problems:
        raise SetupError("; ".join(problems))


def install(folder: Path | None = None) -> Path:
    """Fetch the connector's jars unless they are there; return their folder.

    Args:
        folder: default: :func:`default_folder`.

    Raises:
        SetupError: Java or Maven is missing, or Maven fails.
    """
    target = folder or default_folder()
    check_maven()
    if not all((target / name).is_file() for name in NAMES):
        _fetch(POM, target)
        find(str(target))
    return target


def _fetch(pom: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        # -U: without it Maven remembers a failed lookup as failed.
        [
            "mvn",
            "-q",
            "-B",
            "-U",
            "-f",
            str(pom),
            "dependency:copy-dependencies",
            f"-DoutputDirectory={target}",
        ],
        capture_output=True,
        text=True,
        timeout=_FETCH_TIMEOUT,
        check=False,
    )
    if done.returncode:
        raise SetupError(f"Maven could not fetch the jars of {pom}:\n{done.stdout}{done.stderr}")


# -- Delta Lake -----------------------------------------------------------------------------------


def default_delta_folder() -> Path:
    """Return the folder of Delta's jars: ``$KAFKA_PIXY_DELTA_JARS``, or one in the user's cache."""
    return Path(os.environ.get(DELTA_ENVIRONMENT) or _delta_cache((DELTA,)))


def _delta_cache(coordinates: Sequence[str]) -> Path:
    name = "-".join(re.sub(r"[^A-Za-z0-9._-]", "-", each.partition(":")[2]) for each in coordinates)
    return default_folder().with_name(name)


def find_delta(wanted: str = "") -> list[str]:
    """Return the paths of Delta's jars.

    Args:
        wanted: a folder, or Maven coordinates (``group:artifact:version``, several separated by commas),
            which are fetched once; default: :func:`default_delta_folder`.

    Raises:
        SetupError: a jar is missing; the text names it.
    """
    coordinates = tuple(each.strip() for each in wanted.split(","))
    if wanted and not Path(wanted).is_dir() and all(_COORDINATES.match(each) for each in coordinates):
        folder = install_delta(coordinates)
    else:
        folder = Path(wanted) if wanted else default_delta_folder()
    found = sorted(folder.glob("*.jar")) if folder.is_dir() else []
    missing = [name for name in _DELTA_NAMES if not any(path.name.startswith(name) for path in found)]
    if missing:
        raise SetupError(
            f"{folder} lacks {', '.join(f'{name}VERSION.jar' for name in missing)}: run "
            "`python -m pixy.pipeline.spark.jars --delta`, or give --delta-jars a folder that has them, or "
            f"coordinates such as {DELTA}"
        )
    return [str(path.resolve()) for path in found]


def install_delta(coordinates: Sequence[str] = (DELTA,)) -> Path:
    """Fetch Delta's jars unless they are there; return their folder. Raises SetupError as :func:`install` does."""
    target = _delta_cache(coordinates)
    if all(any(target.glob(f"{name}*.jar")) for name in _DELTA_NAMES):
        return target
    check_maven()
    wanted = dict.fromkeys(coordinates)
    for each in coordinates:
        group, artifact, version = each.split(":")
        if artifact.startswith("delta-spark_"):
            wanted[f"{group}:delta-storage:{version}"] = None  # needed beside Spark's own jars
    with tempfile.TemporaryDirectory(prefix="kafka-pixy-") as folder:
        pom = Path(folder, "pom.xml")
        pom.write_text(_pom(list(wanted)), encoding="utf-8")
        _fetch(pom, target)
    return target


def _pom(coordinates: Sequence[str]) -> str:
    """Build a project with these dependencies, without their own dependencies: Spark has those."""
    tags = ("groupId", "artifactId", "version")
    dependencies = "".join(
        "<dependency>"
        + "".join(f"<{tag}>{text}</{tag}>" for tag, text in zip(tags, each.split(":"), strict=True))
        + "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
        "</dependency>"
        for each in coordinates
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>kafka-pixy</groupId><artifactId>delta-jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def main(argv: Sequence[str] = ()) -> int:
    """Fetch the jars, with ``--delta`` Delta's too; name loudly what is missing. Returns the exit code."""
    try:
        targets = [install()]
        if "--delta" in argv:
            targets.append(install_delta())
    except SetupError as error:
        sys.stderr.write(f"\n!!! kafka-pixy pipeline cannot run here: {error} !!!\n\n")
        return 1
    sys.stderr.write(f"the pipeline's jars are in {' and '.join(map(str, targets))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
