"""The connector's jars: fetched by Maven once, found by the jobs. ``python -m pixy.pipeline.jars`` fetches.

``spark.jars.packages`` would fetch them whenever a job starts; a job must start without the network.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from pixy.pipeline.errors import SetupError

SPARK = "4.0.0"
POM = Path(__file__).with_name("pom.xml")
NAMES = (
    f"spark-sql-kafka-0-10_2.13-{SPARK}.jar", f"spark-token-provider-kafka-0-10_2.13-{SPARK}.jar",
    "kafka-clients-3.9.0.jar", "commons-pool2-2.12.0.jar",
)
ENVIRONMENT = "KAFKA_PIXY_JARS"
OLDEST_JAVA = 17
_FETCH_TIMEOUT = 900


def default_folder() -> Path:
    """Where the jars are if nobody says otherwise."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get(ENVIRONMENT) or Path(cache, "kafka-pixy", f"spark-{SPARK}-jars"))


def find(folder: str = "") -> list[str]:
    """The paths of all jars of ``folder`` (default: :func:`default_folder`), ours being among them.

    Raises:
        SetupError: one that is needed is not there.
    """
    place = Path(folder) if folder else default_folder()
    missing = [name for name in NAMES if not (place / name).is_file()]
    if missing:
        raise SetupError(
            f"{place} lacks {', '.join(missing)}: run `make pipeline-install` (or "
            f"`python -m pixy.pipeline.jars`), or name the folder with --jars or ${ENVIRONMENT}"
        )
    return sorted(str(path.resolve()) for path in place.glob("*.jar"))


def check_java() -> int:
    """Java's major version; raises SetupError if there is none or one that is too old."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        where = "$JAVA_HOME/bin" if home else "the PATH"
        raise SetupError(
            f"Java {OLDEST_JAVA} or later is needed; there is no usable java in {where} ({error})"
        ) from error
    match = re.search(r'version "(\d+)', done.stderr + done.stdout)
    if match is None or int(match[1]) < OLDEST_JAVA:
        raise SetupError(
            f"Java {OLDEST_JAVA} or later is needed; {java} is "
            f"{(done.stderr or done.stdout).splitlines()[0]}"
        )
    return int(match[1])


def install(folder: Path | None = None) -> Path:
    """Fetch what is missing; raises SetupError if Java or Maven is missing or Maven fails."""
    target = folder or default_folder()
    problems = []
    try:
        check_java()
    except SetupError as error:
        problems.append(str(error))
    if shutil.which("mvn") is None:
        problems.append("Maven is needed; there is no mvn on the PATH")
    if problems:
        raise SetupError("; ".join(problems))
    if all((target / name).is_file() for name in NAMES):
        return target
    target.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        # -U: a lookup that failed once is remembered as failed.
        ["mvn", "-q", "-B", "-U", "-f", str(POM), "dependency:copy-dependencies",
         f"-DoutputDirectory={target}"],
        capture_output=True, text=True, timeout=_FETCH_TIMEOUT, check=False,
    )
    if done.returncode:
        raise SetupError(f"Maven could not fetch the jars of {POM}:\n{done.stdout}{done.stderr}")
    find(str(target))
    return target


def main() -> int:
    """Fetch the jars; say loudly what is missing."""
    try:
        target = install()
    except SetupError as error:
        sys.stderr.write(f"\n!!! kafka-pixy pipeline can not run here: {error} !!!\n\n")
        return 1
    sys.stderr.write(f"the pipeline's jars are in {target}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
