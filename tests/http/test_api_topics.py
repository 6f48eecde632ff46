"""Topics, partitions and settings over the admin REST API, against a real node over real HTTP."""

from typing import Any

import pytest
from all_loops import OnLoop
from http_talk import Http, on_node
from serving import Serving

API = "/api/v1"


def test_a_topic_is_made_shown_widened_and_deleted(on_loop: OnLoop) -> None:
    async def story(serving: Serving, http: Http) -> None:
        made = await http.post(f"{API}/topics", {"name": "orders", "partitions": 2, "configs": {"retention.ms": "1000"}})
        assert (made.status, made.json) == (201, {"topic": "orders", "partitions": 2, "is_done": True})
        assert made.headers["location"] == f"{API}/topics/orders"
        line = await serving.line()
        await line.produce("orders", b"a", b"b", partition=1)
        shown = (await http.get(f"{API}/topics/orders")).json
        assert (shown["partition_count"], shown["records"], shown["written"], shown["overrides"]) == (2, 2, 2, {"retention.ms": "1000"})
        assert [(row["partition"], row["start_offset"], row["end_offset"]) for row in shown["partitions"]] == [(0, 0, 0), (1, 0, 2)]
        wider = await http.ask("PATCH", f"{API}/topics/orders", {"partitions": 4})
        assert (wider.status, wider.json["partitions"]) == (200, 4)
        assert len((await http.get(f"{API}/topics/orders/partitions")).json["partitions"]) == 4
        assert (await line.produce("orders", b"c", partition=3)).error_code == 0
        gone = await http.ask("DELETE", f"{API}/topics/orders")
        assert (gone.status, gone.json) == (200, {"deleted": "orders"})
        assert (await http.get(f"{API}/topics/orders")).status == 404

    on_loop(on_node(story))


def test_a_trial_changes_nothing(on_loop: OnLoop) -> None:
    async def story(serving: Serving, http: Http) -> None:
        tried = await http.post(f"{API}/topics", {"name": "orders", "validate_only": True})
        assert (tried.status, tried.json["is_done"]) == (201, False)
        assert (await http.get(f"{API}/topics")).json["topics"] == []
        await http.post(f"{API}/topics", {"name": "orders", "partitions": 1})
        await http.ask("PATCH", f"{API}/topics/orders", {"partitions": 3, "validate_only": True})
        await http.ask("PATCH", f"{API}/topics/orders/configs", {"set": {"retention.ms": "5"}, "validate_only": True})
        shown = (await http.get(f"{API}/topics/orders")).json
        assert (shown["partition_count"], shown["overrides"]) == (1, {})

    on_loop(on_node(story))


def test_settings_say_where_they_come_from_and_can_be_set_and_unset(on_loop: OnLoop) -> None:
    async def configs(http: Http) -> dict[str, Any]:
        rows = (await http.get(f"{API}/topics/orders/configs")).json["configs"]
        return {row["name"]: (row["value"], row["source"]) for row in rows}

    async def story(serving: Serving, http: Http) -> None:
        await http.post(f"{API}/topics", {"name": "orders", "configs": {"retention.ms": "1000"}})
        before = await configs(http)
        assert before["retention.ms"] == ("1000", "topic")
        assert before["flush"] == ("os", "started with")
        assert before["segment.bytes"][1] == "default"
        changed = await http.ask("PATCH", f"{API}/topics/orders/configs", {"set": {"segment.bytes": "2048"}, "unset": ["retention.ms"]})
        assert (changed.status, changed.json["overrides"]) == (200, {"segment.bytes": "2048"})
        after = await configs(http)
        assert after["segment.bytes"] == ("2048", "topic")
        assert after["retention.ms"][1] == "default"
        assert serving.node.partitions.by_name["orders"][0].log.config.segment_bytes == 2048

    on_loop(on_node(story, topic_defaults={"flush": "os"}))


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "word"),
    [
        ("POST", "/topics", {"name": "is there"}, 400, "invalid_topic_exception"),
        ("POST", "/topics", {"name": "there"}, 409, "topic_already_exists"),
        ("POST", "/topics", {"name": "new", "partitions": 0}, 400, "bad_body"),
        ("POST", "/topics", {"name": "new", "partitions": 1_000_000}, 400, "invalid_partitions"),
        ("POST", "/topics", {"name": "new", "replication_factor": 3}, 400, "invalid_replication_factor"),
        ("POST", "/topics", {"name": "new", "configs": {"retention.ms": 5}}, 400, "bad_body"),
        ("POST", "/topics", {"name": "new", "configs": {"retention.msec": "5"}}, 400, "invalid_config"),
        ("POST", "/topics", {"name": "new", "colour": "red"}, 400, "bad_body"),
        ("POST", "/topics", {"partitions": 1}, 400, "bad_body"),
        ("POST", "/topics", [], 400, "bad_body"),
        ("POST", "/topics", b"{", 400, "not_json"),
        ("POST", "/topics", b"[" * 200_000, 400, "bad_body"),
        ("POST", "/topics", b'{"name":' * 100_000, 400, "bad_body"),
        ("POST", "/topics", b'{"name": "new", "partitions": ' + b"9" * 5_000 + b"}", 400, "not_json"),
        ("POST", "/topics", b'{"name": "new", "partitions": ' + b"9" * 4_300 + b"}", 400, "bad_body"),
        ("PATCH", "/topics/there", {"partitions": 1}, 400, "invalid_partitions"),
        ("PATCH", "/topics/nowhere", {"partitions": 9}, 404, "unknown_topic_or_partition"),
        ("PATCH", "/topics/there/configs", {"set": {"retention.ms": "soon"}}, 400, "invalid_config"),
        ("DELETE", "/topics/nowhere", None, 404, "unknown_topic_or_partition"),
        ("GET", "/topics/nowhere", None, 404, "unknown_topic_or_partition"),
        ("GET", "/topics/nowhere/configs", None, 404, "unknown_topic_or_partition"),
        ("GET", "/topics?limit=0", None, 400, "bad_parameter"),
        ("GET", "/topics?limit=many", None, 400, "bad_parameter"),
        ("GET", "/topics?limit=" + "9" * 5_000, None, 400, "bad_parameter"),
        ("GET", "/topics?limit=-" + "9" * 4_000, None, 400, "bad_parameter"),
        ("GET", "/topics?internal=perhaps", None, 400, "bad_parameter"),
        ("GET", "/topics?colour=red", None, 400, "unknown_parameter"),
        ("GET", "/colours", None, 404, "not_found"),
        ("GET", "/topics//partitions", None, 404, "not_found"),
        ("PUT", "/topics", {"name": "x"}, 405, "method_not_allowed"),
    ],
)
def test_what_cannot_be_done_says_why_in_one_shape_and_changes_nothing(
    on_loop: OnLoop, *, method: str, path: str, body: object, status: int, word: str
) -> None:
    async def story(serving: Serving, http: Http) -> None:
        await http.post(f"{API}/topics", {"name": "there", "partitions": 1})
        before = (await http.get(f"{API}/topics/there")).json
        answer = await http.ask(method, API + path, body)
        assert (answer.status, answer.json["error"], set(answer.json)) == (status, word, {"error", "message"})
        assert answer.json["message"]
        assert (await http.get(f"{API}/topics/there")).json == before
        assert [row["name"] for row in (await http.get(f"{API}/topics")).json["topics"]] == ["there"]

    on_loop(on_node(story))


