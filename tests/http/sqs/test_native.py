"""The actions `Penstock.*`, as their shapes are published: every answer has the members that clients read."""

import base64
from typing import Any

import pytest
from all_loops import OnLoop
from http_talk import Answered, Http, on_node
from serving import Serving
from waiting import until_async

from penstock.http.sqs.actions import ACTIONS, NATIVE_PREFIX
from penstock.http.sqs.native_shapes import NATIVE_SHAPES


class Native:
    def __init__(self, http: Http) -> None:
        self._http = http

    async def ask(self, action: str, **body: Any) -> Answered:
        return await self._http.post("/", body, x_amz_target=NATIVE_PREFIX + action)

    async def __call__(self, action: str, **body: Any) -> Any:
        answer = await self.ask(action, **body)
        assert answer.status == 200, (action, answer.text)
        return answer.json

    async def refusal(self, action: str, **body: Any) -> str:
        answer = await self.ask(action, **body)
        assert answer.status in (400, 503) and answer.headers["x-amzn-query-error"], answer.text
        namespace, _, code = answer.json["__type"].partition("#")
        assert namespace == "penstock" and answer.json["message"]
        return str(code)


def tell(on_loop: OnLoop, story: Any) -> None:
    async def whole(serving: Serving, http: Http) -> None:
        await story(Native(http))

    on_loop(on_node(whole))


def test_every_shape_has_its_action():
    assert {name.removeprefix(NATIVE_PREFIX) for name in ACTIONS if name.startswith(NATIVE_PREFIX)} == set(NATIVE_SHAPES)


def test_a_queue_is_made_described_set_listed_and_deleted(on_loop):
    async def story(penstock: Native) -> None:
        settings = {"queue.lease.ms": "5000"}
        assert await penstock("CreateQueue", Queue="a", Settings=settings, Partitions=2) == {"IsNew": True}
        assert await penstock("CreateQueue", Queue="a", Settings=settings, Partitions=2) == {"IsNew": False}
        assert await penstock.refusal("CreateQueue", Queue="a", Settings={"queue.lease.ms": "1"}) == "exists_with_other_settings"
        assert await penstock.refusal("CreateQueue", Queue="b", Settings={"queue.nonsense": "1"}) == "invalid"
        await penstock("ConfigureQueue", Queue="a", Settings={"queue.lease.ms": None, "queue.delay.ms": "7"})
        described = await penstock("DescribeQueue", Queue="a")
        assert (described["Queue"], described["Partitions"]) == ("a", 2) and described["TopicId"]
        assert described["Settings"].items() >= {"queue.delay.ms": "7", "queue.enabled": "true"}.items()
        assert "queue.lease.ms" not in described["Settings"]
        for name in ("b", "c", "other"):
            await penstock("CreateQueue", Queue=name)
        assert await penstock("ListQueues") == {"Queues": ["a", "b", "c", "other"], "HasMore": False}
        assert await penstock("ListQueues", Max=2, After="a") == {"Queues": ["b", "c"], "HasMore": True}
        assert await penstock("ListQueues", Prefix="o") == {"Queues": ["other"], "HasMore": False}
        assert await penstock("DeleteQueue", Queue="other") == {}
        assert await penstock.refusal("DescribeQueue", Queue="other") == "no_such_queue"

    tell(on_loop, story)


