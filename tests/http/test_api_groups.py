"""Groups, their lag and their offsets over the admin REST API, against a real node over real HTTP."""

from typing import Any
from urllib.parse import quote

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from all_loops import OnLoop
from http_talk import Answered, Http, on_node
from members import commit, coordinated, member, offsets_of, stable
from serving import Line, Serving, batch

API = "/api/v1"
NOW_MS = 1_700_000_000_000


async def prepared(serving: Serving) -> Line:
    """A topic of two partitions: ten records with times a second apart in the first, none in the second."""
    serving.env.wall_stopped_ms = NOW_MS
    line = await serving.line()
    await coordinated(line)
    await line.create("orders", 2)
    for second in range(10):
        await line.produce_batch("orders", batch(b"x", timestamp_ms=NOW_MS - 10_000 + second * 1_000))
    return line


async def reset(http: Http, group: str = "billing", **body: Any) -> Answered:
    return await http.post(f"{API}/groups/{quote(group, safe='')}/offsets", body)


def test_groups_are_listed_and_shown_with_their_members(on_loop: OnLoop) -> None:
    async def story(serving: Serving, http: Http) -> None:
        line = await prepared(serving)
        await commit(line, "idle", "orders", {0: 1})
        one = await member(serving, "busy")
        wants = ConsumerProtocolMemberMetadata(0, ["orders"], b"").encode()
        has = ConsumerProtocolMemberAssignment(0, [("orders", [0, 1])], b"").encode()
        await one.take_id(protocols=[("range", wants)])
        one.send_join(protocols=[("range", wants)])
        await one.joined()
        await one.sync(assignments={one.member_id: has})
        listed = (await http.get(f"{API}/groups")).json
        assert [(row["group"], row["state"], row["protocol_type"]) for row in listed["groups"]] == [
            ("busy", "Stable", "consumer"), ("idle", "Empty", ""),
        ]  # fmt: skip
        shown = (await http.get(f"{API}/groups/busy")).json
        assert (shown["state"], shown["protocol"], shown["leader"]) == ("Stable", "range", one.member_id)
        (only,) = shown["members"]
        assert (only["member_id"], only["topics"]) == (one.member_id, ["orders"])
        assert only["partitions"] == [{"topic": "orders", "partitions": [0, 1]}]

    on_loop(on_node(story))


def test_bytes_that_are_not_a_consumers_are_shown_as_unknown(on_loop: OnLoop) -> None:
    async def story(serving: Serving, http: Http) -> None:
        await coordinated(await serving.line())
        await stable(await member(serving, "odd"))
        (only,) = (await http.get(f"{API}/groups/odd")).json["members"]
        assert (only["topics"], only["partitions"]) == (None, None)

    on_loop(on_node(story))


def test_lag_is_told_for_one_group_and_for_all(on_loop: OnLoop) -> None:
    async def story(serving: Serving, http: Http) -> None:
        line = await prepared(serving)
        await commit(line, "billing", "orders", {0: 4, 1: 0})
        await commit(line, "audit", "orders", {0: 10})
        told = (await http.get(f"{API}/groups/billing/lag")).json
        assert (told["lag"], told["time_lag_ms"], told["members"], told["lost"]) == (6, 6_000, 0, 0)
        first, second = told["partitions"]
        assert (first["committed"], first["end_offset"], first["lag"], first["time_lag_ms"]) == (4, 10, 6, 6_000)
        assert first["retention_loss_ms"] == 7 * 86_400_000 - 1_000
        assert (second["lag"], second["time_lag_ms"], second["retention_loss_ms"]) == (0, 0, None)
        everybody = (await http.get(f"{API}/lag")).json
        assert [(row["group"], row["lag"]) for row in everybody["groups"]] == [("audit", 0), ("billing", 6)]
        assert everybody["groups"][1] == told
        assert everybody["partitions_left_out"] == 0

    on_loop(on_node(story))


def test_what_retention_took_before_it_was_read_is_told_as_lost(on_loop: OnLoop) -> None:
    async def story(serving: Serving, http: Http) -> None:
        line = await prepared(serving)
        await commit(line, "billing", "orders", {0: 4})
        serving.node.partitions.by_name["orders"][0].log.raise_start(7)
        (row,) = (await http.get(f"{API}/groups/billing/lag")).json["partitions"]
        assert (row["lag"], row["lost"], row["start_offset"], row["time_lag_ms"]) == (6, 3, 7, 3_000)

    on_loop(on_node(story))


def test_an_offset_past_the_end_is_not_shown_as_nothing_to_do(on_loop: OnLoop) -> None:
    async def story(serving: Serving, http: Http) -> None:
        line = await prepared(serving)
        await commit(line, "billing", "orders", {0: 13, 1: 0})
        told = (await http.get(f"{API}/groups/billing/lag")).json
        assert (told["lag"], told["past_end"]) == (0, 3)
        assert [(row["lag"], row["past_end"], row["time_lag_ms"]) for row in told["partitions"]] == [(0, 3, None), (0, 0, 0)]
        series = (await http.get("/metrics")).text
        assert 'penstock_group_past_end{group="billing",topic="orders",partition="0"} 3' in series
        assert 'penstock_group_past_end{group="billing",topic="orders",partition="1"}' not in series

    on_loop(on_node(story))


def test_offsets_of_a_deleted_topic_are_gone(on_loop: OnLoop) -> None:
    async def story(serving: Serving, http: Http) -> None:
        line = await prepared(serving)
        await line.create("other")
        await commit(line, "billing", "orders", {0: 4})
        await commit(line, "billing", "other", {0: 0})
        await http.ask("DELETE", f"{API}/topics/orders")
        assert [row["topic"] for row in (await http.get(f"{API}/groups/billing/lag")).json["partitions"]] == ["other"]

    on_loop(on_node(story))


