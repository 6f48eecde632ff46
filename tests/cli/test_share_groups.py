"""`penstock groups` shows share groups: their members, and how far they are with each partition."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.running import penstock, succeed
from confluent_kafka import ShareConsumer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from system import harness
from system.librdkafka import admin, make_topic, produce_all, silence
from waiting import ASK_S, NEVER_MS, PATIENCE_S, until


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Node]:
    settings = {
        "offsets.topic.num.partitions": 4, "group.share.heartbeat.interval.ms": 200, "group.share.session.timeout.ms": NEVER_MS,
        "group.share.record.lock.duration.ms": NEVER_MS, "group.share.max.record.lock.duration.ms": NEVER_MS,
    }  # fmt: skip
    directory: Path = tmp_path_factory.mktemp("node") / "data"
    with harness.Node(directory, settings=settings) as node:
        yield node
        assert node.complaints() == []


def test_a_share_group_is_listed_described_and_deleted(node: harness.Node) -> None:
    where = ["--bootstrap", node.bootstrap]
    topic = make_topic(node.bootstrap, "jobs", 2)
    produce_all(node.bootstrap, topic, [{"value": b"job", "partition": 0}] * 10)
    begins = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, "workers", incremental_configs=[begins])
    admin(node.bootstrap).incremental_alter_configs([resource])[resource].result(PATIENCE_S)
    consumer = ShareConsumer({"bootstrap.servers": node.bootstrap, "group.id": "workers", "client.id": "till"}, logger=silence)
    consumer.subscribe([topic])
    found = until(lambda: len(list(consumer.poll(ASK_S))), "records come")

    assert succeed("groups", "list", *where).split()[5:10] == ["workers", "Stable", "share", "share", "1"]
    described = json.loads(succeed("groups", "describe", "workers", "--json", *where))
    assert (described["state"], described["protocol"], described["assignor"], described["members"]) == ("Stable", "share", "simple", 1)
    first, second = described["partitions"]
    assert (first["topic"], first["partition"], first["start"], first["end"], first["lag"]) == ("jobs", 0, 0, 10, 10)
    assert (second["lag"], len(second["members"])) == (0, 1)
    head, *_, last = succeed("groups", "describe", "workers", *where).splitlines()
    assert head.split()[:5] == ["workers", "Stable", "1", "member", "share"]
    assert last.split() == ["jobs", "1", "0", "0", "0", "1"]
    (member,) = json.loads(succeed("groups", "members", "workers", "--json", *where))["members"]
    assert (member["client"], member["assignment"]) == ("till", {"jobs": [0, 1]})

    consumer.commit_sync(PATIENCE_S)
    refused = penstock("groups", "delete", "workers", "--yes", *where)
    assert refused.code != 0
    consumer.close()
    to = ["--topic", "jobs:0", "--to-offset", "4", "--execute", "--json"]
    reset = json.loads(succeed("groups", "reset-offsets", "workers", *to, *where))
    assert [(row["committed"], row["target"]) for row in reset["offsets"]] == [(found, 4)]
    assert json.loads(succeed("groups", "describe", "workers", "--json", *where))["lag"] == 6
    assert "is deleted" in succeed("groups", "delete", "workers", "--yes", *where)
