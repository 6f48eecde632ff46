"""A Spark standalone cluster from the pip package: a master and workers, each a process of its own, without anything of Penstock."""

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ports import free_port
from spark_home import JAVA_OPTIONS
from waiting import PATIENCE_S, until

PACKAGE = "org.apache.spark.deploy"


@contextmanager
def standalone_cluster(home: Path, directory: Path, workers: int = 2) -> Iterator[str]:
    """The master's address, once all workers are registered. One core and a gigabyte each."""
    port, page = free_port(), free_port()
    address = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        ports = ["--port", str(port), "--webui-port", str(page)]
        stack.enter_context(_daemon(home, directory / "master.log", f"{PACKAGE}.master.Master", *ports))
        for number in range(workers):
            work = directory / f"worker-{number}"
            arguments = ["-c", "1", "-m", "1g", "--webui-port", "0", "-d", str(work), address]
            stack.enter_context(_daemon(home, directory / f"worker-{number}.log", f"{PACKAGE}.worker.Worker", *arguments))
        _wait_for_workers(page, workers)
        yield address


def bare_environment(home: Path) -> dict[str, str]:
    """Without any virtual environment: what a cluster's machine has is the system's Python, Java and Spark."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "JAVA_HOME", "HOME", "TMPDIR", "LANG")}
    places = [place for place in kept["PATH"].split(os.pathsep) if not Path(place, "activate").exists()]
    spark = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LAUNCHER_OPTS": JAVA_OPTIONS}
    return kept | spark | {"PATH": os.pathsep.join(places)}


@contextmanager
def _daemon(home: Path, log: Path, main: str, *arguments: str) -> Iterator[None]:
    command = [str(home / "bin" / "spark-class"), main, "--host", "127.0.0.1", *arguments]
    environment = bare_environment(home) | {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment, cwd=log.parent)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for_workers(page: int, count: int) -> None:
    until(lambda: _alive_workers(page) >= count, "the cluster has its workers", every_s=0.2)


def _alive_workers(page: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{page}/json/", timeout=PATIENCE_S) as answer:
            return int(json.load(answer)["aliveworkers"])
    except (OSError, ValueError):
        return 0
