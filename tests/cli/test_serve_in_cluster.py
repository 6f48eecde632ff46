"""`penstock serve` as one of several: what it says while it waits, how it ends then, and what a node that only votes opens."""

import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli.running import PENSTOCK, clean_environment, penstock
from ports import free_port

SECRET = "a secret of sixteen letters and more"
SAID_SECONDS_MAX = 40


class Served:
    """A process of one node, and what it says."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process = process
        self._log = log

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_for(self, words: str) -> str:
        deadline = time.monotonic() + SAID_SECONDS_MAX
        while (found := re.search(words, self.said())) is None:
            assert time.monotonic() < deadline and self.process.poll() is None, self.said()
            time.sleep(0.05)
        return found[0]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@contextmanager
def serving(directory: Path, node_id: int, voters: str, *arguments: str) -> Iterator[Served]:
    command = [*PENSTOCK, "serve", "--data-dir", str(directory / f"data-{node_id}"), "--node-id", str(node_id), "--http", "off"]
    command += ["--cluster-id", "tried", "--voters", voters, "--kafka", f"127.0.0.1:{free_port()}", *arguments]
    log = directory / f"log-{node_id}"
    with log.open("wb") as said:
        environment = clean_environment({"PENSTOCK_CLUSTER_SECRET": SECRET})
        process = subprocess.Popen(command, stdout=said, stderr=said, env=environment)
    try:
        yield Served(process, log)
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def ports() -> Sequence[int]:
    return [free_port() for _ in range(3)]


def voters_at(ports: Sequence[int]) -> str:
    return ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in enumerate(ports, start=1))


def test_a_node_that_waits_for_others_says_for_whom_and_can_be_stopped(tmp_path: Path, ports: Sequence[int]):
    with serving(tmp_path, 1, voters_at(ports)) as node:
        said = node.wait_for("waiting for a controller: .*")
        assert said == f"waiting for a controller: 1 of 3 voters answer (2@127.0.0.1:{ports[1]}, 3@127.0.0.1:{ports[2]} do not)"
        assert node.stop() == 0
        assert "penstock ready" not in node.said()
        assert "Traceback" not in node.said()
        assert SECRET not in node.said()


def test_two_of_three_are_enough_and_one_that_only_votes_serves_no_clients(tmp_path: Path, ports: Sequence[int]):
    voters = voters_at(ports)
    with serving(tmp_path, 1, voters) as broker, serving(tmp_path, 2, voters, "--roles", "controller") as witness:
        assert re.search(rf"kafka=127\.0\.0\.1:\d+ .* node=1 peers=127\.0\.0\.1:{ports[0]}\n", broker.wait_for("penstock ready .*\n"))
        assert " kafka=off " in witness.wait_for("penstock ready .*\n")
        assert witness.stop() == 0
        assert broker.stop() == 0
        for node in (broker, witness):
            assert "Traceback" not in node.said()


def test_a_node_with_another_secret_is_not_let_in_and_neither_secret_is_told(tmp_path: Path, ports: Sequence[int]):
    (tmp_path / "other.secret").write_text("quite another secret, and long enough")
    (tmp_path / "other.secret").chmod(0o600)
    voters = voters_at(ports)
    with serving(tmp_path, 1, voters) as node:
        node.wait_for("waiting for a controller")
        command = [*PENSTOCK, "serve", "--data-dir", str(tmp_path / "data-2"), "--node-id", "2", "--http", "off", "--cluster-id", "tried"]
        command += ["--voters", voters, "--kafka", f"127.0.0.1:{free_port()}", "--cluster-secret-file", str(tmp_path / "other.secret")]
        with (tmp_path / "log-2").open("wb") as said:
            process = subprocess.Popen(command, stdout=said, stderr=said, env=clean_environment())
        try:
            other = Served(process, tmp_path / "log-2")
            node.wait_for("was not let in at the nodes' listener")
            other.wait_for("waiting for a controller: 1 of 3 voters answer")
            for said_text in (node.said(), other.said()):
                assert "another secret" not in said_text and SECRET not in said_text
        finally:
            process.kill()
            process.wait()


def test_a_directory_of_another_cluster_is_refused(tmp_path: Path, ports: Sequence[int]):
    with serving(tmp_path, 1, f"1@127.0.0.1:{ports[0]}") as node:
        node.wait_for("penstock ready")
        assert node.stop() == 0
    command = ["serve", "--data-dir", str(tmp_path / "data-1"), "--cluster-id", "other", "--voters", f"1@127.0.0.1:{ports[0]}"]
    ended = penstock(*command, "--http", "off", "--kafka", f"127.0.0.1:{free_port()}", environment={"PENSTOCK_CLUSTER_SECRET": SECRET})
    assert (ended.code, "cluster" in ended.err, "Traceback" in ended.err) == (1, True, False)


def test_voters_without_a_secret_are_refused_before_anything_is_made(tmp_path: Path):
    ended = penstock("serve", "--data-dir", str(tmp_path / "data"), "--cluster-id", "c", "--voters", "1@127.0.0.1:9093")
    assert ended.code == 2
    assert ended.err.startswith("penstock: --voters without a cluster secret: nodes trust each other by it\n  make one and give every node")
    assert not (tmp_path / "data").exists()
