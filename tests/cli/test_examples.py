"""The examples run as their first lines say."""

import re
import subprocess
import sys
from pathlib import Path

from cli.running import clean_environment, succeed
from system import harness
from waiting import until

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_demo_reads_back_all_that_it_wrote():
    told = run("demo.py", "--without-pipeline")
    assert "All 10 came back" in told
    assert "stopped cleanly (exit code 0)" in told


def test_the_demo_says_what_a_pipeline_would_need(node: harness.Node, tmp_path: Path):
    """Without Java; tests/pipeline plays it with."""
    command = [sys.executable, str(EXAMPLES / "demo_pipeline.py"), node.bootstrap]
    environment = clean_environment() | {"PATH": str(tmp_path), "JAVA_HOME": ""}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "The data pipeline is left out" in ended.stdout and ("apt-get install" in ended.stdout or "pip install" in ended.stdout)


def test_an_unchanged_client_writes_and_reads(node: harness.Node):
    lines = run("confluent_client.py", node.bootstrap).splitlines()
    assert len([line for line in lines if line.startswith("written")]) == 5
    assert sorted(line for line in lines if line.startswith("read")) == [f"read     k{number} = hello {number}" for number in range(5)]


def test_the_python_producer_writes_and_a_group_reads_each_order_once(node: harness.Node):
    succeed("topics", "create", "orders", "--partitions", "3", "--bootstrap", node.bootstrap)
    assert len(run("producer.py", node.bootstrap).splitlines()) == 6
    had: list[str] = []

    def read_on() -> str:
        """A run ends when nothing has come for a second, which may be too short to join and to read everything."""
        told = run("consumer.py", node.bootstrap, "1")
        had.extend(line for line in told.splitlines() if " had " in line)
        return told

    until(lambda: read_on() and len(had) >= 6, lambda: str(had))
    until(lambda: read_on() == "nothing more for now from 3 partitions\n", "what was committed does not come again")
    assert sorted(re.findall(r"(\w+) had (.+)", "\n".join(had))) == sorted([
        ("alice", "2 coffees"), ("alice", "1 water"), ("alice", "the bill"),
        ("bob", "1 tea"), ("bob", "1 scone"), ("carol", "3 croissants"),
    ])  # fmt: skip
    assert [line.split(" had ")[1] for line in had if "alice" in line] == ["2 coffees", "1 water", "the bill"]


def test_one_event_loop_writes_and_reads(node: harness.Node):
    lines = run("asyncio_client.py", node.bootstrap).splitlines()
    written = [f"written tick {number} at offset {number + 1}" for number in range(20)]
    assert [line for line in lines if line.startswith("written")] == written
    assert [line for line in lines if "read    tick" in line] == [f"read    tick {number}" for number in range(20)]


def test_the_tests_of_the_example_pass():
    plugins = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "--rootdir", str(EXAMPLES), str(EXAMPLES / "in_tests.py")]
    ended = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), cwd=EXAMPLES, check=False)
    assert "3 passed" in ended.stdout, ended.stdout + ended.stderr


def test_every_example_is_run_here():
    names = {"demo.py", "demo_pipeline.py", "confluent_client.py", "producer.py", "consumer.py", "asyncio_client.py", "in_tests.py"}
    assert {path.name for path in EXAMPLES.glob("*.py")} == names
