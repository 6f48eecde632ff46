"""`penstock groups` against a real node, with a real consumer where there must be members."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from announced import needs_announced
from cli.running import penstock, succeed
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from system import harness
from waiting import ASK_S, PATIENCE_S, until


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


class Stage:
    """A topic with ten records in its first partition and none in its second, and a group that has read four."""

    def __init__(self, node: harness.Node, name: str) -> None:
        self.node, self.topic, self.group = node, f"orders-{name}", f"billing-{name}"
        self.where = ["--bootstrap", node.bootstrap]
        config = {"bootstrap.servers": node.bootstrap}
        admin = AdminClient(config)  # Kept until it has answered: its questions end with it.
        admin.create_topics([NewTopic(self.topic, 2)])[self.topic].result()
        producer = Producer(config)
        for number in range(10):
            producer.produce(self.topic, f"record {number}", partition=0)
        assert producer.flush(PATIENCE_S) == 0
        self._consumer = Consumer({**config, "group.id": self.group, "enable.auto.commit": False})
        self.commit(4)

    def close(self) -> None:
        self._consumer.close()

    def commit(self, offset: int) -> None:
        self._consumer.commit(offsets=[TopicPartition(self.topic, 0, offset)], asynchronous=False)

    def committed(self) -> dict[int, int]:
        found = self._consumer.committed([TopicPartition(self.topic, partition) for partition in (0, 1)], timeout=PATIENCE_S)
        return {each.partition: each.offset for each in found if each.offset >= 0}

    def describe(self) -> dict[str, Any]:
        return json.loads(succeed("groups", "describe", self.group, "--json", *self.where))  # type: ignore[no-any-return]

    def reset(self, *arguments: str) -> Any:
        return penstock("groups", "reset-offsets", self.group, *arguments, *self.where)

    @contextmanager
    def member(self, **more: Any) -> Iterator[None]:
        config = {"bootstrap.servers": self.node.bootstrap, "group.id": self.group, "client.id": "till", "enable.auto.commit": False}
        consumer = Consumer({**config, **more})
        consumer.subscribe([self.topic])
        until(lambda: (consumer.poll(ASK_S), consumer.assignment())[1], "the member has partitions")
        try:
            yield
        finally:
            consumer.close()


@pytest.fixture
def stage(node: harness.Node, request: pytest.FixtureRequest) -> Iterator[Stage]:
    stage = Stage(node, "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[-60:])
    yield stage
    stage.close()


def test_groups_are_listed_with_their_state(stage: Stage) -> None:
    assert [stage.group, "Empty", "-", "classic", "1"] in lines(succeed("groups", "list", *stage.where))
    listed = json.loads(succeed("groups", "list", "--json", *stage.where))
    assert {"group": stage.group, "state": "Empty", "type": "", "protocol": "classic", "node": 1} in listed


def test_describing_tells_lag_in_records_and_in_time(stage: Stage) -> None:
    told = stage.describe()
    assert (told["state"], told["members"], told["lag"]) == ("Empty", 0, 6)
    (row,) = told["partitions"]
    assert (row["committed"], row["start"], row["end"], row["lag"], row["lost"]) == (4, 0, 10, 6, 0)
    assert 0 <= row["time_lag_ms"] < 600_000
    assert 0 < row["retention_loss_ms"] <= 7 * 86_400_000
    head, columns, cells = succeed("groups", "describe", stage.group, *stage.where).splitlines()
    assert head == f"{stage.group}  Empty  0 members  classic  lag 6"
    assert columns.split("  ")[0] == "TOPIC"
    assert columns.split()[1:8] == ["PARTITION", "COMMITTED", "END", "LAG", "TIME", "LAG", "LOSS"]
    assert cells.split()[:5] == [stage.topic, "0", "4", "10", "6"]


def test_a_group_that_has_read_everything_has_no_lag_of_any_kind(stage: Stage) -> None:
    stage.commit(10)
    (row,) = stage.describe()["partitions"]
    assert (row["lag"], row["time_lag_ms"], row["retention_loss_ms"]) == (0, 0, None)


def test_an_offset_past_the_end_is_called_that(stage: Stage) -> None:
    stage.commit(13)
    told = stage.describe()
    (row,) = told["partitions"]
    assert (row["lag"], row["past_end"], row["time_lag_ms"]) == (0, 3, None)
    shown = penstock("groups", "describe", stage.group, *stage.where)
    assert shown.out.splitlines()[2].split()[:8] == [stage.topic, "0", "13", "10", "-", "past", "the", "end"]
    assert shown.err.splitlines()[0] == f"committed past the end, where nothing can be read: {stage.topic}-0"
    stage.commit(10)
    assert penstock("groups", "describe", stage.group, *stage.where).err == ""


def test_members_are_shown_with_their_partitions(stage: Stage) -> None:
    with stage.member():
        told = json.loads(succeed("groups", "members", stage.group, "--json", *stage.where))
        (member,) = told["members"]
        assert (told["state"], member["client"], member["assignment"]) == ("Stable", "till", {stage.topic: [0, 1]})
        table = lines(succeed("groups", "members", stage.group, *stage.where))
        assert table[1][-1] == f"{stage.topic}-0,{stage.topic}-1"
        owners = {row["partition"]: row["member"] for row in stage.describe()["partitions"]}
        assert owners == {0: member["member"], 1: member["member"]}
    assert "has no members" in penstock("groups", "members", stage.group, *stage.where).err


def test_a_group_of_the_new_protocol_is_shown_with_its_assignor_and_epochs(stage: Stage) -> None:
    needs_announced(stage.node.bootstrap, "the new consumer protocol")
    with stage.member(**{"group.protocol": "consumer"}):
        until(lambda: stage.describe()["state"] == "Stable", "the member says with its next heartbeat that it has its partitions")
        told = json.loads(succeed("groups", "members", stage.group, "--json", *stage.where))
        assert (told["protocol"], told["assignor"], told["type"]) == ("consumer", "uniform", "consumer")
        assert told["epoch"] == told["assignment_epoch"] >= 1
        (member,) = told["members"]
        assert (member["client"], member["topics"], member["target"]) == ("till", [stage.topic], {stage.topic: [0, 1]})
        columns, cells = lines(succeed("groups", "members", stage.group, *stage.where))
        assert columns[-5:] == ["EPOCH", "IS", "TO", "HAVE", "PARTITIONS"]
        assert cells[-2] == f"{stage.topic}-0,{stage.topic}-1"
        first = succeed("groups", "describe", stage.group, *stage.where).splitlines()[0]
        assert f"1 member  consumer  uniform  epoch {told['epoch']}  lag" in first
        assert [stage.group, "Stable", "consumer", "consumer", "1"] in lines(succeed("groups", "list", *stage.where))
    assert stage.describe()["protocol"] == "consumer", "it stays one of its kind while it is empty"


@pytest.mark.parametrize(
    ("to", "target"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], 10),
        (["--to-offset", "7"], 7),
        (["--to-offset", "70"], 10),
        (["--shift-by", "-2"], 2),
        (["--shift-by", "3"], 7),
        (["--to-time", "2001-01-01T00:00:00Z"], 0),
        (["--to-time", "@32503680000000"], 10),
    ],
)
def test_a_reset_is_shown_first_and_done_only_when_told(stage: Stage, to: list[str], target: int) -> None:
    tried = stage.reset("--all-topics", *to)
    assert (tried.code, "add --execute" in tried.err) == (0, True)
    assert lines(tried.out)[1][:4] == [stage.topic, "0", "4", str(target)]
    assert stage.committed() == {0: 4}
    done = stage.reset("--all-topics", *to, "--execute")
    assert (done.code, done.out.splitlines()[-1]) == (0, f"1 offset of group {stage.group} set")
    assert stage.committed() == {0: target}


def test_a_reset_can_name_topics_and_single_partitions(stage: Stage) -> None:
    assert stage.reset("--topic", f"{stage.topic}:1", "--to-latest", "--execute").code == 0
    assert stage.committed() == {0: 4, 1: 0}
    assert stage.reset("--topic", stage.topic, "--to-earliest", "--execute").code == 0
    assert stage.committed() == {0: 0, 1: 0}


def test_a_plan_can_be_kept_and_given_back(stage: Stage, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(stage.reset("--topic", stage.topic, "--to-latest", "--json").out)
    assert stage.reset("--from-file", str(plan), "--execute").code == 0
    assert stage.committed() == {0: 10, 1: 0}
    lines_of = tmp_path / "plan.csv"
    lines_of.write_text(f"# where to\n{stage.topic},0,3\n\n{stage.topic}, 1, 0\n")
    assert stage.reset("--from-file", str(lines_of), "--execute").code == 0
    assert stage.committed() == {0: 3, 1: 0}


@pytest.mark.invariant("groups.reset-dry-run")
def test_a_group_with_members_is_neither_reset_nor_deleted(stage: Stage) -> None:
    with stage.member():
        for arguments in (["--to-earliest"], ["--to-earliest", "--execute"]):
            refused = stage.reset("--all-topics", *arguments)
            assert refused.code == 1
            assert "with 1 member, who commit for themselves" in refused.err
            assert "stop its consumers" in refused.err.splitlines()[1]
        deleted = penstock("groups", "delete", stage.group, "--yes", *stage.where)
        assert (deleted.code, "NON_EMPTY_GROUP" in deleted.err) == (1, True)
    assert stage.committed() == {0: 4}


def test_a_group_is_deleted_after_it_was_asked_for(stage: Stage) -> None:
    unsure = penstock("groups", "delete", stage.group, *stage.where)
    assert (unsure.code, "add --yes" in unsure.err) == (1, True)
    assert stage.committed() == {0: 4}
    assert succeed("groups", "delete", stage.group, "--yes", *stage.where) == f"{stage.group} is deleted\n"
    gone = penstock("groups", "describe", stage.group, *stage.where)
    assert (gone.code, "GROUP_ID_NOT_FOUND" in gone.err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--to-earliest"], 2, "say what to reset"),
        (["--all-topics", "--topic", "t", "--to-earliest"], 2, "say what to reset"),
        (["--all-topics"], 2, "say where to"),
        (["--all-topics", "--to-earliest", "--to-latest"], 2, "say where to"),
        (["--all-topics", "--to-time", "soon"], 2, "neither an ISO 8601 time"),
        (["--topic", "t:one", "--to-earliest"], 2, "must be TOPIC or TOPIC:0,1"),
        (["--topic", "nowhere", "--to-earliest"], 1, "there is no topic 'nowhere'"),
        (["--from-file", "/dev/null", "--all-topics"], 2, "names the partitions itself"),
    ],
)
def test_a_reset_that_makes_no_sense_says_what_would(stage: Stage, arguments: list[str], code: int, words: str) -> None:
    ended = stage.reset(*arguments)
    assert (ended.code, words in ended.err) == (code, True), ended.err
    assert stage.committed() == {0: 4}


def test_a_file_that_makes_no_sense_is_refused(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "plan"
    for content, words in (("orders,zero,1\n", "does not say"), ("", "names no partition"), ('{"offsets": [{}]}', "does not say")):
        path.write_text(content)
        ended = stage.reset("--from-file", str(path), "--execute")
        assert (ended.code, words in ended.err) == (1, True), ended.err


def test_a_shift_needs_something_to_shift_from(stage: Stage) -> None:
    ended = stage.reset("--topic", stage.topic, "--shift-by", "1", "--execute")
    assert (ended.code, "has no committed offset to shift from" in ended.err) == (1, True)
    assert stage.committed() == {0: 4}


def test_the_tab_key_offers_names_that_are_there(stage: Stage) -> None:
    def offered(words: str, bootstrap: str) -> list[str]:
        asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1), "_PENSTOCK_COMPLETE": "bash_complete"}
        return penstock(environment=asked | {"PENSTOCK_BOOTSTRAP": bootstrap}).out.split()

    here, nowhere = stage.node.bootstrap, f"127.0.0.1:{harness.free_port()}"
    # The node is asked for a second only: a person waits. A machine that stands still as long offers nothing.
    assert until(lambda: offered(f"penstock groups describe {stage.group[:-1]}", here), "a group is offered") == [f"plain,{stage.group}"]
    assert until(lambda: offered(f"penstock consume {stage.topic[:-1]}", here), "a topic is offered") == [f"plain,{stage.topic}"]
    assert offered("penstock consume __", here) == [], "not the cluster's own"
    assert offered(f"penstock groups describe {stage.group[:-1]}", nowhere) == []


def test_help_teaches_by_example() -> None:
    for noun in (["groups"], ["groups", "describe"], ["groups", "reset-offsets"], ["completion"]):
        assert f"penstock {noun[0]}" in succeed(*noun, "--help").split("Options:")[0].replace("Usage: penstock", "")
