"""Lag and groups in /metrics, with names of other people's making, and the bound on how many there are."""

import pytest
from all_loops import OnLoop
from http_talk import Http, on_node
from members import commit, coordinated, member, stable
from serving import Serving, batch

from penstock.http import group_gauges

NOW_MS = 1_700_000_000_000


async def metrics(http: Http) -> dict[str, float]:
    answer = await http.get("/metrics")
    assert answer.status == 200
    lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_a_group_shows_its_lag_in_records_seconds_and_seconds_to_loss(on_loop: OnLoop) -> None:
    async def story(serving: Serving, http: Http) -> None:
        serving.env.wall_stopped_ms = NOW_MS
        line = await serving.line()
        await coordinated(line)
        await line.create("orders", 2, retention_ms=60_000)
        for age_ms in (5_500, 1_000):
            await line.produce_batch("orders", batch(b"x", timestamp_ms=NOW_MS - age_ms))
        await commit(line, "billing", "orders", {0: 0, 1: 0})
        found = await metrics(http)
        labels = '{group="billing",topic="orders",partition="0"}'
        assert found[f"penstock_group_lag{labels}"] == 2
        assert found[f"penstock_group_lag_seconds{labels}"] == 5.5
        assert found[f"penstock_group_retention_loss_seconds{labels}"] == 59
        assert found['penstock_group_lag{group="billing",topic="orders",partition="1"}'] == 0
        assert 'penstock_group_retention_loss_seconds{group="billing",topic="orders",partition="1"}' not in found
        assert found["penstock_group_lag_left_out"] == 0
        assert found['penstock_topic_end_offset{topic="orders"}'] == 2

    on_loop(on_node(story))


def test_members_and_states_are_counted(on_loop: OnLoop) -> None:
    async def story(serving: Serving, http: Http) -> None:
        line = await serving.line()
        await coordinated(line)
        await line.create("orders")
        await stable(await member(serving, "busy"), await member(serving, "busy"))
        await commit(line, "idle", "orders", {0: 0})
        found = await metrics(http)
        assert found['penstock_group_members{group="busy"}'] == 2
        assert found['penstock_group_members{group="idle"}'] == 0
        assert found['penstock_groups{state="Stable"}'] == 1
        assert found['penstock_groups{state="Empty"}'] == 1

    on_loop(on_node(story))


@pytest.mark.invariant("node.observation-bounded")
def test_too_many_series_are_left_out_and_counted(on_loop: OnLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OFFSETS_MAX", "GROUPS_MAX", "TOPICS_MAX"):
        monkeypatch.setattr(group_gauges, name, 2)

    async def story(serving: Serving, http: Http) -> None:
        line = await serving.line()
        await coordinated(line)
        await line.create("orders", 3)
        await line.create("a")
        for group in ("g1", "g2", "g3"):
            await commit(line, group, "orders", {0: 0, 1: 0, 2: 0})
        found = await metrics(http)
        assert sum(name.startswith("penstock_group_lag{") for name in found) == 2
        assert found["penstock_group_lag_left_out"] == 4
        assert found["penstock_groups_left_out"] == 1
        assert sum(name.startswith("penstock_topic_end_offset{") for name in found) == 2
        assert found["penstock_topics_left_out"] == 1

    on_loop(on_node(story))


def test_a_name_cannot_forge_a_series(on_loop: OnLoop) -> None:
    async def story(serving: Serving, http: Http) -> None:
        line = await serving.line()
        await coordinated(line)
        await line.create("orders")
        await commit(line, 'x"} 9\npenstock_ready 0', "orders", {0: 0})
        found = await metrics(http)
        assert found["penstock_ready"] == 1
        assert found['penstock_group_lag{group="x\\"} 9\\npenstock_ready 0",topic="orders",partition="0"}'] == 0

    on_loop(on_node(story))


def test_metrics_are_there_before_the_first_group(on_loop: OnLoop) -> None:
    async def story(serving: Serving, http: Http) -> None:
        assert (await metrics(http))['penstock_groups{state="Stable"}'] == 0

    on_loop(on_node(story))
