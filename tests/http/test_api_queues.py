"""Work queues over the admin REST API: listed with their counts, and shown with settings, partitions and redrives."""


import pytest
from all_loops import OnLoop
from http_talk import Http, on_node
from serving import Serving, virtual_timeout

from penstock.broker.queues.calls import Draft, Order, Redrive, Verb
from penstock.http.api import queues as queues_api

API = "/api/v1"


def test_queues_are_listed_with_their_messages_by_state(on_loop: OnLoop) -> None:
    async def story(serving: Serving, http: Http) -> None:
        queues = serving.node.queues
        await (await serving.line()).create("no-queue")
        await queues.create("emails", {"queue.dead.letter": "emails-dead", "queue.fifo": "true"}, partitions=2)
        await queues.create("emails-dead", {"queue.paused": "true"})
        await queues.send("emails", [Draft(b"%d" % number, group=f"{number}") for number in range(5)])
        await queues.send("emails", [Draft(b"later", group="x", delay_ms=60_000)])
        (lent,) = await queues.take("emails", 1)
        await queues.take("emails", 1)
        await queues.settle("emails", [Order(lent.handle, Verb.DONE)])
        listed = (await http.get(f"{API}/queues")).json
        emails, dead = listed["queues"]
        assert listed["next"] is None
        assert (emails["name"], emails["partition_count"], emails["is_fifo"], emails["dead_letter"]) == ("emails", 2, True, "emails-dead")
        assert [emails[name] for name in ("ready", "leased", "delayed", "burying", "finished", "dropped")] == [3, 1, 1, 0, 1, 0]
        assert emails["oldest_ms"] > 0
        assert (dead["name"], dead["is_paused"], dead["ready"]) == ("emails-dead", True, 0)
        assert (dead["oldest_ms"], dead["dead_letter"]) == (None, None)
        page = (await http.get(f"{API}/queues?limit=1")).json
        assert ([each["name"] for each in page["queues"]], page["next"]) == (["emails"], "emails")

    on_loop(on_node(story))


def test_one_queue_is_shown_with_settings_partitions_and_redrives(on_loop: OnLoop) -> None:
    async def story(serving: Serving, http: Http) -> None:
        queues = serving.node.queues
        await queues.create("dead", {"queue.lease.ms": "5000"}, partitions=2)
        await queues.create("jobs", {})
        await queues.send("dead", [Draft(b"0", key=b"0"), Draft(b"1", key=b"1")])
        task = await queues.redrive("dead", Redrive(target="jobs"))
        async with virtual_timeout(10):
            while (shown := (await http.get(f"{API}/queues/dead")).json)["redrives"][0]["status"] == "running":
                pass
        (redrive,) = shown["redrives"]
        assert (redrive["handle"], redrive["status"], redrive["target"], redrive["moved"]) == (task.handle, "completed", "jobs", 2)
        assert shown["settings"]["queue.lease.ms"] == "5000"
        assert [(row["partition"], row["leader"], row["ready"]) for row in shown["partitions"]] == [(0, 1, 0), (1, 1, 0)]
        assert sum(row["finished"] for row in shown["partitions"]) == shown["finished"] == 2
        for name in ("nowhere", "__consumer_offsets"):
            missing = await http.get(f"{API}/queues/{name}")
            assert (missing.status, missing.json["error"]) == (404, "unknown_topic_or_partition")

    on_loop(on_node(story))


def test_what_cannot_be_counted_is_listed_without_counts(on_loop: OnLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues_api, "COUNTED_MAX", 1)

    async def story(serving: Serving, http: Http) -> None:
        for name in ("a", "b", "c"):
            await serving.node.queues.create(name, {})
        ledger = serving.node.ledgers.find(serving.node.image.topics["a"].topic_id, 0)
        assert ledger is not None
        ledger.coordinator.log_failed("it answers nobody")
        listed = (await http.get(f"{API}/queues")).json["queues"]
        assert [(each["name"], each["ready"]) for each in listed] == [("a", None), ("b", None), ("c", None)]
        assert (await http.get(f"{API}/queues/b")).json["ready"] == 0
        shown = (await http.get(f"{API}/queues/a")).json
        assert (shown["ready"], shown["partitions"][0]["ready"], shown["redrives"]) == (None, None, None)

    on_loop(on_node(story))
