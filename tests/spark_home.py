"""A Spark that starts sooner, for tests alone.

Python workers of an installed pyspark import it from `pyspark.zip`, which holds no byte code: a second of CPU for each of the many
processes of a test. A home of links to everything but that zip lets them fall back to the byte-compiled package beside it; and in the
session that tests share their daemon imports what they need before it forks them (spark_daemon/). Where a pipeline runs in processes of its
own the daemon is Spark's own, as with users.
The JVM compiles once and simply (C1, one collecting thread): tests end before the better compiler pays.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

JAVA_OPTIONS = "-Xss8m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# For a session inside of `byte_compiled_home`.
SOONER = {"spark.driver.extraJavaOptions": JAVA_OPTIONS}
WARM_DAEMON = {"spark.python.daemon.module": "warm_daemon"}
DAEMON = Path(__file__).parent / "spark_daemon"


@contextmanager
def byte_compiled_home(directory: Path) -> Iterator[Path]:
    """SPARK_HOME is such a home inside of the `with`."""
    home = _home(directory)
    path = os.pathsep.join(filter(None, [str(DAEMON), os.environ.get("PYTHONPATH")]))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SPARK_HOME", str(home))
        environment.setenv("SPARK_LAUNCHER_OPTS", JAVA_OPTIONS)
        environment.setenv("PYTHONPATH", path)
        yield home


def cluster_home(directory: Path) -> Path:
    """Makes a home for machines whose Python has no pyspark: what such a home has as zips are byte-compiled packages here."""
    import py4j
    import pyspark

    home = _home(directory)
    libraries = home / "python" / "lib"
    libraries.mkdir(parents=True)
    for zipped in (Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip"):
        package = pyspark if zipped.name == "pyspark.zip" else py4j
        (libraries / zipped.name).mkdir()
        (libraries / zipped.name / package.__name__).symlink_to(Path(package.__file__).parent)
    return home


def _home(directory: Path) -> Path:
    import pyspark

    home, installed = directory / "home", Path(pyspark.__file__).parent
    home.mkdir()
    for part in ("bin", "sbin", "jars", "data", "licenses"):
        (home / part).symlink_to(installed / part)
    return home
