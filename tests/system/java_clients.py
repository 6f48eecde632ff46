"""Apache Kafka's Java clients on this machine: found in PENSTOCK_KAFKA_JARS, or fetched once into the user's cache with Maven."""

import os
import shutil
import subprocess
from pathlib import Path

VERSION = "4.3.0"
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>penstock.tests</groupId><artifactId>java-clients</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId><version>{VERSION}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""


def class_path() -> str:
    """What `java -cp` wants. Raises LookupError with the reason when the jars cannot be had here."""
    given = os.environ.get("PENSTOCK_KAFKA_JARS")
    if given:
        return f"{given}/*"
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "penstock" / f"kafka-clients-{VERSION}"
    if not (cache / "complete").exists():
        _fetch(cache)
    return f"{cache}/*"


def _fetch(cache: Path) -> None:
    if shutil.which("mvn") is None:
        raise LookupError("neither PENSTOCK_KAFKA_JARS nor mvn is there")
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "pom.xml").write_text(POM)
    command = ["mvn", "-q", "-B", "-f", str(cache / "pom.xml"), "dependency:copy-dependencies", f"-DoutputDirectory={cache}"]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=150)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as failure:
        raise LookupError(f"Maven could not fetch kafka-clients {VERSION}: {failure}") from None
    (cache / "complete").touch()
