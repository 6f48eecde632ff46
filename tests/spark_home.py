"""A Spark that starts sooner, for tests alone.

Python workers of an installed pyspark import it from `pyspark.zip`, which holds no byte code: a second of CPU for each of the many
processes of a test. A home of links to everything but that zip lets them fall back to the byte-compiled package beside it.
The JVM compiles once and simply (C1, one collecting thread): tests end before the better compiler pays.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

JAVA_OPTIONS = "-Xss8m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@contextmanager
def byte_compiled_home(directory: Path) -> Iterator[Path]:
    """SPARK_HOME is such a home inside of the `with`."""
    import pyspark

    home, installed = directory / "home", Path(pyspark.__file__).parent
    home.mkdir()
    for part in ("bin", "sbin", "jars", "data", "licenses"):
        (home / part).symlink_to(installed / part)
    before = os.environ.get("SPARK_HOME")
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield home
    finally:
        if before is None:
            del os.environ["SPARK_HOME"]
        else:
            os.environ["SPARK_HOME"] = before
