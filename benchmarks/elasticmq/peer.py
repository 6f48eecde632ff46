"""ElasticMQ as a process, in memory as it comes, or with its messages in an H2 database beside it.

Its configuration is the default one, except for where it listens, how much it logs (nothing but warnings: it comes with much more), and the
statistics page, which is off.
"""

import shutil
import subprocess
from pathlib import Path

from benchmarks.kafka.peer import PeerMissing
from benchmarks.processes import Command, free_port

VERSION = "1.6.14"
_POM = Path(__file__).with_name("pom.xml")
_JVM = ("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC")
_LOGBACK = '<configuration><root level="WARN"/></configuration>'


def install(cache: Path) -> Path:
    """The directory with its jars, fetched on the first call."""
    libraries = cache / f"elasticmq-{VERSION}" / "libs"
    if not shutil.which("java"):
        raise PeerMissing("ElasticMQ needs java (17 or newer) on the PATH")
    if any(libraries.glob(f"elasticmq-server_2.13-{VERSION}.jar")):
        return libraries
    if not shutil.which("mvn"):
        raise PeerMissing(f"fetching ElasticMQ {VERSION} needs mvn on the PATH, or its jars in {libraries}")
    fetched = subprocess.run(
        ["mvn", "-q", "-f", str(_POM), "dependency:copy-dependencies", f"-DoutputDirectory={libraries.absolute()}"],
        capture_output=True,
        text=True,
        check=False,
    )
    if fetched.returncode:
        raise PeerMissing(f"mvn could not fetch ElasticMQ {VERSION}: {fetched.stdout[-400:].strip()}")
    return libraries


def command(libraries: Path, data_dir: Path, *, is_durable: bool) -> Command:
    port = free_port()
    data_dir.mkdir(parents=True, exist_ok=True)
    (data_dir / "logback.xml").write_text(_LOGBACK)
    settings = {
        "rest-sqs.bind-port": port, "rest-sqs.bind-hostname": "127.0.0.1", "node-address.port": port, "rest-stats.enabled": "false",
        "logback.configurationFile": data_dir / "logback.xml", "pekko.loglevel": "WARNING",
    }  # fmt: skip
    if is_durable:
        settings |= {"messages-storage.enabled": "true", "messages-storage.uri": f"jdbc:h2:{data_dir.absolute()}/messages"}
    flags = [f"-D{name}={value}" for name, value in settings.items()]
    return Command("ElasticMQ", ["java", *_JVM, *flags, "-cp", f"{libraries}/*", "org.elasticmq.server.Main"], port, data_dir)
