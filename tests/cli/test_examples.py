"""The examples run as their first lines say."""

import subprocess
import sys
from pathlib import Path

from cli.running import clean_environment
from system import harness

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_demo_reads_back_all_that_it_wrote():
    told = run("demo.py")
    assert "All 10 came back" in told
    assert "stopped cleanly (exit code 0)" in told


def test_an_unchanged_client_writes_and_reads(node: harness.Node):
    lines = run("confluent_client.py", node.bootstrap).splitlines()
    assert len([line for line in lines if line.startswith("written")]) == 5
    assert sorted(line for line in lines if line.startswith("read")) == [f"read     k{number} = hello {number}" for number in range(5)]


def test_every_example_is_run_here():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {"demo.py", "confluent_client.py"}
