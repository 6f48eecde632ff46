"""Spark's own Kafka connector, the peer of our source and sink: four jars, each fetched by its own coordinates.

Resolving the connector's whole tree fails (its parent names a repository of its own), and needs none of it but these.
"""

import shutil
import subprocess
from pathlib import Path

from benchmarks.kafka.peer import PeerMissing

VERSION = "4.2.0"  # The newest to be had; runs on PySpark 4.3.
_ARTIFACTS = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{VERSION}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)


def install(cache: Path) -> list[Path]:
    """The jars, for `spark.jars`; fetched on the first call."""
    directory = cache / "spark-kafka"
    jars = []
    for artifact in _ARTIFACTS:
        _, name, version = artifact.split(":")
        jars.append(directory / f"{name}-{version}.jar")
        if not jars[-1].exists():
            _fetch(artifact, directory)
    return jars


def _fetch(artifact: str, directory: Path) -> None:
    if not shutil.which("mvn"):
        raise PeerMissing(f"fetching Spark's Kafka connector needs mvn on the PATH, or its jars in {directory}")
    command = ["mvn", "-q", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={directory.absolute()}"]
    fetched = subprocess.run(command, capture_output=True, text=True, check=False)
    if fetched.returncode:
        raise PeerMissing(f"mvn could not fetch {artifact}: {fetched.stdout[-400:].strip()}")
