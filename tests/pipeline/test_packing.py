"""A packed environment: it runs where it is unpacked, with the compiled parts, and without anything of where it was made."""

import subprocess
import tarfile
from pathlib import Path

import pytest
from job_runs import SHOP
from pipeline_topics import Topics
from spark_cluster import bare_environment, standalone_cluster
from spark_home import JAVA_OPTIONS, cluster_home

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.packing import pack
from penstock.testing.brokers import Broker

LOOK = """
import importlib.util, sys
import pyarrow, penstock.wire.columns, penstock.wire.records
assert importlib.util.find_spec("pyspark_penstock"), "the format is found by this name"
assert importlib.util.find_spec("pyspark") is None, "Spark is the cluster's"
assert importlib.util.find_spec("pytest") is None, "nobody asked for it"
print(penstock.wire.columns.__file__, penstock.wire.columns.COMPILED, pyarrow.__file__)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the archive, and with `environment`, which it was unpacked to."""
    made = tmp_path_factory.mktemp("packed")
    archive = pack(made / "environment.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(made / "environment", filter="fully_trusted")  # The interpreter is a link to outside.
    return made


@pytest.mark.needs("spark")
def test_a_packed_environment_runs_where_it_is_unpacked(place: Path, tmp_path: Path) -> None:
    from penstock.wire.columns import COMPILED

    there = place / "environment"
    python = there / "bin" / "python"
    asked = subprocess.run([python, "-c", LOOK], capture_output=True, text=True, check=False, cwd=tmp_path, env={})
    assert asked.returncode == 0, asked.stderr
    columns, is_compiled, arrow = asked.stdout.split()
    assert Path(columns).is_relative_to(there)
    assert Path(arrow).is_relative_to(there)
    assert is_compiled == str(COMPILED)
    told = subprocess.run([python, there / "submit.py", "--version"], capture_output=True, text=True, check=False, cwd=tmp_path, env={})
    assert "penstock" in told.stdout, told.stderr
    assert sorted(file.name for file in place.iterdir()) == ["environment", "environment.tar.gz"]


@pytest.mark.needs("spark")
@pytest.mark.paired
def test_a_packed_environment_runs_a_job_on_a_cluster(place: Path, node: Broker, topics: Topics, tmp_path: Path) -> None:
    """The guide's command: a master and a worker, each a process, have no Penstock, and the environment has no Spark."""
    (tmp_path / "shop.py").write_text(SHOP)
    raw = topics.create()
    topics.write(raw, [(b"k", b"hello"), (None, b"world")])
    home = cluster_home(tmp_path)
    with standalone_cluster(home, tmp_path, workers=1) as master:
        command = [
            home / "bin" / "spark-submit", "--master", master, "--archives", "environment.tar.gz#environment",
            "--executor-memory", "512m", "--driver-memory", "768m", "--driver-java-options", JAVA_OPTIONS,
            "--conf", f"spark.executor.extraJavaOptions={JAVA_OPTIONS}", "environment/submit.py",
            "pipeline", "run", "shop:JOB", "--once", "--bootstrap", node.bootstrap,
            "--checkpoints", tmp_path / "checkpoints", "--directory", tmp_path / "state", "--set", f"raw={raw}",
        ]  # fmt: skip
        environment = bare_environment(home) | {"PYSPARK_PYTHON": "./environment/bin/python", "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(list(map(str, command)), cwd=place, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-4_000:] + done.stdout[-2_000:]
    assert [(record.key, record.value) for record in topics.read(f"{raw}.loud")] == [(b"k", b"HELLO"), (None, b"WORLD")]
    unpacked = tmp_path.glob("worker-0/app-*/*/environment/bin/python")
    assert len(list(unpacked)) == 1, "the worker had an executor, with an environment of its own"


def test_a_package_that_is_not_there_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(PipelineComplaint, match="'no-such-thing' is not installed here"):
        pack(tmp_path / "environment.tar.gz", also=["no-such-thing"])
    assert list(tmp_path.iterdir()) == []
