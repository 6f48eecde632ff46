"""`penstock serve` as one of several: what it says while it waits, how it ends then, and what a node that only votes opens."""

import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli.running import Started, penstock, started
from ports import free_port
from waiting import until

SECRET = "a secret of sixteen letters and more"
NODES_READY = r"penstock ready kafka=(\S+) .* node=(\d+) peers=(\S+)\n"


def wait_for(node: Started, words: str) -> str:
    """Until the node has said this on its standard error."""

    def said() -> "re.Match[str] | None":
        assert node.process.poll() is None, node.err()
        return re.search(words, node.err())

    found = until(said, node.err)
    assert found is not None
    return found[0]


def stop(node: Started) -> None:
    node.process.send_signal(signal.SIGTERM)
    code, out, err = node.end()
    assert code == 0, err
    assert "Traceback" not in err
    assert SECRET not in out + err


@contextmanager
def serving(directory: Path, node_id: int, voters: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[Started]:
    command = ["serve", "--data-dir", str(directory / f"data-{node_id}"), "--node-id", str(node_id), "--http", "off"]
    command += ["--cluster-id", "tried", "--voters", voters, "--kafka", f"127.0.0.1:{free_port()}", *arguments]
    environment = {"PENSTOCK_CLUSTER_SECRET": SECRET} if environment is None else environment
    with started(*command, errors=directory / f"errors-{node_id}", environment=environment) as node:
        yield node


@pytest.fixture
def ports() -> Sequence[int]:
    return [free_port() for _ in range(3)]


def ready_line(node: Started) -> tuple[str, str, str]:
    """Where it serves clients, who it is, and where it listens for the others; waits until it is ready."""
    line = node.out.readline()
    ready = re.fullmatch(NODES_READY, line)
    assert ready is not None, line or node.err()
    return ready[1], ready[2], ready[3]


def voters_at(ports: Sequence[int]) -> str:
    return ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in enumerate(ports, start=1))


def test_a_node_that_waits_for_others_says_for_whom_and_can_be_stopped(tmp_path: Path, ports: Sequence[int]):
    with serving(tmp_path, 1, voters_at(ports)) as node:
        said = wait_for(node, "waiting for a controller: .*")
        assert said == f"waiting for a controller: 1 of 3 voters answer (2@127.0.0.1:{ports[1]}, 3@127.0.0.1:{ports[2]} do not)"
        node.process.send_signal(signal.SIGTERM)
        code, out, err = node.end()
    assert (code, out) == (0, ""), "it was never ready"
    assert "Traceback" not in err
    assert SECRET not in err


def test_two_of_three_are_enough_and_one_that_only_votes_serves_no_clients(tmp_path: Path, ports: Sequence[int]):
    voters = voters_at(ports)
    with serving(tmp_path, 1, voters) as broker, serving(tmp_path, 2, voters, "--roles", "controller") as witness:
        kafka, node_id, peers = ready_line(broker)
        assert re.fullmatch(r"127\.0\.0\.1:\d+", kafka)
        assert (node_id, peers) == ("1", f"127.0.0.1:{ports[0]}")
        kafka, node_id, _ = ready_line(witness)
        assert (kafka, node_id) == ("off", "2")
        stop(broker)
        stop(witness)


def test_a_node_with_another_secret_is_not_let_in_and_neither_secret_is_told(tmp_path: Path, ports: Sequence[int]):
    other_secret = tmp_path / "other.secret"
    other_secret.write_text("quite another secret, and long enough")
    other_secret.chmod(0o600)
    voters, by_file = voters_at(ports), ["--cluster-secret-file", str(other_secret)]
    with serving(tmp_path, 1, voters) as node, serving(tmp_path, 2, voters, *by_file, environment={}) as other:
        wait_for(node, "was not let in at the nodes' listener")
        wait_for(other, "waiting for a controller: 1 of 3 voters answer")
        for said in (node.err(), other.err()):
            assert "another secret" not in said and SECRET not in said


def test_a_directory_of_another_cluster_is_refused(tmp_path: Path, ports: Sequence[int]):
    with serving(tmp_path, 1, f"1@127.0.0.1:{ports[0]}") as node:
        ready_line(node)
        stop(node)
    command = ["serve", "--data-dir", str(tmp_path / "data-1"), "--cluster-id", "other", "--voters", f"1@127.0.0.1:{ports[0]}"]
    ended = penstock(*command, "--http", "off", "--kafka", f"127.0.0.1:{free_port()}", environment={"PENSTOCK_CLUSTER_SECRET": SECRET})
    assert (ended.code, "cluster" in ended.err, "Traceback" in ended.err) == (1, True, False)


def test_voters_without_a_secret_are_refused_before_anything_is_made(tmp_path: Path):
    ended = penstock("serve", "--data-dir", str(tmp_path / "data"), "--cluster-id", "c", "--voters", "1@127.0.0.1:9093")
    assert ended.code == 2
    assert ended.err.startswith("penstock: --voters without a cluster secret: nodes trust each other by it\n  make one and give every node")
    assert not (tmp_path / "data").exists()
