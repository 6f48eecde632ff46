"""Queues in /metrics: what is ready, lent, delayed and how old; and the bound on how many queues there are."""

import pytest
from all_loops import OnLoop
from http_talk import Http, on_node
from serving import Serving

from penstock.broker.queues.calls import Draft, Order, Verb
from penstock.http import queue_gauges, share_gauges


async def metrics(http: Http) -> dict[str, float]:
    answer = await http.get("/metrics")
    assert answer.status == 200
    lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_a_queue_shows_its_messages_by_state_and_the_age_of_the_oldest(on_loop: OnLoop) -> None:
    async def story(serving: Serving, http: Http) -> None:
        serving.env.wall_stopped_ms = 1_700_000_000_000
        queues = serving.node.queues
        await queues.create("emails", {}, partitions=2)
        await queues.send("emails", [Draft(b"%d" % number, key=b"%d" % number) for number in range(8)])
        await queues.send("emails", [Draft(b"later", delay_ms=60_000)])
        (lent,) = await queues.take("emails", 1)
        (other,) = await queues.take("emails", 1)
        await queues.settle("emails", [Order(lent.handle, Verb.DONE)])
        serving.env.wall_stopped_ms += 5_000
        found = await metrics(http)
        states = {state: found[f'penstock_queue_messages{{queue="emails",state="{state}"}}'] for state in ("ready", "leased", "delayed")}
        assert states == {"ready": 6, "leased": 1, "delayed": 1}
        assert found['penstock_queue_oldest_seconds{queue="emails"}'] == 5
        assert found['penstock_queue_finished{queue="emails"}'] == 1
        assert found['penstock_queue_waiting{queue="emails"}'] == 0
        assert found["penstock_queues_left_out"] == 0
        assert other.attempt == 1

    on_loop(on_node(story))


def test_too_many_queues_are_left_out_and_counted(on_loop: OnLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_gauges, "QUEUES_MAX", 1)

    async def story(serving: Serving, http: Http) -> None:
        for name in ("b", "a"):
            await serving.node.queues.create(name, {})
        found = await metrics(http)
        assert found['penstock_queue_oldest_seconds{queue="a"}'] == 0
        assert 'penstock_queue_oldest_seconds{queue="b"}' not in found
        assert found["penstock_queues_left_out"] == 1

    on_loop(on_node(story))


def test_a_share_group_shows_what_it_has_yet_to_finish(on_loop: OnLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_gauges, "PARTITIONS_MAX", 1)

    async def story(serving: Serving, http: Http) -> None:
        serving.env.wall_stopped_ms = 1_700_000_000_000
        queues, node = serving.node.queues, serving.node
        await queues.create("emails", {})
        await queues.send("emails", [Draft(b"%d" % number) for number in range(3)])
        topic_id = queues.describe("emails").topic_id
        for group in ("billing", "zoo"):
            await node.shares.start(topic_id, 0, group, 0)
        assert len(await queues.take("emails", 1, group="billing")) == 1
        serving.env.wall_stopped_ms += 2_000
        found = await metrics(http)
        labels = '{group="billing",topic="emails",partition="0"}'
        assert (found[f"penstock_share_group_lag{labels}"], found[f"penstock_share_group_lent{labels}"]) == (3, 1)
        assert found[f"penstock_share_group_lag_seconds{labels}"] == 2
        assert found["penstock_share_group_lag_left_out"] == 1
        assert not [name for name in found if "zoo" in name or "$queue" in name]

    on_loop(on_node(story))
