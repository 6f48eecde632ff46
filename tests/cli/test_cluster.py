"""`penstock cluster` against a cluster of real processes that it started itself.

The stories share one cluster and leave it well; each says what it needs of it.
"""

import json
import re
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.running import Ended, penstock, succeed
from ports import free_ports_in_a_row
from waiting import NEVER_MS, PATIENCE_S, until

from penstock.cli.cluster_voters import meaning_of
from penstock.cli.local_cluster import LocalCluster

pytestmark = pytest.mark.paired

NOT_WELL = 4
LOOK_S = 0.1  # Between two looks by a command.
SETTINGS = {
    "leader.imbalance.check.interval.seconds": 3_600,
    "broker.session.timeout.ms": NEVER_MS,  # That a node stalls must not fence it. One whose process ends is missed by its connection.
}


class Cluster:
    """A local cluster as a person at a shell has it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.told = ""  # What starting it printed.

    def start(self, *arguments: str) -> None:
        self.told = self.succeed("start", *arguments)
        self.commands = {node.pid: Path(f"/proc/{node.pid}/cmdline").read_text().split("\0") for node in self.local.nodes.values()}

    def run(self, command: str, *arguments: str) -> Ended:
        return penstock("cluster", command, *arguments, "--data-dir", str(self.directory))

    def succeed(self, command: str, *arguments: str) -> str:
        ended = self.run(command, *arguments)
        assert ended.code == 0, ended.out + ended.err
        return ended.out

    def status(self, *arguments: str) -> dict[str, Any]:
        ended = self.run("status", "--json", *arguments)
        assert ended.code in (0, NOT_WELL), ended.err
        told: dict[str, Any] = json.loads(ended.out)
        assert told["is_well"] == (ended.code == 0)
        return told

    def become_well(self) -> dict[str, Any]:
        told = self.status("--wait", str(PATIENCE_S))
        assert told["is_well"], told["troubles"]
        return told

    def note(self, *notes: str) -> dict[str, Any]:
        """Waits until it is well and has these notes and no others: a busy node may not tell of its disk in time, and that is noted."""
        told: dict[str, Any] = {}

        def is_noted() -> bool:
            told.update(self.become_well())
            return len(told["notes"]) == len(notes) and all(note in said for note, said in zip(notes, told["notes"], strict=True))

        until(is_noted, lambda: f"it notes {told['notes']}, not {notes}", every_s=LOOK_S)
        return told

    def become_unwell(self, *troubles: str) -> dict[str, Any]:
        """Until it says all of this."""
        told: dict[str, Any] = {}

        def is_said() -> bool:
            told.update(self.status())
            return all(any(trouble in said for said in told["troubles"]) for trouble in troubles)

        until(is_said, lambda: f"it says {told['troubles']}, not {troubles}", every_s=LOOK_S)
        return told

    def penstock(self, *arguments: str, given: str = "") -> str:
        ended = penstock(*arguments, "--bootstrap", self.local.bootstrap, given=given)
        assert ended.code == 0, ended.err
        return ended.out

    def lines(self, topic: str) -> list[tuple[str, ...]]:
        """Leader, Replicas and Isr of each partition."""
        told = self.penstock("topics", "describe", topic)
        return re.findall(r"Leader: (\S+)\tReplicas: (\S+)\tIsr: (\S*)\t", told)

    def until_lines(self, topic: str, *expected: tuple[str, str, str]) -> None:
        """Until the node that is asked has heard of it, which may be a little later than the one that did it."""
        until(lambda: self.lines(topic) == list(expected), lambda: f"{self.lines(topic)} become {expected}", every_s=LOOK_S)

    @property
    def local(self) -> LocalCluster:
        return LocalCluster.load(self.directory)

    def kill(self) -> None:
        local = self.local
        for number in local.nodes:
            local.signal(number, signal.SIGKILL)

    def said(self) -> str:
        return "".join(self.local.log_of(number).read_text(errors="replace") for number in self.local.nodes)


@pytest.fixture
def cluster(started: Cluster) -> Cluster:
    """With every node up, whatever became of the story before."""
    started.succeed("start")
    return started


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("local") / "cluster")
    try:
        settings = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
        cluster.start("--nodes", "3", "--base-port", str(free_ports_in_a_row(5)), *settings)
        yield cluster
        assert "Traceback" not in cluster.said()
    finally:
        if LocalCluster.is_in(cluster.directory):
            cluster.kill()


def read_all(cluster: Cluster, topic: str) -> list[str]:
    return sorted(cluster.penstock("consume", topic).split(), key=int)


def numbers(count: int) -> str:
    return "".join(f"{number}\n" for number in range(count))


# Starting and looking


def test_starting_prints_each_process_and_where_clients_find_them(cluster: Cluster):
    *nodes, queues, last = cluster.told.splitlines()
    local = cluster.local
    first = local.nodes[1].kafka_port
    variable, url = queues.removeprefix("export ").split("=")
    assert url == ",".join(f"http://127.0.0.1:{node.http_port}" for node in local.nodes.values())
    name = f"printed-{first}"
    succeed("queues", "create", name, environment={variable: url})
    succeed("queues", "delete", name, "--yes", environment={variable: url})
    for number, line in enumerate(nodes, start=1):
        pid, port = re.fullmatch(rf"node {number}  process (\d+)  kafka 127.0.0.1:(\d+)  http 127.0.0.1:\d+  started", line).groups()  # type: ignore[union-attr]
        command = cluster.commands[int(pid)]
        assert command[command.index("--node-id") + 1] == str(number)
        assert int(port) == first + number - 1
    assert last == f"bootstrap 127.0.0.1:{first},127.0.0.1:{first + 1},127.0.0.1:{first + 2}"
    assert cluster.succeed("start").count("  was running\n") == 3
    ready = [line for line in cluster.said().splitlines() if line.startswith("penstock ready ")]
    assert len(ready) >= 3 and all(re.search(r" peers=127\.0\.0\.1:\d+$", line) for line in ready)


def test_the_secret_is_told_nowhere(cluster: Cluster):
    secret = cluster.local.secret_file.read_text()
    for node in cluster.local.nodes.values():
        assert secret not in Path(f"/proc/{node.pid}/cmdline").read_text()
        assert secret not in Path(f"/proc/{node.pid}/environ").read_text()
        for path in ("/metrics", "/api/v1/nodes", "/api/v1/quorum"):
            with urllib.request.urlopen(f"http://127.0.0.1:{node.http_port}{path}", timeout=PATIENCE_S) as answer:
                assert secret not in answer.read().decode()
    assert secret not in cluster.penstock("configs", "describe", "node", "1", "--all")
    assert secret not in cluster.said()


def test_the_status_tells_nodes_controller_and_quorum_and_that_all_is_well(cluster: Cluster):
    told = cluster.note()
    assert [row["node"] for row in told["nodes"]] == [1, 2, 3]
    assert {row["state"] for row in told["nodes"]} == {"up"}
    assert sorted(row["votes"] for row in told["nodes"]) == ["leads", "yes", "yes"]
    assert told["controller"] in (1, 2, 3)
    assert (told["quorum"]["majority"], told["quorum"]["voters_to_spare"]) == (2, 1)
    assert all(0 < row["free_bytes"] <= row["total_bytes"] for row in told["nodes"])
    assert (told["partitions"]["damaged"], told["partitions"]["unusual_factor"]) == ([], [])

    def is_told_in_a_table() -> bool:
        controller, table = cluster.become_well()["controller"], cluster.succeed("status", "--wait", str(PATIENCE_S))
        assert table.splitlines()[-1] == "all is well"
        return f"controller node {controller}" in table  # Unless another was elected meanwhile.

    until(is_told_in_a_table)


# Losing and getting back


def test_a_stopped_node_is_missed_in_the_lines_of_kafkas_tool_and_comes_back(cluster: Cluster):
    cluster.penstock("topics", "create", "orders", "--replica-assignment", "1:2,1:2,2:1")
    cluster.until_lines("orders", ("1", "1,2", "1,2"), ("1", "1,2", "1,2"), ("2", "2,1", "2,1"))
    assert cluster.succeed("stop-node", "2") == "node 2 is stopped\n"
    cluster.until_lines("orders", ("1", "1,2", "1"), ("1", "1,2", "1"), ("1", "2,1", "1"))

    def is_told() -> bool:
        ended = cluster.run("status")
        assert ended.code == NOT_WELL
        return {
            "NOT WELL: nodes that are away: 2",
            "partitions: 3, 3 under-replicated, 0 below min.insync.replicas, 0 without a leader, 0 moving",
            "NOT WELL: voters that do not answer: 2",
            "NOT WELL: the loss of one more voter would stop elections (2 of 3 answer)",
        } <= set(ended.out.splitlines())

    until(is_told, lambda: cluster.run("status").out, every_s=LOOK_S)
    under = cluster.penstock("topics", "describe", "--under-replicated-partitions").splitlines()
    assert len(under) == 3 and all("Topic: orders\t" in line for line in under)
    assert re.fullmatch(r"node 2  process \d+\n", cluster.succeed("restart-node", "2"))
    cluster.become_well()
    assert [(leader, replicas) for leader, replicas, _ in cluster.lines("orders")] == [("1", "1,2"), ("1", "1,2"), ("1", "2,1")]
    assert "orders          2       2  yes" in cluster.succeed("elect", "preferred", "--topic", "orders")
    until(lambda: cluster.lines("orders")[2][0] == "2", "node 2 leads again", every_s=LOOK_S)
    assert "every preferred leader leads already" in cluster.succeed("elect", "preferred")
    cluster.penstock("topics", "delete", "orders", "--yes")


def test_a_replaced_node_has_an_empty_disk_another_directory_and_everything_again(cluster: Cluster):
    cluster.penstock("topics", "create", "kept", "--partitions", "2", "--replication-factor", "3", "--config", "min.insync.replicas=2")
    cluster.penstock("produce", "kept", given=numbers(500))
    before = _voters(cluster)
    pid = cluster.local.nodes[2].pid
    ended = cluster.run("replace-node", "2")
    assert ended.code == 0, ended.err
    assert "node 2 does not vote any more" in ended.err and "node 2 votes again" in ended.err
    assert "100 %" in ended.err
    (kept,) = cluster.local.data_of(2).parent.glob("data.replaced-*")
    assert ended.out == f"node 2 is replaced; what it had is in {kept}\n"
    cluster.become_well()
    after = _voters(cluster)
    assert after[2] != before[2]
    assert {node: after[node] for node in (1, 3)} == {node: before[node] for node in (1, 3)}
    assert cluster.local.nodes[2].pid != pid
    assert all("2" in in_sync.split(",") for _, _, in_sync in cluster.lines("kept"))
    assert read_all(cluster, "kept") == numbers(500).split()
    cluster.penstock("topics", "delete", "kept", "--yes")


def test_a_node_that_alone_has_records_is_not_replaced(cluster: Cluster):
    cluster.penstock("topics", "create", "lonely", "--replica-assignment", "2")
    pid = cluster.local.nodes[2].pid
    ended = cluster.run("replace-node", "2")
    assert (ended.code, "only node 2 has everything of 1 partitions, lonely-0 for one" in ended.err) == (1, True)
    assert cluster.local.is_running(2) and cluster.local.nodes[2].pid == pid
    cluster.penstock("topics", "delete", "lonely", "--yes")


def test_killed_nodes_are_told_with_their_votes_and_an_unclean_election_says_what_is_lost(cluster: Cluster):
    cluster.penstock("topics", "create", "torn", "--replica-assignment", "1:2")
    cluster.penstock("produce", "torn", given="0\n")
    refused = cluster.run("elect", "unclean", "--topic", "torn")
    assert (refused.code, "has a leader" in refused.err) == (1, True)
    cluster.succeed("kill-node", "2")
    told = cluster.become_unwell("nodes that are away: 2", "voters that do not answer: 2")
    row = next(row for row in told["nodes"] if row["node"] == 2)
    assert (row["state"], row["votes"]) == ("away", "silent")
    assert "is not running" in cluster.run("kill-node", "2").err
    cluster.until_lines("torn", ("1", "1,2", "1"))
    cluster.penstock("produce", "torn", given="1\n")
    cluster.succeed("kill-node", "1")
    told = cluster.become_unwell("there is no controller")
    assert (told["controller"], {row["votes"] for row in told["nodes"]}) == (None, {"unknown"})
    assert "nobody leads it; 2 of 3 voters must answer each other" in cluster.run("status").out
    cluster.succeed("restart-node", "2")
    cluster.until_lines("torn", ("none", "1,2", ""))
    assert "Elr: 1\t" in cluster.penstock("topics", "describe", "torn", "--unavailable-partitions")
    refused = cluster.run("elect", "unclean", "--topic", "torn")
    assert (refused.code, "may lose acknowledged records of torn-0" in refused.err, "--yes" in refused.err) == (1, True, True)
    assert "acknowledged records that only node 1 had are lost" in cluster.succeed("elect", "unclean", "--topic", "torn", "--yes")
    assert read_all(cluster, "torn") == ["0"]
    assert re.findall(r"(was running|started)\n", cluster.succeed("start")) == ["started", "was running", "was running"]
    cluster.become_well()
    assert read_all(cluster, "torn") == ["0"], "the node that had more has cut it off"
    cluster.penstock("topics", "delete", "torn", "--yes")


# Moving


def test_partitions_are_moved_when_asked_for_and_not_before(cluster: Cluster, tmp_path: Path):
    cluster.penstock("topics", "create", "moved", "--replica-assignment", "1:2,2:1")
    cluster.penstock("produce", "moved", given=numbers(200))
    dry = cluster.succeed("reassign", "--topic", "moved", "--to", "2,3")
    assert "nothing was changed" in dry
    assert [replicas for _, replicas, _ in cluster.lines("moved")] == ["1,2", "2,1"]
    plan = tmp_path / "plan.json"
    plan.write_text(cluster.succeed("reassign", "--topic", "moved", "--to", "2,3", "--print-plan"))
    done = cluster.run("reassign", "--plan", str(plan), "--execute", "--throttle", "100000000")
    assert done.code == 0, done.err
    assert done.out.endswith("done\n") and "100 %" in done.err
    until(lambda: all(sorted(in_sync.split(",")) == ["2", "3"] for _, _, in_sync in cluster.lines("moved")), "2 and 3 are in sync")
    until(lambda: not is_throttled(cluster), "the limit held while the move did")
    assert "everything is there already" in cluster.succeed("reassign", "--plan", str(plan), "--execute")
    assert "nothing is on its way" in cluster.succeed("reassign", "--cancel", "--execute")
    planned = cluster.succeed("rebalance")
    assert re.search(r"^ +1  - +up +0 -> 1 ", planned, re.MULTILINE) and planned.endswith("add --execute to do it\n"), planned
    assert read_all(cluster, "moved") == numbers(200).split()
    plan.write_text('{"version": 1, "partitions": [{"topic": "moved", "partition": 9, "replicas": [1]}]}')
    refused = cluster.run("reassign", "--plan", str(plan), "--execute", "--throttle", "1000")
    assert (refused.code, "moved-9: UNKNOWN_TOPIC_OR_PARTITION" in refused.err) == (1, True)
    until(lambda: not is_throttled(cluster), "no limit is left of a move that was refused")
    refused = cluster.run("reassign", "--topic", "moved", "--to", "2,9")
    assert (refused.code, "there is no node 9" in refused.err) == (1, True)
    cluster.penstock("topics", "delete", "moved", "--yes")


def test_a_node_is_added_filled_drained_and_forgotten(cluster: Cluster):
    told = cluster.succeed("add-node", "--rack", "north")
    address = r"127\.0\.0\.1:\d+"
    assert re.match(rf"node 4  process \d+  kafka {address}  http ({address})\nexport PENSTOCK_URL=.*,http://\1\nbootstrap ", told)
    row = next(row for row in cluster.become_well()["nodes"] if row["node"] == 4)
    assert (row["rack"], row["votes"], row["replicas"]) == ("north", "no", 0)
    assert cluster.succeed("moves") == "nothing is on its way\n"
    cluster.penstock("topics", "create", "wide", "--replica-assignment", "1:4,4:2")
    cluster.penstock("produce", "wide", given=numbers(100))
    assert "nothing was changed" in cluster.succeed("drain", "4")
    assert cluster.succeed("lead", "4", "--topic", "wide", "--partition", "0") == "node 4 leads wide-0\n"
    refused = cluster.run("forget-node", "4")
    assert (refused.code, "still holds 2 partitions" in refused.err) == (1, True)
    assert "node 4 holds nothing" in cluster.succeed("drain", "4", "--execute")
    assert "node 4 is up" in cluster.run("forget-node", "4").err
    cluster.succeed("stop-node", "4")
    assert cluster.succeed("forget-node", "4") == "node 4 is forgotten\n"
    assert "BROKER_ID_NOT_REGISTERED" in cluster.run("forget-node", "4").err
    assert [row["node"] for row in cluster.become_well()["nodes"]] == [1, 2, 3]
    assert list(cluster.local.nodes) == [1, 2, 3]
    assert read_all(cluster, "wide") == numbers(100).split()
    cluster.penstock("topics", "delete", "wide", "--yes")


def test_a_node_that_is_forgotten_by_an_address_leaves_the_file_of_its_cluster(cluster: Cluster):
    number = str(max(cluster.local.nodes) + 1)
    bootstrap, file = cluster.local.bootstrap, cluster.directory / "cluster.json"
    cluster.succeed("add-node")
    cluster.succeed("stop-node", number)
    told = cluster.penstock("cluster", "forget-node", number)
    assert told == f"node {number} is forgotten\nit is taken out of {file}, too; its files stay in {cluster.directory / f'node-{number}'}\n"
    assert list(cluster.local.nodes) == [1, 2, 3]
    assert (cluster.directory / f"node-{number}").is_dir()

    cluster.succeed("add-node")
    cluster.succeed("stop-node", number)
    elsewhere = file.rename(file.with_suffix(".away"))  # As from another machine.
    ended = penstock("cluster", "forget-node", number, "--bootstrap", bootstrap)
    elsewhere.rename(file)
    assert ended.code == 0, ended.err
    assert f"still lists node {number}. There, as its owner: penstock cluster forget-node {number} --data-dir DIR\n" in ended.out
    assert list(cluster.local.nodes) == [1, 2, 3, int(number)]
    assert cluster.succeed("forget-node", number) == f"node {number} is forgotten\n"
    assert list(cluster.local.nodes) == [1, 2, 3]


def test_votes_are_taken_and_given_one_at_a_time(cluster: Cluster):
    assert cluster.succeed("remove-voter", "3") == "node 3 does not vote any more\n"
    until(lambda: sorted(_voters(cluster)) == [1, 2], every_s=LOOK_S)
    cluster.note("there are 2, and three bear the loss of one")
    assert "node 3 does not vote" in cluster.run("remove-voter", "3").err
    assert cluster.succeed("add-voter", "3") == "node 3 votes\n"
    until(lambda: sorted(_voters(cluster)) == [1, 2, 3], every_s=LOOK_S)
    assert "node 3 votes already" in cluster.run("add-voter", "3").err
    assert "does not follow the metadata" in cluster.run("add-voter", "9", "--wait", "0").err


def test_a_node_is_added_with_a_vote_and_told_what_the_number_of_voters_means(cluster: Cluster):
    number = max(cluster.local.nodes) + 1
    ended = cluster.run("add-node", "--voter")
    assert ended.code == 0, ended.err
    assert f"node {number} votes\n4 nodes vote: the loss of 1 of them is borne, as with 3; an even number bears no more" in ended.err
    assert ended.out.splitlines()[-1] == f"bootstrap {cluster.local.bootstrap}"
    assert cluster.local.nodes[number].roles == "broker,controller"
    told = cluster.become_well()
    assert told["quorum"]["voters"] == [1, 2, 3, number]
    assert next(row["votes"] for row in told["nodes"] if row["node"] == number) in ("yes", "leads")
    cluster.succeed("restart-node", str(number))
    cluster.become_well()
    cluster.succeed("remove-voter", str(number))
    cluster.succeed("drain", str(number), "--execute")
    cluster.succeed("stop-node", str(number))
    cluster.succeed("forget-node", str(number))
    assert cluster.become_well()["quorum"]["voters"] == [1, 2, 3]


@pytest.mark.parametrize(
    ("voters", "said"),
    [(1, "loss of none"), (2, "loss of none of them is borne, as with 1"), (3, "loss of 1"), (5, "loss of 2"), (7, "more than 5 make")],
)
def test_the_meaning_of_a_number_of_voters(voters: int, said: str):
    assert said in meaning_of(voters)
    assert ("even number" in meaning_of(voters)) == (voters % 2 == 0)


# Damage


def rot(cluster: Cluster, node: int, value: bytes) -> None:
    """Flips a bit of this record's value in the node's closed segments."""
    (path,) = [path for path in cluster.local.data_of(node).glob("topics/*/0/*.log") if value in path.read_bytes()]
    at = path.read_bytes().index(value)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes([value[0] ^ 1]))


def scrubbed(cluster: Cluster, topic: str) -> tuple[int, dict[str, Any]]:
    ended = cluster.run("scrub", "--topic", topic, "--json")
    assert "100 %" in ended.err, ended.err
    return ended.code, json.loads(ended.out)


def test_damaged_bytes_are_found_mended_and_what_cannot_be_mended_is_named(cluster: Cluster):
    small = ["--config", "segment.bytes=1024"]
    cluster.penstock("topics", "create", "whole", "--replica-assignment", "1:2:3", *small)
    cluster.penstock("topics", "create", "single", "--replica-assignment", "2", *small)
    for topic in ("whole", "single"):
        for letter in "abcdef":
            cluster.penstock("produce", topic, given=f"{topic} {letter * 400}\n")
        cluster.become_well()
        rot(cluster, 2, f"{topic} bbb".encode())
    code, told = scrubbed(cluster, "whole")
    assert (code, told["is_well"], told["copies"], told["damaged"], told["unread"]) == (0, True, 3, [], [])
    assert told["mended"] == [{"topic": "whole", "partition": 0, "node": 2, "offset": 1}]
    code, told = scrubbed(cluster, "single")
    assert (code, told["copies"]) == (NOT_WELL, 1)
    assert [(row["node"], row["offset"], row["next_offset"]) for row in told["damaged"]] == [(2, 1, 2)]
    ended = cluster.run("scrub", "--topic", "single", "--node", "2")
    assert (ended.code, "1       DAMAGED  no other replica is in sync" in ended.out) == (NOT_WELL, True), ended.out
    assert "there is no topic 'none'" in cluster.run("scrub", "--topic", "none").err
    for topic in ("whole", "single"):
        cluster.penstock("topics", "delete", topic, "--yes")


# Ending


def test_a_stopped_cluster_is_started_again_as_it_was(cluster: Cluster):
    cluster.penstock("topics", "create", "lasting", "--replication-factor", "3")
    cluster.penstock("produce", "lasting", given=numbers(50))
    assert cluster.succeed("stop") == "stopped\n"
    assert not any(cluster.local.is_running(number) for number in cluster.local.nodes)
    unreachable = cluster.run("status")
    assert (unreachable.code, "cannot connect" in unreachable.err) == (1, True)
    assert cluster.succeed("start").count("  started\n") == 3
    cluster.become_well()
    assert read_all(cluster, "lasting") == numbers(50).split()


def _voters(cluster: Cluster) -> dict[int, str]:
    """Each with the id of its directory."""
    port = cluster.local.nodes[1].http_port
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/quorum", timeout=PATIENCE_S) as answer:
        return {row["node"]: row["directory_id"] for row in json.load(answer)["voters"]}


def is_throttled(cluster: Cluster) -> bool:
    return "replication.throttled.rate" in cluster.penstock("configs", "describe", "nodes")