def test_lists_come_in_pages_and_internal_topics_only_when_asked_for(on_loop: OnLoop) -> None:
    async def story(serving: Serving, http: Http) -> None:
        for name in ("c", "a", "b"):
            await http.post(f"{API}/topics", {"name": name})
        await serving.node.groups.prepare()
        first = (await http.get(f"{API}/topics?limit=2")).json
        assert ([row["name"] for row in first["topics"]], first["next"]) == (["a", "b"], "b")
        rest = (await http.get(f"{API}/topics?limit=2&after=b")).json
        assert ([row["name"] for row in rest["topics"]], rest["next"]) == (["c"], None)
        everything = (await http.get(f"{API}/topics?internal=true")).json["topics"]
        assert (everything[0]["name"], everything[0]["is_internal"]) == ("__consumer_offsets", True)

    on_loop(on_node(story))


def test_the_clusters_own_topics_can_only_be_looked_at(on_loop: OnLoop) -> None:
    async def story(serving: Serving, http: Http) -> None:
        await serving.node.groups.prepare()
        path = f"{API}/topics/__consumer_offsets"
        before = (await http.get(path)).json
        for answer in (
            await http.ask("DELETE", path),
            await http.ask("PATCH", path, {"partitions": 99}),
            await http.post(f"{API}/topics", {"name": "__transaction_state"}),
        ):
            assert (answer.status, answer.json["error"]) == (409, "policy_violation")
        assert (await http.get(path)).json == before

    on_loop(on_node(story))


def test_nodes_tell_what_this_one_is_like(on_loop: OnLoop) -> None:
    async def story(serving: Serving, http: Http) -> None:
        await http.post(f"{API}/topics", {"name": "orders", "partitions": 3})
        told = (await http.get(f"{API}/nodes")).json
        host, port = serving.address
        assert told["nodes"] == [
            {
                "id": 1, "state": "live", "host": host, "port": port, "rack": None, "roles": ["broker", "controller"],
                "disk_is_short": False, "epoch": 1, "is_this": True, "is_controller": True, "leads": 3, "replicas": 3, "in_sync": 3,
            }
        ]  # fmt: skip
        assert (told["controller"], told["under_replicated"], told["leaderless"], told["reassigning"]) == (1, 0, 0, 0)
        assert (told["topics"], told["partitions"], told["partitions_offline"]) == (1, 3, 0)

    on_loop(on_node(story))


def test_a_node_that_is_not_ready_says_so(on_loop: OnLoop) -> None:
    async def story(serving: Serving, http: Http) -> None:
        serving.node.fail("the metadata log failed")
        answer = await http.get(f"{API}/topics")
        assert (answer.status, answer.json["error"]) == (503, "not_ready")
        assert "retry-after" in answer.headers

    on_loop(on_node(story))


def test_a_body_without_end_is_cut_off(on_loop: OnLoop) -> None:
    async def story(serving: Serving, http: Http) -> None:
        allowed = b"%x\r\n" % (1 << 20) + b" " * (1 << 20) + b"\r\n"
        answer = await http.ask("POST", f"{API}/topics", allowed + b"1\r\n \r\n", transfer_encoding="chunked", content_length="")
        assert (answer.status, answer.json["error"]) == (413, "body_too_large")

    on_loop(on_node(story))
