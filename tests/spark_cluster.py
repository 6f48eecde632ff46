"""A Spark standalone cluster from the pip package: a master and workers, each a process of its own, without anything of Penstock."""

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ports import free_port

READY_SECONDS_MAX = 90.0
PACKAGE = "org.apache.spark.deploy"


def spark_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


@contextmanager
def standalone_cluster(directory: Path, workers: int = 2) -> Iterator[str]:
    """The master's address, once all workers are registered. One core and a gigabyte each."""
    port, page = free_port(), free_port()
    address = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        stack.enter_context(_daemon(directory / "master.log", f"{PACKAGE}.master.Master", "--port", str(port), "--webui-port", str(page)))
        for number in range(workers):
            work = directory / f"worker-{number}"
            arguments = ["-c", "1", "-m", "1g", "--webui-port", "0", "-d", str(work), address]
            stack.enter_context(_daemon(directory / f"worker-{number}.log", f"{PACKAGE}.worker.Worker", *arguments))
        _wait_for_workers(page, workers)
        yield address


def bare_environment() -> dict[str, str]:
    """Without any virtual environment: what a cluster's machine has is the system's Python, Java and Spark."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "JAVA_HOME", "HOME", "TMPDIR", "LANG")}
    places = [place for place in kept["PATH"].split(os.pathsep) if not Path(place, "activate").exists()]
    return kept | {"PATH": os.pathsep.join(places), "SPARK_HOME": str(spark_home()), "SPARK_LOCAL_IP": "127.0.0.1"}


@contextmanager
def _daemon(log: Path, main: str, *arguments: str) -> Iterator[None]:
    command = [str(spark_home() / "bin" / "spark-class"), main, "--host", "127.0.0.1", *arguments]
    environment = bare_environment() | {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment, cwd=log.parent)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for_workers(page: int, count: int) -> None:
    deadline = time.monotonic() + READY_SECONDS_MAX
    while _alive_workers(page) < count:
        assert time.monotonic() < deadline, "the cluster's workers do not come"
        time.sleep(0.2)


def _alive_workers(page: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{page}/json/", timeout=5) as answer:
            return int(json.load(answer)["aliveworkers"])
    except (OSError, ValueError):
        return 0
