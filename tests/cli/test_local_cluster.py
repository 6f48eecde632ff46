"""What a local cluster writes down, and that it never touches a process that is not its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cli.running import penstock

from penstock.cli.cluster_processes import _new_nodes
from penstock.cli.faults import Fault
from penstock.cli.local_cluster import LocalCluster, _began


@pytest.fixture
def cluster(tmp_path: Path) -> LocalCluster:
    return LocalCluster.found(tmp_path / "cluster", _new_nodes([19_092, 19_093], 1, []), {"num.partitions": "3"})


@pytest.fixture
def stranger() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def test_what_it_is_made_of_is_kept_from_others_and_found_again(cluster: LocalCluster):
    for name in ("cluster.json", "cluster.secret"):
        assert (cluster.directory / name).stat().st_mode & 0o777 == 0o600
    assert LocalCluster.load(cluster.directory) == cluster
    assert len((cluster.directory / "cluster.secret").read_text()) == 64
    assert (cluster.directory / "cluster.secret").read_text() not in (cluster.directory / "cluster.json").read_text()


def test_each_cluster_has_a_secret_and_an_id_of_its_own(tmp_path: Path, cluster: LocalCluster):
    other = LocalCluster.found(tmp_path / "other", dict(cluster.nodes), {})
    assert other.cluster_id != cluster.cluster_id
    assert other.secret_file.read_text() != cluster.secret_file.read_text()


def test_a_node_is_told_of_its_secret_by_a_file_and_never_on_its_command_line(cluster: LocalCluster):
    secret = cluster.secret_file.read_text()
    for node in cluster.nodes.values():
        command = cluster._command(node)
        assert secret not in " ".join(command)
        assert str(cluster.secret_file) in command
        assert ("--kafka" in command) == node.is_broker
        assert "num.partitions=3" in command
        voters = command[command.index("--voters") + 1]
        assert voters == ",".join(f"{each.node_id}@127.0.0.1:{each.peers_port}" for each in cluster.nodes.values())


def test_clients_are_sent_to_brokers_only(cluster: LocalCluster):
    assert cluster.bootstrap == "127.0.0.1:19092,127.0.0.1:19093"
    assert cluster.bootstrap_without(1) == "127.0.0.1:19093"
    assert cluster.queue_url == ",".join(f"http://127.0.0.1:{cluster.nodes[number].http_port}" for number in (1, 2))


def test_a_process_of_somebody_else_with_the_number_of_a_node_is_left_alone(cluster: LocalCluster, stranger: "subprocess.Popen[bytes]"):
    cluster.nodes[1] = replace(cluster.nodes[1], pid=stranger.pid, began="long ago")
    assert not cluster.is_running(1)
    assert not cluster.signal(1, signal.SIGKILL)
    assert stranger.poll() is None


def test_a_process_that_has_ended_is_not_running_even_while_nobody_has_noticed(cluster: LocalCluster, stranger: "subprocess.Popen[bytes]"):
    cluster.nodes[1] = replace(cluster.nodes[1], pid=stranger.pid, began=_began(stranger.pid))
    assert cluster.is_running(1)
    os.kill(stranger.pid, signal.SIGKILL)
    cluster.wait_until_gone(1)
    assert not cluster.is_running(1)


def test_a_directory_without_a_cluster_is_told(tmp_path: Path):
    with pytest.raises(Fault, match="there is no cluster in"):
        LocalCluster.load(tmp_path)
    (tmp_path / "cluster.json").write_text("{}")
    with pytest.raises(Fault, match="cannot be read"):
        LocalCluster.load(tmp_path)
    ended = penstock("cluster", "stop", "--data-dir", str(tmp_path / "none"))
    assert (ended.code, "penstock cluster start --nodes 3 --data-dir" in ended.err) == (1, True)


def test_a_node_that_is_not_there_is_told(cluster: LocalCluster):
    ended = penstock("cluster", "kill-node", "9", "--data-dir", str(cluster.directory))
    assert (ended.code, "its nodes are 1, 2, 3" in ended.err) == (1, True)


def test_a_cluster_that_is_there_is_not_made_anew(cluster: LocalCluster):
    before = json.loads((cluster.directory / "cluster.json").read_text())
    ended = penstock("cluster", "start", "--nodes", "5", "--data-dir", str(cluster.directory))
    assert (ended.code, "holds a cluster already" in ended.err) == (1, True)
    assert json.loads((cluster.directory / "cluster.json").read_text()) == before
