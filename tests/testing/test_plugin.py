"""The pytest fixtures, as a project of somebody else finds them: by installing Penstock, and nothing more.

Each run of pytest is a process with a node of its own or two, so a run shows several things.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from cli.running import clean_environment
from waiting import PATIENCE_S

TESTS = f"""
import os
import pytest
from penstock.client import Consumer, Producer

seen = []

def note(node):
    with open(os.environ["NODES"], "a") as nodes:
        nodes.write(f"{{os.getpid()}} {{node.pid}} {{node.directory}}\\n")

@pytest.mark.parametrize("name", ["a", "b / c: ä"])
def test_a_fresh_topic(penstock_broker, penstock_topic, name):
    note(penstock_broker)
    assert penstock_topic not in seen
    seen.append(penstock_topic)
    with Producer(penstock_broker.bootstrap) as producer:
        assert producer.send(topic=penstock_topic, value=b"v").result({PATIENCE_S}).offset == 0
    with Consumer(topics=[penstock_topic], bootstrap=penstock_broker.bootstrap) as consumer:
        assert [message.value for message in consumer.poll(timeout={PATIENCE_S})] == [b"v"]

def test_the_same_node(penstock_broker):
    note(penstock_broker)
"""
FAILS = """
def test_that_fails(penstock_broker):
    assert False
"""
SETTINGS = """
import pytest

@pytest.fixture(scope="session")
def penstock_settings():
    return {"num_partitions": 5, "flush": "os"}
"""
WITH_SETTINGS = f"""
import os
from penstock.client import Consumer, Producer

def test_it(penstock_broker):
    with open(os.environ["NODES"], "a") as nodes:
        nodes.write(f"{{os.getpid()}} {{penstock_broker.pid}} {{penstock_broker.directory}}\\n")
    with Producer(penstock_broker.bootstrap) as producer:
        producer.send(topic="made", value=b"v")
    with Consumer(topics=["made"], bootstrap=penstock_broker.bootstrap) as consumer:
        consumer.poll(timeout={PATIENCE_S})
        assert len(consumer.assignment()) == 5

def test_that_is_interrupted(penstock_broker):
    raise KeyboardInterrupt
"""


@dataclass(frozen=True)
class Run:
    code: int
    said: str
    nodes: dict[str, set[tuple[str, Path]]]  # By process of the run: the nodes that its tests saw, and their directories.

    def left_nothing(self) -> bool:
        every = set().union(*self.nodes.values())
        return bool(every) and not any(Path(f"/proc/{pid}").exists() or directory.exists() for pid, directory in every)


def run(project: Path, *arguments: str, **files: str) -> Run:
    """Runs pytest in a project of these files; `test_mine` is test_mine.py."""
    for name, content in files.items():
        (project / f"{name}.py").write_text(content)
    told = project / "nodes"
    told.touch()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *arguments]
    environment = clean_environment({"NODES": str(told)})
    ended = subprocess.run(command, cwd=project, capture_output=True, text=True, env=environment, check=False)
    nodes: dict[str, set[tuple[str, Path]]] = {}
    for line in told.read_text().splitlines():
        tester, node, directory = line.split(" ", 2)
        nodes.setdefault(tester, set()).add((node, Path(directory)))
    return Run(ended.returncode, ended.stdout + ended.stderr, nodes)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A project without any settings; its last test fails."""
    return run(tmp_path_factory.mktemp("plain"), test_mine=TESTS + FAILS)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A project with settings of its own; its last test is interrupted."""
    return run(tmp_path_factory.mktemp("settings"), conftest=SETTINGS, test_mine=WITH_SETTINGS)


def test_a_project_gets_a_node_and_fresh_topics_without_importing_anything(plain: Run):
    assert "3 passed" in plain.said and "test_that_fails" in plain.said, plain.said
    (nodes,) = plain.nodes.values()
    assert len(nodes) == 1


def test_side_by_side_every_worker_has_a_node_of_its_own(tmp_path: Path):
    ended = run(tmp_path, "-n", "2", "--dist", "loadfile", test_mine=TESTS, test_more=TESTS)
    assert "6 passed" in ended.said, ended.said
    assert [len(nodes) for nodes in ended.nodes.values()] == [1, 1]
    assert len(set.union(*ended.nodes.values())) == 2
    assert ended.left_nothing()


def test_a_project_may_start_the_node_with_its_own_settings(interrupted: Run):
    assert "1 passed" in interrupted.said and "KeyboardInterrupt" in interrupted.said, interrupted.said


def test_a_run_that_ends_badly_leaves_no_node(plain: Run, interrupted: Run):
    assert (plain.code, interrupted.code) == (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)
    assert plain.left_nothing() and interrupted.left_nothing()


def test_a_run_that_asks_for_no_node_starts_none(tmp_path: Path):
    loaded = "[name for name in sys.modules if name.startswith('penstock.')]"
    ended = run(
        tmp_path,
        test_mine=f"import sys\n\ndef test_it():\n    assert sorted({loaded}) == ['penstock.testing', 'penstock.testing.plugin']\n",
    )
    assert "1 passed" in ended.said, ended.said


def test_pytest_lists_the_fixtures_with_what_they_are(tmp_path: Path):
    told = run(tmp_path, "--fixtures").said
    for name in ("penstock_broker", "penstock_topic", "penstock_settings"):
        assert name in told
    assert "A real Penstock node" in told
