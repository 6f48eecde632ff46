"""The queue door over plain HTTP: who is let in, what is too much, and who goes away while waiting."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from all_loops import OnLoop
from http_talk import Answered, Http, on_node
from serving import Serving, virtual_timeout

from penstock.http.sqs import desk, room
from penstock.http.sqs.door import QueueDoor
from penstock.http.sqs.signing import Keys


async def ask(http: Http, action: str, body: object, path: str = "/", **headers: str) -> Answered:
    return await http.post(path, body, x_amz_target=action if "." in action else f"AmazonSQS.{action}", **headers)


async def make(http: Http, name: str = "q") -> str:
    answer = await ask(http, "CreateQueue", {"QueueName": name})
    assert answer.status == 200, answer.text
    return str(answer.json["QueueUrl"])


def error_of(answer: Answered) -> str:
    assert "x-amzn-query-error" in answer.headers and "x-amzn-requestid" in answer.headers
    return str(answer.json["__type"].partition("#")[2])


@pytest.mark.invariant("http.cross-site-refused")
def test_a_web_page_is_not_let_in_and_others_are_by_any_name(on_loop):
    async def story(serving: Serving, http: Http) -> None:
        await make(http)
        body = {"QueueName": "q"}
        for mark in (
            {"origin": "http://evil.example"},
            {"origin": "null"},
            {"sec_fetch_site": "cross-site"},
            {"sec_fetch_site": "same-origin"},
        ):
            answer = await ask(http, "GetQueueUrl", body, **mark)
            assert (answer.status, error_of(answer)) == (403, "AccessDeniedException"), mark
        rebound = {"host": "evil.example", "origin": "http://evil.example"}
        assert (await ask(http, "GetQueueUrl", body, **rebound)).status == 403
        tunnelled = await ask(http, "GetQueueUrl", body, host="sqs.tunnel.example:4566")
        assert tunnelled.json == {"QueueUrl": "http://sqs.tunnel.example:4566/000000000000/q"}
        preflight = await http.ask("OPTIONS", "/", origin="http://evil.example", access_control_request_headers="x-amz-target")
        assert not any(name.startswith("access-control") for name in preflight.headers)

    on_loop(on_node(story))


def test_other_pages_are_where_they_were(on_loop):
    async def story(serving: Serving, http: Http) -> None:
        assert (await http.get("/health")).status == 200
        assert (await http.post("/", {})).status == 405
        assert (await http.ask("GET", "/health", x_amz_target="AmazonSQS.ListQueues")).status == 200

    on_loop(on_node(story))


def test_answers_are_counted_by_action_and_code(on_loop):
    async def story(serving: Serving, http: Http) -> None:
        url = await make(http)
        for _ in range(2):
            await ask(http, "SendMessage", {"QueueUrl": url, "MessageBody": "x"})
        await ask(http, "SendMessage", {"QueueUrl": url, "MessageBody": ""})
        for name in ("Stranger.One", "Stranger.Two"):
            await ask(http, name, {})
        told = (await http.get("/metrics")).text
        for line in (
            'penstock_sqs_requests_total{action="AmazonSQS.SendMessage",code="OK"} 2',
            'penstock_sqs_requests_total{action="AmazonSQS.SendMessage",code="MissingParameter"} 1',
            'penstock_sqs_requests_total{action="unknown",code="InvalidAction"} 2',
            "penstock_sqs_long_polls 0",
        ):
            assert line in told

    on_loop(on_node(story))


def test_request_ids_differ(on_loop):
    async def story(serving: Serving, http: Http) -> None:
        ids = {(await ask(http, "ListQueues", {})).headers["x-amzn-requestid"] for _ in range(5)}
        assert len(ids) == 5 and all(len(each) == 36 for each in ids)

    on_loop(on_node(story))


@pytest.mark.parametrize("content", [b"{", b"\xff", b'{"a":' * 5_000, b'{"MaxResults":' + b"1" * 5_000 + b"}", b"NaN"])
def test_what_is_no_json_is_refused(on_loop: OnLoop, content: bytes):
    async def story(serving: Serving, http: Http) -> None:
        answer = await ask(http, "ListQueues", content)
        assert (answer.status, error_of(answer)) == (400, "SerializationException")

    on_loop(on_node(story))


def test_half_of_a_surrogate_pair_is_refused_wherever_it_stands(on_loop):
    async def story(serving: Serving, http: Http) -> None:
        url = await make(http)
        half = "\ud800"
        attribute = {"DataType": "String", "StringValue": half}
        for fields in ({"MessageBody": half}, {"MessageBody": "x", "MessageAttributes": {half: attribute}}, {"MessageBody": "x", half: 1}):
            assert error_of(await ask(http, "SendMessage", {"QueueUrl": url, **fields})) == "SerializationException"
        assert error_of(await ask(http, "TagQueue", {"QueueUrl": url, "Tags": {"tag": half}})) == "SerializationException"
        assert error_of(await ask(http, "GetQueueUrl", {"QueueName": half})) == "SerializationException"
        assert error_of(await ask(http, "Penstock.Send", {"Queue": "q", "Messages": [{"Body": half}]})) == "invalid"
        assert (await ask(http, "SendMessage", {"QueueUrl": url, "MessageBody": "\U0001f600"})).status == 200, "a whole pair"

    on_loop(on_node(story))


def test_a_body_has_its_bound_announced_or_not(on_loop):
    async def story(serving: Serving, http: Http) -> None:
        too_much = b"x" * (room.BODY_BYTES_MAX + 1)
        answer = await ask(http, "ListQueues", b"", content_length=str(len(too_much)))
        assert (answer.status, error_of(answer)) == (413, "RequestEntityTooLargeException")
        chunk = b"%x\r\n%s\r\n0\r\n\r\n" % (len(too_much), too_much)
        streamed = await ask(http, "ListQueues", chunk, content_length="", transfer_encoding="chunked")
        assert streamed.status == 413

    on_loop(on_node(story))


@pytest.mark.invariant("http.long-poll-ends-with-client")
def test_all_bodies_together_have_a_bound(on_loop: OnLoop, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(room, "BODIES_BYTES_MAX", 20_000)

    async def story(serving: Serving, http: Http) -> None:
        url = await make(http)
        answer = await ask(http, "SendMessage", {"QueueUrl": url, "MessageBody": "x" * 20_000})
        assert (answer.status, error_of(answer)) == (403, "RequestThrottled")
        for _ in range(20):  # What was refused, and what was answered, was given back.
            assert (await ask(http, "SendMessage", {"QueueUrl": url, "MessageBody": "x" * 19_000})).status == 200

    on_loop(on_node(story))


def test_where_keys_are_asked_for_the_head_alone_tells_who_may_not_come_in(on_loop):
    async def story(serving: Serving, http: Http) -> None:
        def refused(key_id: str, date: str, door: QueueDoor) -> str | None:
            scope, names = f"{key_id}/{date[:8]}/r/sqs/aws4_request", "host;x-amz-date;x-amz-target"
            signature = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders={names}, Signature=0"
            refusal = door.refusal_of_head({b"authorization": signature.encode(), b"x-amz-date": date.encode()})
            return None if refusal is None else refusal.kind.shape

        now = datetime.fromtimestamp(serving.env.wall_ms() / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
        with_keys, without = QueueDoor(serving.node, Keys({"AKID": "secret"})), QueueDoor(serving.node, Keys({}))
        assert refused("AKID", now, with_keys) is None, "only the body can tell"
        assert refused("OTHER", now, with_keys) == "UnrecognizedClientException"
        assert refused("AKID", "20200101T000000Z", with_keys) == "InvalidSignatureException"
        unsigned = with_keys.refusal_of_head({b"host": b"x"})
        assert unsigned is not None and unsigned.kind.shape == "MissingAuthenticationTokenException"
        assert refused("OTHER", now, without) is without.refusal_of_head({}) is None

    on_loop(on_node(story))


@pytest.mark.invariant("http.long-poll-ends-with-client")
def test_a_long_poll_ends_when_its_client_goes_and_takes_nothing_along(on_loop):
    async def story(serving: Serving, http: Http) -> None:
        url = await make(http)
        waiting = asyncio.create_task(ask(http, "ReceiveMessage", {"QueueUrl": url, "WaitTimeSeconds": 20}))
        queues = serving.node.queues
        await until_polls(http, 1)
        waiting.cancel()
        await until_polls(http, 0)
        await ask(http, "SendMessage", {"QueueUrl": url, "MessageBody": "x"})
        assert (await queues.counts("q")).ready == 1
        received = await ask(http, "ReceiveMessage", {"QueueUrl": url, "AttributeNames": ["ApproximateReceiveCount"]})
        assert received.json["Messages"][0]["Attributes"] == {"ApproximateReceiveCount": "1"}

    on_loop(on_node(story))


@pytest.mark.invariant("http.long-poll-ends-with-client")
def test_long_polls_have_a_bound_and_short_ones_go_on(on_loop: OnLoop, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(desk, "LONG_POLLS_MAX", 1)

    async def story(serving: Serving, http: Http) -> None:
        url = await make(http)
        waiting = asyncio.create_task(ask(http, "ReceiveMessage", {"QueueUrl": url, "WaitTimeSeconds": 20}))
        await until_polls(http, 1)
        second = await ask(http, "ReceiveMessage", {"QueueUrl": url, "WaitTimeSeconds": 20})
        assert (second.status, error_of(second)) == (403, "RequestThrottled")
        assert (await ask(http, "ReceiveMessage", {"QueueUrl": url})).json == {}
        await ask(http, "SendMessage", {"QueueUrl": url, "MessageBody": "x"})
        assert (await waiting).json["Messages"][0]["Body"] == "x"

    on_loop(on_node(story))


def test_a_record_of_a_kafka_client_is_a_message(on_loop):
    """Also one whose value is no text, or nothing at all."""

    async def story(serving: Serving, http: Http) -> None:
        url = await make(http)
        drafts = [(b"\xff\x00", [("h", b"text"), ("b", b"\xff")]), (b"", [])]
        for value, headers in drafts:
            await serving.node.queues.send("q", [_draft(value, headers)])
        wanted = {"QueueUrl": url, "MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"]}
        odd, empty = (await ask(http, "ReceiveMessage", wanted)).json["Messages"]
        assert odd["Body"] == "/wA="
        assert odd["MessageAttributes"] == {
            "h": {"DataType": "String", "StringValue": "text"},
            "b": {"DataType": "Binary", "BinaryValue": "/w=="},
            "penstock.body-encoding": {"DataType": "String", "StringValue": "base64"},
        }
        assert empty["Body"] == ""

    on_loop(on_node(story))


def _draft(value: bytes, headers: list[tuple[str, bytes]]) -> Any:
    from penstock.broker.queues.calls import Draft

    return Draft(value, headers=tuple(headers))


async def until_polls(http: Http, count: int) -> None:
    async with virtual_timeout(1.0):  # A poll that waits for its 20 seconds ends by itself later.
        while f"\npenstock_sqs_long_polls {count}\n" not in (await http.get("/metrics")).text:
            pass