def test_messages_are_sent_and_received_with_all_that_they_have(on_loop):
    async def story(penstock: Native) -> None:
        await penstock("CreateQueue", Queue="q")
        binary = base64.b64encode(b"\xff\x00").decode()
        plain = {
            "Body": "é",
            "Key": "k",
            "Headers": [["h", "text"], ["none", None], ["b", {"Base64": binary}]],
            "Group": "g",
            "Priority": 7,
        }
        sent = (await penstock("Send", Queue="q", Messages=[plain, {"BodyBase64": binary, "KeyBase64": binary}]))["Results"]
        assert [set(each) for each in sent] == [{"Id", "Partition", "Offset", "SentMs", "IsDuplicate"}] * 2
        first, second = (await penstock("Receive", Queue="q", Max=1000, LeaseMs=60_000, Who="w"))["Messages"]
        assert [first["Id"], second["Id"]] == [each["Id"] for each in sent]
        assert first.items() >= {"Body": "é", "Key": "k", "Attempt": 1, "Partition": 0, "Offset": 0}.items()
        assert first["Headers"][:3] == [["h", "text"], ["none", None], ["b", {"Base64": binary}]]
        assert {"penstock.priority", "penstock.group"} <= {name for name, _ in first["Headers"]}
        assert first["DeadlineMs"] - first["FirstTakenMs"] == 60_000 and first["SentMs"] == sent[0]["SentMs"]
        assert (second["BodyBase64"], second["KeyBase64"]) == (binary, binary) and not {"Body", "Key"} & second.keys()
        assert await penstock("Receive", Queue="q") == {}

    tell(on_loop, story)


@pytest.mark.invariant("queues.memory-bounded")
def test_large_messages_are_counted_until_they_are_sent(on_loop):
    async def story(serving: Serving, http: Http) -> None:
        penstock, room = Native(http), serving.node.reply_room
        await penstock("CreateQueue", Queue="q")
        for number in range(4):
            await penstock("Send", Queue="q", Messages=[{"Body": str(number) * 900_000}])
        room.take(room.bytes_max)  # A crowd that does not read has left no room.
        first = (await penstock("Receive", Queue="q", Max=1000))["Messages"]
        assert [each["Body"][0] for each in first] == ["0"]
        await until_async(lambda: room.bytes_taken == room.bytes_max)
        room.give_back(room.bytes_max)
        rest = (await penstock("Receive", Queue="q", Max=1000))["Messages"]
        assert [(each["Body"][0], each["Attempt"]) for each in rest] == [("1", 1), ("2", 1), ("3", 1)]
        assert len((await penstock("Peek", Queue="q", States=["leased"], Max=1000))["Messages"]) == 4
        await until_async(lambda: room.bytes_taken == 0)

    on_loop(on_node(story))


def test_messages_are_settled_each_by_itself(on_loop):
    async def story(penstock: Native) -> None:
        await penstock("CreateQueue", Queue="q", Settings={"queue.backoff.min.ms": "60000", "queue.backoff.jitter": "0"})
        await penstock("Send", Queue="q", Messages=[{"Body": str(number)} for number in range(4)])
        handles = [each["Handle"] for each in (await penstock("Receive", Queue="q", Max=4))["Messages"]]
        orders = [
            {"Handle": handles[0], "Verb": "done"},
            {"Handle": handles[1], "Verb": "release", "Reason": "no luck"},
            {"Handle": handles[2], "Verb": "extend", "DelayMs": 600_000},
            {"Handle": handles[3], "Verb": "reject", "Reason": "never"},
            {"Handle": "garbage", "Verb": "done"},
        ]
        verdicts = (await penstock("Settle", Queue="q", Orders=orders, Who="worker-1"))["Verdicts"]
        assert [each.get("Outcome", each.get("Code")) for each in verdicts] == ["ok", "ok", "ok", "ok", "invalid_handle"]
        assert verdicts[2]["DeadlineMs"] > 0 and verdicts[4]["Message"]
        again = (await penstock("Settle", Queue="q", Orders=orders[:2]))["Verdicts"]
        assert [each["Outcome"] for each in again] == ["gone", "lost"]
        counts = await penstock("Counts", Queue="q")
        assert set(counts) == {"Ready", "Leased", "Delayed", "Burying", "OldestMs", "Finished", "Dropped", "IsPaused"}
        assert (counts["Ready"], counts["Leased"], counts["Delayed"], counts["Finished"]) == (0, 1, 1, 2)

    tell(on_loop, story)


