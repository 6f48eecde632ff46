"""A Spark session for pipelines, with every setting that measurements asked for, in one place.

`SPARK_SETTINGS` says of each what it does, what it was measured to do, and when not to use it; the reference page and
`spark_defaults_conf()` (a spark-defaults.conf for clusters) are printed from the same table.
A setting that the caller, spark-submit or spark-defaults.conf has made already is left as it is.
Not here: settings of the source and the sink, which are options of a frame, and the garbage collector's in Python workers, which
`pyspark_penstock` sees to where it is imported.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec
from typing import TYPE_CHECKING

from penstock.pipeline.complaints import PipelineComplaint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_MASTER = "local[*,3]"  # Every core of this machine; a failed task is tried again, as on a cluster.
ARROW_BYTES_MAX = 2**31 - 1  # Exactly this value switches the check off; Spark refuses -1.
ARROW_BATCH_BYTES = 64 * 2**20
ARROW_BATCH_ROWS_MAX = 10_000  # More rows at a time were measured to gain nothing.
VALUE_BYTES_MAX = 64 * 2**10
JAVA_VERSIONS = "17, 21 or 25"


class Place(Enum):
    """Where a setting does good."""

    EVERYWHERE = "everywhere"
    LOCAL = "one machine"  # Needs checkpoints on a local disk, or suits few cores only.


@dataclass(frozen=True, slots=True)
class SparkSetting:
    name: str
    value: str
    reason: str
    caveat: str
    place: Place = Place.EVERYWHERE
    is_static: bool = True  # Must be there when the JVM starts; the others can be changed in a running session.


SPARK_SETTINGS = (
    SparkSetting(
        "spark.sql.execution.arrow.maxBytesPerBatch", str(ARROW_BYTES_MAX), is_static=False,
        reason="With the default of 64 MB the JVM computes the size of every Arrow vector after every row, which is quadratic for a column "
        "of headers that are NULL: a Python sink took 32,000 rows/s with it and 390,000 without.",
        caveat="A batch is bounded by its rows alone then, so maxRecordsPerBatch must suit the largest values.",
    ),
    SparkSetting(
        "spark.sql.execution.arrow.maxRecordsPerBatch", str(ARROW_BATCH_BYTES // VALUE_BYTES_MAX), is_static=False,
        reason="Rows that go to Python at a time: 64 MB divided by the largest value, which `session(value_bytes_max=…)` takes as 64 KiB.",
        caveat="1,000 rows at a time are some 20 % slower than 10,000; more gain nothing. Topics with larger values must say so: 3,000 "
        "values of 1 MB in one batch end in Arrow's OutOfMemory.",
    ),
    SparkSetting(
        "spark.python.unix.domain.socket.enabled", "true",
        reason="Each hop between the JVM and Python stalls for some 40 ms over TCP: a micro-batch took 77 ms with it and 35 without.",
        caveat="The path of the JVM's temporary directory must be short (108 bytes with the name of the socket).",
    ),
    SparkSetting(
        "spark.sql.python.filterPushdown.enabled", "true", is_static=False,
        reason="Without it the source never hears of filters on partition, offset and timestamp, and reads everything.",
        caveat="One more call of Python while a batch query is planned.",
    ),
    SparkSetting(
        "spark.driver.extraJavaOptions", "-Xss8m",
        reason="Half of all stops of a query with foreachBatch ended in a StackOverflowError without it: Spark searches the error's text "
        "with a pattern that recurses.",
        caveat="8 MB of address space a thread. Takes effect only where the JVM is started with it: on spark-submit's own line, or in "
        "spark-defaults.conf.",
    ),
    SparkSetting(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider", is_static=False,
        reason="State of windows, joins and duplicates lives outside the heap and may be larger than it.",
        caveat="A checkpoint made with another provider cannot be read with this one.",
    ),
    SparkSetting(
        "spark.scheduler.mode", "FAIR",
        reason="Stages of a pipeline are queries of one session: none waits until another's batch is done.",
        caveat="A single long batch query beside them no longer gets every core first.",
    ),
    SparkSetting(
        "spark.hadoop.spark.sql.streaming.checkpointFileManagerClass",
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager", place=Place.LOCAL,
        reason="Writing a batch into the checkpoint takes 29 ms instead of 91: the default manager starts a shell for each file.",
        caveat="Only for checkpoints on a file system of this machine; leave it out on HDFS and object stores.",
    ),
    SparkSetting(
        "spark.sql.shuffle.partitions", "2", place=Place.LOCAL, is_static=False,
        reason="Each aggregation makes this many tasks and state stores; the default of 200 suits a cluster.",
        caveat="Fixed by the first run of a checkpoint with state. On many cores take their number.",
    ),
    SparkSetting(
        "spark.ui.enabled", "false", place=Place.LOCAL,
        reason="Saves half a second of start, a port, and memory that grows with the history of queries.",
        caveat="No web page of the jobs; `session(settings={'spark.ui.enabled': 'true'})` brings it back.",
    ),
    SparkSetting(
        "spark.ui.showConsoleProgress", "false", place=Place.LOCAL,
        reason="Bars of every job would be drawn over whatever else is printed.",
        caveat="A long batch query shows nothing until it is done.",
    ),
    SparkSetting(
        "spark.driver.host", "127.0.0.1", place=Place.LOCAL,
        reason="Starts also where the machine's own name does not resolve.",
        caveat="Executors of other machines could not reach the driver.",
    ),
)  # fmt: skip


def spark_defaults(*, place: Place = Place.LOCAL, value_bytes_max: int = VALUE_BYTES_MAX) -> dict[str, str]:
    """Name and value of each setting; for a cluster (`Place.EVERYWHERE`) without those that suit one machine only."""
    wanted = {row.name: row.value for row in SPARK_SETTINGS if place is Place.LOCAL or row.place is Place.EVERYWHERE}
    rows = min(ARROW_BATCH_ROWS_MAX, max(1, ARROW_BATCH_BYTES // value_bytes_max))
    return wanted | {"spark.sql.execution.arrow.maxRecordsPerBatch": str(rows)}


def spark_defaults_conf(*, place: Place = Place.EVERYWHERE, value_bytes_max: int = VALUE_BYTES_MAX) -> str:
    """The same as the text of a spark-defaults.conf."""
    settings = spark_defaults(place=place, value_bytes_max=value_bytes_max)
    reasons = {row.name: row.reason for row in SPARK_SETTINGS}
    return "".join(f"# {reasons[name]}\n{name} {value}\n" for name, value in settings.items())


def session(
    name: str = "penstock",
    *,
    master: str | None = None,
    remote: str | None = None,
    value_bytes_max: int = VALUE_BYTES_MAX,
    settings: Mapping[str, str] | None = None,
) -> "SparkSession":
    """The Spark session of this process, made with these settings where there is none yet.

    `master` is where it runs: this machine where neither it, nor spark-submit, nor spark-defaults.conf says otherwise.
    `remote` is a Spark Connect server's address (sc://host:port) instead; such a session takes only what can be set while it runs.
    `value_bytes_max` is the largest value that is expected, and bounds how many rows go to Python at a time.
    `settings` of the caller win over every setting of ours.
    """
    require_spark(needs_java=remote is None)
    if remote is not None:
        return _remote(remote, spark_defaults(place=Place.EVERYWHERE, value_bytes_max=value_bytes_max) | dict(settings or {}))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Workers must have the driver's packages; `python3` in PATH may have none.
    given, submitted = dict(settings or {}), _submitted()
    wanted_master = master or given.get("spark.master") or submitted.get("spark.master") or LOCAL_MASTER
    place = Place.LOCAL if wanted_master.startswith("local") else Place.EVERYWHERE
    if place is Place.LOCAL:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # Else it looks for an address of its own, and warns of what it found.
    ours = spark_defaults(place=place, value_bytes_max=value_bytes_max)
    return _local(name, wanted_master, {key: value for key, value in ours.items() if key not in submitted} | given)


def require_spark(*, needs_java: bool = True) -> None:
    """Refuses in words where Spark, Arrow or Java is missing."""
    absent = [package for package in ("pyspark", "pyarrow") if not _is_there(package)]
    if absent:
        raise PipelineComplaint(
            f"pipelines need Spark, and {' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed here",
            "pip install 'penstock[spark]'",
        )
    home = os.environ.get("JAVA_HOME")
    if needs_java and home and java_command() is None:
        raise PipelineComplaint(
            f"pipelines need Java {JAVA_VERSIONS} for Spark; JAVA_HOME says {home}, and there is no bin/java in it that can be run",
            "set JAVA_HOME to where Java is, or unset it where java is in PATH",
        )
    if needs_java and java_command() is None:
        raise PipelineComplaint(
            f"pipelines need Java {JAVA_VERSIONS} for Spark, and there is no java in PATH and no JAVA_HOME",
            "on Debian and Ubuntu: apt-get install openjdk-17-jre-headless; on Fedora: dnf install java-21-openjdk-headless",
        )


def java_command() -> str | None:
    """As Spark's own scripts look for it."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=os.path.join(home, "bin")) if home else shutil.which("java")


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ImportError:
        return False


def _submitted() -> dict[str, str]:
    """What spark-submit's own line and spark-defaults.conf have settled, where it has started us."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # Before it, a conf here knows nothing of spark-submit's.
    return dict(SparkConf().getAll())


def _local(name: str, master: str, settings: Mapping[str, str]) -> "SparkSession":
    from pyspark.sql import SparkSession

    static = {row.name for row in SPARK_SETTINGS if row.is_static}
    is_running = SparkSession.getActiveSession() is not None
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in settings.items():
        if not (is_running and key in static):  # Too late for those; Spark would warn of each.
            builder = builder.config(key, value)
    return builder.getOrCreate()


def _remote(address: str, settings: Mapping[str, str]) -> "SparkSession":
    if find_spec("grpc") is None:
        raise PipelineComplaint("Spark Connect needs packages that are not installed here", "pip install 'pyspark[connect]'")
    from pyspark.sql import SparkSession

    made: SparkSession = SparkSession.builder.remote(address).getOrCreate()
    static = {row.name for row in SPARK_SETTINGS if row.is_static}
    for key, value in settings.items():
        if key not in static:
            made.conf.set(key, value)
    return made