@pytest.mark.invariant("groups.reset-dry-run")
@pytest.mark.parametrize(
    ("body", "target"),
    [
        ({"to": "earliest"}, 0),
        ({"to": "latest"}, 10),
        ({"to_time_ms": NOW_MS - 7_500}, 3),
        ({"to_time_ms": NOW_MS + 1}, 10),
        ({"to_offset": 8}, 8),
        ({"to_offset": 99}, 10),
        ({"shift_by": -3}, 1),
        ({"shift_by": 2}, 6),
        ({"offsets": [{"topic": "orders", "partition": 0, "offset": 5}]}, 5),
    ],
)
def test_a_reset_is_a_dry_run_until_it_is_told_otherwise(on_loop: OnLoop, body: dict[str, Any], target: int) -> None:
    async def story(serving: Serving, http: Http) -> None:
        line = await prepared(serving)
        await commit(line, "billing", "orders", {0: 4})
        tried = await reset(http, **body)
        assert (tried.status, tried.json["is_done"]) == (200, False)
        assert [(row["committed"], row["target"]) for row in tried.json["offsets"]] == [(4, target)]
        assert await offsets_of(line, "billing", "orders") == {0: 4}
        done = await reset(http, **body, dry_run=False)
        assert (done.json["is_done"], done.json["offsets"]) == (True, tried.json["offsets"])
        assert await offsets_of(line, "billing", "orders") == {0: target}

    on_loop(on_node(story))


def test_a_named_topic_is_reset_in_all_its_partitions_even_for_a_new_group(on_loop: OnLoop) -> None:
    async def story(serving: Serving, http: Http) -> None:
        line = await prepared(serving)
        done = await reset(http, "fresh", to="latest", topics=["orders"], dry_run=False)
        assert done.status == 200
        assert await offsets_of(line, "fresh", "orders", (0, 1)) == {0: 10, 1: 0}

    on_loop(on_node(story))


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ({}, 400, "invalid_request"),
        ({"to": "earliest", "shift_by": 1}, 400, "invalid_request"),
        ({"to": "middle"}, 400, "bad_body"),
        ({"shift_by": 10**4_300 - 1}, 400, "bad_body"),
        ({"to": "earliest", "topics": ["nowhere"]}, 404, "unknown_topic_or_partition"),
        ({"offsets": [{"topic": "orders", "partition": 7, "offset": 0}]}, 404, "unknown_topic_or_partition"),
        ({"offsets": [{"topic": "orders", "partition": 0, "offset": -1}]}, 400, "bad_body"),
        ({"shift_by": 1, "topics": ["orders"]}, 400, "invalid_request"),
        ({"offsets": [], "topics": ["orders"]}, 400, "invalid_request"),
    ],
)
def test_a_reset_without_meaning_is_refused_and_sets_nothing(on_loop: OnLoop, body: dict[str, Any], status: int, word: str) -> None:
    async def story(serving: Serving, http: Http) -> None:
        line = await prepared(serving)
        await commit(line, "billing", "orders", {0: 4})
        refused = await reset(http, **body, dry_run=False)
        assert (refused.status, refused.json["error"]) == (status, word)
        assert await offsets_of(line, "billing", "orders", (0, 1)) == {0: 4, 1: -1}

    on_loop(on_node(story))


def test_a_group_with_members_is_neither_reset_nor_deleted(on_loop: OnLoop) -> None:
    async def story(serving: Serving, http: Http) -> None:
        line = await prepared(serving)
        one = await member(serving, "billing")
        await stable(one)
        await one.commit("orders", {0: 4})
        for answer in (
            await reset(http, to="earliest"),
            await reset(http, to="earliest", dry_run=False),
            await http.ask("DELETE", f"{API}/groups/billing"),
        ):
            assert (answer.status, answer.json["error"]) == (409, "non_empty_group")
            assert "stop its consumers" in answer.json["message"]
        assert await offsets_of(line, "billing", "orders") == {0: 4}
        assert await one.leave() == 0
        assert (await http.ask("DELETE", f"{API}/groups/billing")).json == {"deleted": "billing"}
        assert (await http.get(f"{API}/groups/billing")).status == 404
        assert await offsets_of(line, "billing", "orders") == {0: -1}

    on_loop(on_node(story))


@pytest.mark.parametrize("path", ["/groups/nobody", "/groups/nobody/lag"])
@pytest.mark.parametrize("has_topic", [False, True])
def test_a_group_that_is_not_there_is_not_found(on_loop: OnLoop, path: str, has_topic: bool) -> None:
    async def story(serving: Serving, http: Http) -> None:
        if has_topic:
            await coordinated(await serving.line())
        answer = await http.get(API + path)
        assert (answer.status, answer.json["error"]) == (404, "group_id_not_found")
        assert (await http.ask("DELETE", f"{API}/groups/nobody")).status == 404
        assert (await http.get(f"{API}/groups")).json == {"groups": [], "next": None}

    on_loop(on_node(story))


@pytest.mark.parametrize("group", ["a/b", "50% off", "größe", "lag", "a?b#c", "..", "<script>alert(1)</script>"])
def test_any_name_of_a_group_has_a_path(on_loop: OnLoop, group: str) -> None:
    async def story(serving: Serving, http: Http) -> None:
        line = await prepared(serving)
        await commit(line, group, "orders", {0: 4})
        path = f"{API}/groups/{quote(group, safe='')}"
        assert (await http.get(path)).json["group"] == group
        assert (await http.get(f"{path}/lag")).json["lag"] == 6
        assert (await http.ask("DELETE", path)).json == {"deleted": group}

    on_loop(on_node(story))