def test_a_message_is_found_peeked_at_and_cancelled(on_loop):
    async def story(penstock: Native) -> None:
        await penstock("CreateQueue", Queue="q")
        drafts = [{"Body": "now"}, {"Body": "later", "DelayMs": 86_400_000}, {"Body": "then"}]
        ids = [each["Id"] for each in (await penstock("Send", Queue="q", Messages=drafts))["Results"]]
        peeked = (await penstock("Peek", Queue="q"))["Messages"]
        assert [(each["Body"], each["State"]) for each in peeked] == [("now", "ready"), ("later", "delayed"), ("then", "ready")]
        assert [each["Id"] for each in (await penstock("Peek", Queue="q", States=["ready"], Max=1, After=ids[0]))["Messages"]] == [ids[2]]
        found = (await penstock("Find", Queue="q", Id=ids[1]))["Message"]
        assert found["ReadyAtMs"] > found["SentMs"] and (found["Attempts"], found["Who"]) == (0, "")
        for expected in (["ok", "unknown"], ["gone", "unknown"]):
            verdicts = (await penstock("Cancel", Queue="q", Ids=[ids[1], "no id"]))["Verdicts"]
            assert [each["Outcome"] for each in verdicts] == expected
        assert (await penstock("Find", Queue="q", Id=ids[1]))["Message"]["State"] == "finished"
        assert await penstock("Find", Queue="q", Id=ids[0][:-4] + "ffff") == {}
        assert await penstock.refusal("Find", Queue="q", Id="no id") == "invalid"
        assert await penstock.refusal("Peek", Queue="q", States=["odd"]) == "invalid"

    tell(on_loop, story)


def test_a_queue_is_paused_resumed_purged_and_rewound(on_loop):
    async def story(penstock: Native) -> None:
        await penstock("CreateQueue", Queue="q", Settings={"queue.retention": "keep"})
        await penstock("Send", Queue="q", Messages=[{"Body": "x"}])
        assert await penstock("Pause", Queue="q") == {}
        assert (await penstock("Counts", Queue="q"))["IsPaused"] is True
        assert await penstock("Receive", Queue="q") == {}
        assert await penstock("Resume", Queue="q") == {}
        assert await penstock("Purge", Queue="q") == {}
        assert await penstock("Receive", Queue="q") == {}
        assert await penstock("Rewind", Queue="q", ToMs=0) == {"Count": 1}
        assert (await penstock("Receive", Queue="q"))["Messages"][0]["Body"] == "x"

    tell(on_loop, story)


