"""`penstock configs` and `penstock topics alter` against a real node."""

import json

from cli.running import penstock, succeed
from system import harness


def settings(node: harness.Node, *whose: str) -> dict[str, tuple[str, str]]:
    rows = json.loads(succeed("configs", "describe", *whose, "--json", "--bootstrap", node.bootstrap))
    return {row["name"]: (row["value"], row["from"]) for row in rows}


def test_a_topic_grows_and_changes_in_one_command(node: harness.Node):
    where = ["--bootstrap", node.bootstrap]
    succeed("topics", "create", "orders", "--partitions", "2", "--config", "flush=os", *where)
    tried = succeed("topics", "alter", "orders", "--partitions", "4", "--config", "retention.ms=5000", "--dry-run", *where)
    assert tried == "orders could be altered so\n"
    assert settings(node, "topic", "orders") == {"flush": ("os", "topic")}
    altered = succeed("topics", "alter", "orders", "--partitions", "4", "--config", "retention.ms=5000", "--unset", "flush", *where)
    assert altered == "orders is altered\n"
    assert settings(node, "topic", "orders") == {"retention.ms": ("5000", "topic")}
    assert len(json.loads(succeed("topics", "describe", "orders", "--json", *where))["partitions"]) == 4
    assert json.loads(succeed("topics", "alter", "orders", "--partitions", "5", "--json", *where))["partitions"] == 5


def test_what_cannot_be_altered_is_told_with_its_reason(node: harness.Node):
    where = ["--bootstrap", node.bootstrap]
    succeed("topics", "create", "fixed", "--partitions", "2", *where)
    for arguments, word in (
        (["fixed", "--partitions", "1"], "INVALID_PARTITIONS"),
        (["fixed", "--config", "retention.mss=1"], "retention.mss"),
        (["fixed", "--config", "retention.ms=soon"], "INVALID_CONFIG"),
        (["nowhere", "--partitions", "3"], "UNKNOWN_TOPIC_OR_PARTITION"),
        (["nowhere", "--config", "retention.ms=1"], "UNKNOWN_TOPIC_OR_PARTITION"),
    ):
        ended = penstock("topics", "alter", *arguments, *where)
        assert (ended.code, word in ended.err, "Traceback" in ended.err) == (1, True, False), ended.err
    ended = penstock("topics", "alter", "fixed", *where)
    assert (ended.code, "say what to alter" in ended.err) == (2, True)
    assert settings(node, "topic", "fixed") == {}


def test_nodes_are_told_together_or_one_by_one(node: harness.Node):
    where = ["--bootstrap", node.bootstrap]
    assert succeed("configs", "alter", "nodes", "--set", "num.partitions=3", *where) == "every node is altered\n"
    assert succeed("configs", "alter", "node", "1", "--set", "topic.retention.ms=9000", *where) == "node 1 is altered\n"
    assert settings(node, "nodes") == {"num.partitions": ("3", "told every node")}
    held = settings(node, "node", "1")
    assert (held["num.partitions"], held["topic.retention.ms"]) == (("3", "told every node"), ("9000", "told this node"))
    table = succeed("configs", "describe", "node", "1", "--all", *where)
    assert "node.id" in table and "default" in table
    succeed("topics", "create", "made", *where)
    assert len(json.loads(succeed("topics", "describe", "made", "--json", *where))["partitions"]) == 3
    ended = penstock("configs", "alter", "node", "1", "--set", "node.id=4", *where)
    assert (ended.code, "cannot be changed while the node runs" in ended.err) == (1, True)
    succeed("configs", "alter", "nodes", "--unset", "num.partitions", *where)
    succeed("configs", "alter", "node", "1", "--unset", "topic.retention.ms", *where)
    assert settings(node, "nodes") == {}


def test_wrong_usage_says_what_is_missing(node: harness.Node):
    for arguments, word in (
        (["describe", "topic"], "say which topic"),
        (["describe", "node", "one"], "a node is named by its number"),
        (["describe", "nodes", "1"], "takes no name"),
        (["alter", "topic", "a"], "say what to alter"),
        (["alter", "topic", "a", "--set", "x"], "NAME=VALUE"),
    ):
        ended = penstock("configs", *arguments, "--bootstrap", node.bootstrap)
        assert (ended.code, word in ended.err) == (2, True), ended.err
