"""The pytest fixtures, as a project of somebody else finds them: by installing Penstock, and nothing more."""

import subprocess
import sys
from pathlib import Path

import pytest
from cli.running import clean_environment

TESTS = '''
import os
import pytest
from penstock.client import Consumer, Producer

seen = []

@pytest.mark.parametrize("name", ["a", "b / c: ä"])
def test_a_fresh_topic(penstock_broker, penstock_topic, name):
    assert penstock_topic not in seen
    seen.append(penstock_topic)
    with Producer(penstock_broker.bootstrap) as producer:
        assert producer.send(topic=penstock_topic, value=b"v").result(30).offset == 0
    with Consumer(topics=[penstock_topic], bootstrap=penstock_broker.bootstrap) as consumer:
        assert [message.value for message in consumer.poll(timeout=30)] == [b"v"]
    with open(os.environ["NODES"], "a") as nodes:
        nodes.write(f"{os.getpid()} {penstock_broker.pid} {penstock_broker.directory}\\n")

def test_the_same_node(penstock_broker):
    with open(os.environ["NODES"], "a") as nodes:
        nodes.write(f"{os.getpid()} {penstock_broker.pid} {penstock_broker.directory}\\n")
'''


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *arguments]
    environment = clean_environment({"NODES": str(project / "nodes")})
    return subprocess.run(command, cwd=project, capture_output=True, text=True, env=environment, timeout=150, check=False)


def nodes_of(project: Path) -> dict[str, set[tuple[str, str]]]:
    """By process of the run: the nodes that its tests saw."""
    seen: dict[str, set[tuple[str, str]]] = {}
    for line in (project / "nodes").read_text().splitlines():
        tester, node, directory = line.split(" ", 2)
        seen.setdefault(tester, set()).add((node, directory))
    return seen


def test_a_project_gets_a_node_and_fresh_topics_without_importing_anything(tmp_path: Path):
    (tmp_path / "test_mine.py").write_text(TESTS)
    ended = run(tmp_path)
    assert "3 passed" in ended.stdout, ended.stdout + ended.stderr
    (nodes,) = nodes_of(tmp_path).values()
    ((node, directory),) = nodes
    assert not Path(f"/proc/{node}").exists()
    assert not Path(directory).exists()


def test_side_by_side_every_worker_has_a_node_of_its_own(tmp_path: Path):
    (tmp_path / "test_mine.py").write_text(TESTS)
    (tmp_path / "test_more.py").write_text(TESTS)
    ended = run(tmp_path, "-n", "2", "--dist", "loadfile")
    assert "6 passed" in ended.stdout, ended.stdout + ended.stderr
    seen = nodes_of(tmp_path)
    assert [len(nodes) for nodes in seen.values()] == [1, 1]
    assert len(set.union(*seen.values())) == 2


def test_a_project_may_start_the_node_with_its_own_settings(tmp_path: Path):
    (tmp_path / "conftest.py").write_text(
        "import pytest\n\n@pytest.fixture(scope='session')\ndef penstock_settings():\n    return {'num_partitions': 5, 'flush': 'os'}\n"
    )
    (tmp_path / "test_mine.py").write_text(
        "from penstock.client import Consumer, Producer\n\n"
        "def test_it(penstock_broker):\n"
        "    with Producer(penstock_broker.bootstrap) as producer:\n"
        "        producer.send(topic='made', value=b'v')\n"
        "    with Consumer(topics=['made'], bootstrap=penstock_broker.bootstrap) as consumer:\n"
        "        consumer.poll(timeout=30)\n"
        "        assert len(consumer.assignment()) == 5\n"
    )
    ended = run(tmp_path)
    assert "1 passed" in ended.stdout, ended.stdout + ended.stderr


def test_a_run_that_asks_for_no_node_starts_none(tmp_path: Path):
    loaded = "[name for name in sys.modules if name.startswith('penstock.')]"
    (tmp_path / "test_mine.py").write_text(
        f"import sys\n\ndef test_it():\n    assert sorted({loaded}) == ['penstock.testing', 'penstock.testing.plugin']\n"
    )
    ended = run(tmp_path)
    assert "1 passed" in ended.stdout, ended.stdout + ended.stderr


def test_pytest_lists_the_fixtures_with_what_they_are(tmp_path: Path):
    told = run(tmp_path, "--fixtures").stdout
    for name in ("penstock_broker", "penstock_topic", "penstock_settings"):
        assert name in told
    assert "A real Penstock node" in told


@pytest.mark.parametrize("test", ["def test_it(penstock_broker): raise KeyboardInterrupt", "def test_it(penstock_broker): assert False"])
def test_a_run_that_ends_badly_leaves_no_node(tmp_path: Path, test: str):
    note = "    with open('node', 'w') as file: file.write(f'{penstock_broker.pid} {penstock_broker.directory}')\n"
    head, _, body = test.partition(": ")
    (tmp_path / "test_mine.py").write_text(f"{head}:\n{note}    {body}\n")
    assert run(tmp_path).returncode in (1, 2)
    pid, directory = (tmp_path / "node").read_text().split(" ", 1)
    assert not Path(f"/proc/{pid}").exists()
    assert not Path(directory).exists()