def test_dead_letters_are_counted_moved_and_told_of(on_loop):
    async def story(penstock: Native) -> None:
        await penstock("CreateQueue", Queue="dead")
        await penstock("CreateQueue", Queue="q", Settings={"queue.dead.letter": "dead", "queue.deliveries.max": "1"})
        await penstock("Send", Queue="q", Messages=[{"Body": body} for body in "abcdef"])
        taken = (await penstock("Receive", Queue="q", Max=6))["Messages"]
        orders = [{"Handle": each["Handle"], "Verb": "reject", "Reason": f"reason {each['Body']}"} for each in taken]
        await penstock("Settle", Queue="q", Orders=orders, Who="w")
        dead: list[Any] = []
        while len(dead) < 6:
            dead = (await penstock("Peek", Queue="dead"))["Messages"]
        assert {each["Id"] for each in dead} == {each["Id"] for each in taken}
        assert (await penstock("Find", Queue="dead", Id=taken[0]["Id"]))["Message"]["Body"] == "a"
        assert len((await penstock("Peek", Queue="dead", After=dead[0]["Id"]))["Messages"]) == 5
        dry = (await penstock("Redrive", Queue="dead", IsDryRun=True, Filter={"Reason": "reason a"}))["Task"]
        assert (dry["Status"], dry["ToMove"], dry["Moved"], dry["ByTarget"], dry["IsDryRun"]) == ("completed", 1, 0, {"q": 1}, True)
        task = (await penstock("Redrive", Queue="dead", Filter={"Source": "q", "Ids": [taken[1]["Id"]]}))["Task"]
        assert {"Handle", "Queue", "Target", "Status", "StartedMs", "ToMove", "Moved", "Failure", "PerSecondMax"} <= task.keys()
        assert (await penstock("Receive", Queue="q", WaitMs=10_000))["Messages"][0]["Body"] == "b"
        listed = [{"Status": "running"}]
        while listed[0]["Status"] == "running":
            listed = (await penstock("RedriveTasks", Queue="dead"))["Tasks"]
        assert (listed[0]["Handle"], listed[0]["Status"]) == (task["Handle"], "completed")
        slow = (await penstock("Redrive", Queue="dead", PerSecondMax=1))["Task"]
        assert (await penstock("CancelRedrive", Handle=slow["Handle"]))["Task"]["Status"] in ("cancelling", "cancelled")
        assert await penstock.refusal("CancelRedrive", Handle="none") == "no_such_task"

    tell(on_loop, story)


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("Send", {"Messages": []}),
    ("Send", {"Messages": [{"Body": "x"}] * 1001}),
    ("Send", {"Messages": [{}]}),
    ("Send", {"Messages": [{"Body": "x", "BodyBase64": "eA=="}]}),
    ("Send", {"Messages": [{"BodyBase64": "%"}]}),
    ("Send", {"Messages": [{"Body": "x", "Headers": [["name"]]}]}),
    ("Send", {"Messages": [{"Body": "x", "Headers": [["name", 7]]}]}),
    ("Send", {"Messages": [{"Body": "x", "Headers": [["name", {"Base64": "%"}]]}]}),
    ("Send", {"Messages": [{"Body": "x", "Headers": [["penstock.priority", "9"]]}]}),
    ("Send", {"Messages": "x"}),
    ("Receive", {"Max": 0}),
    ("Receive", {"Max": 1001}),
    ("Receive", {"WaitMs": 60_001}),
    ("Receive", {"LeaseMs": -1}),
    ("Receive", {"Max": True}),
    ("Settle", {"Orders": []}),
    ("Settle", {"Orders": [{"Handle": "x", "Verb": "explode"}]}),
    ("Settle", {"Orders": [{"Verb": "done"}]}),
    ("Cancel", {"Ids": []}),
    ("Peek", {"Max": 1001}),
    ("Rewind", {}),
    ("Rewind", {"ToMs": -1}),
    ("Rewind", {}),
    ("Rewind", {"ToMs": 0, "ToOffset": 0}),
    ("Rewind", {"ToOffset": -1}),
    ("Rewind", {"ToId": "none"}),
    ("Redrive", {"PerSecondMax": -1}),
    ("Redrive", {"Filter": {"Ids": "all"}}),
    ("Nonsense", {}),
]


def test_what_makes_no_sense_is_invalid(on_loop):
    async def story(penstock: Native) -> None:
        await penstock("CreateQueue", Queue="q")
        for action, body in WRONG:
            assert await penstock.refusal(action, **({"Queue": "q"} | body)) == "invalid", (action, body)
        assert (await penstock("Counts", Queue="q"))["Ready"] == 0
        for action, shape in NATIVE_SHAPES.items():
            if "Queue" in shape.required:
                assert await penstock.refusal(action) == "invalid"

    tell(on_loop, story)


def test_a_queue_that_is_not_there_is_missed_by_every_action(on_loop):
    sound: dict[str, Any] = {
        "Settings": {}, "Messages": [{"Body": "x"}], "Orders": [{"Handle": "x", "Verb": "done"}], "Ids": ["x"], "Id": "x", "ToMs": 0,
    }  # fmt: skip

    async def story(penstock: Native) -> None:
        for action, shape in NATIVE_SHAPES.items():
            if "Queue" in shape.required and action != "CreateQueue":
                body = {name: sound[name] for name in shape.required if name != "Queue"}
                assert await penstock.refusal(action, Queue="nowhere", **body) == "no_such_queue", action

    tell(on_loop, story)
