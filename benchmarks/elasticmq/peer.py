"""ElasticMQ as a process, in memory as it comes, or with its messages in an H2 database beside it.

Its configuration is the default one, except for where it listens, how much it logs (nothing but warnings: it comes with much more), and the
statistics page, which is off.
"""

from pathlib import Path

from benchmarks.kafka.peer import fetched
from benchmarks.processes import Command, free_port

VERSION = "1.6.14"
_POM = Path(__file__).with_name("pom.xml")
_JVM = ("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC")
_LOGBACK = '<configuration><root level="WARN"/></configuration>'


def install(cache: Path) -> Path:
    """The directory with its jars, fetched on the first call."""
    return fetched(cache / f"elasticmq-{VERSION}" / "libs", f"elasticmq-server_2.13-{VERSION}.jar", _POM, f"ElasticMQ {VERSION}")


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
