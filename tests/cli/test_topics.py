"""`penstock topics` against a real node."""

import base64
import json
import socket
import threading
from collections import Counter
from contextlib import suppress

from cli.running import penstock, succeed
from system import harness
from waiting import EXPIRES_S


def test_a_topic_is_created_listed_described_and_deleted(node: harness.Node):
    where = ["--bootstrap", node.bootstrap]
    assert succeed("topics", "create", "orders", "--partitions", "3", *where) == "orders has 3 partitions\n"
    assert "orders           3         1" in succeed("topics", "list", *where)
    table = succeed("topics", "describe", "orders", "--offsets", *where).splitlines()
    assert table[1].split() == ["PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN_SYNC", "START", "END"]
    assert [line.split()[0] for line in table[2:]] == ["0", "1", "2"]
    assert succeed("topics", "delete", "orders", "--yes", *where) == "orders is deleted\n"
    assert "orders" not in succeed("topics", "list", *where)


def test_json_carries_the_same(node: harness.Node):
    where = ["--bootstrap", node.bootstrap, "--json"]
    made = json.loads(succeed("topics", "create", "told", "--partitions", "2", *where))
    assert (made["topic"], made["partitions"]) == ("told", 2)
    assert made in json.loads(succeed("topics", "list", *where))
    described = json.loads(succeed("topics", "describe", "told", *where))
    assert described["id"] == made["id"]
    assert [(row["partition"], row["start"], row["end"]) for row in described["partitions"]] == [(0, 0, 0), (1, 0, 0)]


def test_a_topic_is_described_in_the_lines_of_kafkas_tool(node: harness.Node):
    where = ["--bootstrap", node.bootstrap]
    wish = ["--replica-assignment", "1,1", "--config", "retention.ms=60000", "--json"]
    made = json.loads(succeed("topics", "create", "lines", *wish, *where))
    first, *partitions = succeed("topics", "describe", "lines", *where).splitlines()
    spelled_id = base64.urlsafe_b64encode(bytes.fromhex(made["id"])).decode().rstrip("=")
    assert first == f"Topic: lines\tTopicId: {spelled_id}\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: retention.ms=60000"
    assert partitions == [f"\tTopic: lines\tPartition: {index}\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: " for index in (0, 1)]
    assert first in succeed("topics", "describe", *where).splitlines(), "all of them where none is named"
    for only in ("--under-replicated-partitions", "--under-min-isr-partitions", "--unavailable-partitions"):
        assert succeed("topics", "describe", only, *where) == ""
    assert succeed("topics", "describe", "lines", "--at-min-isr-partitions", *where).splitlines() == partitions


def test_an_assignment_of_replicas_is_read_as_kafkas_tool_reads_it(node: harness.Node):
    where = ["--bootstrap", node.bootstrap]
    wrong = penstock("topics", "create", "assigned", "--replica-assignment", "1:x", *where)
    assert (wrong.code, "as in 1:2,1:2,2:1" in wrong.err) == (2, True)
    both = penstock("topics", "create", "assigned", "--replica-assignment", "1", "--partitions", "2", *where)
    assert (both.code, "leave --partitions" in both.err) == (2, True)
    absent = penstock("topics", "create", "assigned", "--replica-assignment", "1:2", *where)
    assert (absent.code, "node 2" in absent.err) == (1, True)


def test_the_bootstrap_address_can_come_from_the_environment_and_under_its_other_name(node: harness.Node):
    assert penstock("topics", "list", environment={"PENSTOCK_BOOTSTRAP": node.bootstrap}).code == 0
    assert penstock("topics", "list", "--bootstrap-server", node.bootstrap).code == 0


def test_a_topic_that_exists_is_refused_unless_that_is_fine(node: harness.Node):
    where = ["--bootstrap", node.bootstrap]
    succeed("topics", "create", "twice", *where)
    again = penstock("topics", "create", "twice", *where)
    assert again.code == 1
    assert again.err.startswith("penstock: create topic 'twice'")
    assert again.err.splitlines()[1].startswith("  ")
    succeed("topics", "create", "twice", "--if-not-exists", *where)


def test_a_topic_setting_that_does_not_exist_is_refused_with_its_name(node: harness.Node):
    ended = penstock("topics", "create", "wrong", "--config", "retention.msec=5", "--bootstrap", node.bootstrap)
    assert ended.code == 1
    assert "retention.msec" in ended.err


def test_describing_a_topic_that_is_not_there_creates_nothing(node: harness.Node):
    ended = penstock("topics", "describe", "nowhere", "--bootstrap", node.bootstrap)
    assert (ended.code, "there is no topic 'nowhere'" in ended.err) == (1, True)
    assert "nowhere" not in succeed("topics", "list", "--bootstrap", node.bootstrap)


def test_deleting_asks_first(node: harness.Node):
    succeed("topics", "create", "precious", "--bootstrap", node.bootstrap)
    ended = penstock("topics", "delete", "precious", "--bootstrap", node.bootstrap)
    assert (ended.code, "add --yes" in ended.err) == (1, True)
    assert "precious" in succeed("topics", "list", "--bootstrap", node.bootstrap)


def test_a_node_that_does_not_answer_is_given_up_when_the_time_is_up():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        asked = f"127.0.0.1:{silent.getsockname()[1]}"
        ended = penstock("--connect-timeout", str(EXPIRES_S), "topics", "list", "--bootstrap", asked)
        assert (ended.code, f"{asked} did not answer in time" in ended.err) == (1, True), ended.err
        ended = penstock("topics", "list", "--bootstrap", asked, environment={"PENSTOCK_CONNECT_TIMEOUT": str(EXPIRES_S)})
        assert (ended.code, f"{asked} did not answer in time" in ended.err) == (1, True), ended.err


def test_each_address_is_asked_once():
    """And not again and again, for half a minute, as a program would."""
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        counts: Counter[int] = Counter()

        def hang_up(server: socket.socket) -> None:
            with suppress(OSError):
                while True:
                    server.accept()[0].close()
                    counts[server.getsockname()[1]] += 1

        threads = [threading.Thread(target=hang_up, args=(server,), daemon=True) for server in (first, second)]
        for thread in threads:
            thread.start()
        ports = [server.getsockname()[1] for server in (first, second)]
        ended = penstock("topics", "list", "--bootstrap", ",".join(f"127.0.0.1:{port}" for port in ports))
        for server, thread in zip((first, second), threads, strict=True):
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
    assert ended.code == 1 and "Traceback" not in ended.err
    assert counts == dict.fromkeys(ports, 1), ended.err


def test_a_node_that_is_not_there_is_told():
    port = harness.free_port()
    ended = penstock("topics", "list", "--bootstrap", f"127.0.0.1:{port}")
    assert ended.code == 1
    assert f"cannot connect to 127.0.0.1:{port}: connection refused" in ended.err
    assert "Traceback" not in ended.err


def test_wrong_usage_says_where_to_look():
    ended = penstock("topics", "create")
    assert (ended.code, ended.err) == (2, "penstock: missing argument 'NAME'\n  see: penstock topics create --help\n")


def test_help_teaches_by_example():
    for noun in (["serve"], ["topics"], ["topics", "create"], ["produce"], ["consume"], ["log"]):
        assert f"penstock {noun[0]}" in succeed(*noun, "--help").split("Options:")[0].replace("Usage: penstock", "")
