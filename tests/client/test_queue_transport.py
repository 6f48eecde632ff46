"""How a queue's client speaks HTTP, what it sends twice and what it does not, against a peer that answers by a script."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from client.client_side import silent_address
from client.scripted_door import DROP, SILENCE, ScriptedDoor, Step, scripted_door
from waiting import EXPIRES_S, NEVER_S, PATIENCE_S, until_async

from penstock.client.queues import (
    AsyncQueue,
    Closed,
    InDoubt,
    LeaseLost,
    NotAllowed,
    NotAvailable,
    QueueFull,
    QueueMissing,
    Refused,
    SendFailed,
    Unreachable,
)  # fmt: skip
from penstock.client.queues.gathering import AT_ONCE
from penstock.client.queues.http import WAITING_MAX, Address, Door, Lost, addresses
from penstock.client.queues.signing import Signer
from penstock.queues.dedup import DRAWN

SENT = {"Results": [{"Id": "one", "Partition": 0, "Offset": 0, "SentMs": 1, "IsDuplicate": False}]}
VERDICT = {"Verdicts": [{"Outcome": "ok"}]}


@pytest.fixture(autouse=True)
def no_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried again is so because the client heard of a failure, and not because it has waited for long enough."""
    monkeypatch.setattr("penstock.client.queues.caller.ANSWER_SECONDS", NEVER_S)


def converse(scenario: Callable[[ScriptedDoor, AsyncQueue], Awaitable[None]], *script: Step, **options: Any) -> ScriptedDoor:
    """Runs the scenario with a queue that asks a peer with this script."""

    async def whole() -> ScriptedDoor:
        async with scripted_door(*script) as door, AsyncQueue("emails", url=door.url, **options) as queue:
            async with asyncio.timeout(PATIENCE_S):
                await scenario(door, queue)
            return door

    return asyncio.run(whole())


def test_one_connection_carries_one_call_after_the_other():
    async def scenario(door: ScriptedDoor, queue: AsyncQueue) -> None:
        for _ in range(3):
            await queue.send("hello")

    door = converse(scenario, SENT, SENT, SENT)
    assert door.connections == 1
    assert [action for action, _ in door.asked] == ["Penstock.Send"] * 3


def test_a_few_calls_at_once_have_a_connection_each_and_the_others_one_request():
    async def scenario(door: ScriptedDoor, queue: AsyncQueue) -> None:
        assert await asyncio.gather(*[queue.send(str(number)) for number in range(AT_ONCE + 3)]) == ["one"] * (AT_ONCE + 3)

    door = converse(scenario, *[SENT] * AT_ONCE, {"Results": SENT["Results"] * 3})
    assert door.connections == AT_ONCE
    bodies = [[message["Body"] for message in wish["Messages"]] for _, wish in door.asked]
    assert sorted(bodies[:-1]) == [[str(number)] for number in range(AT_ONCE)]
    assert bodies[-1] == [str(AT_ONCE + number) for number in range(3)]


def test_however_many_wait_a_send_goes_beside_them():
    async def scenario(door: ScriptedDoor, queue: AsyncQueue) -> None:
        waiting = [asyncio.create_task(queue.receive(lease=30, wait=20)) for _ in range(WAITING_MAX + 5)]
        await until_async(lambda: len(door.asked) == WAITING_MAX)
        door.script[:] = [SENT]
        assert await queue.send("hello") == "one"
        assert door.connections == WAITING_MAX + 1
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    converse(scenario, *[SILENCE] * (WAITING_MAX + 5))


def test_a_send_whose_answer_was_lost_is_sent_again_with_the_same_dedup_id():
    async def scenario(door: ScriptedDoor, queue: AsyncQueue) -> None:
        assert await queue.send("hello", key="k") == "one"
        assert await queue.send("again") == "one"

    door = converse(scenario, DROP, DROP, SENT, SENT)
    drafts = [wish["Messages"][0] for _, wish in door.asked]
    assert drafts[0] == drafts[1] == drafts[2]
    assert (drafts[0]["Body"], drafts[0]["Key"]) == ("hello", "k")
    assert drafts[0]["Dedup"].encode().startswith(DRAWN) and drafts[0]["Dedup"] != drafts[3]["Dedup"]


def test_a_send_that_may_not_be_sent_twice_is_in_doubt_when_its_answer_is_lost():
    async def scenario(door: ScriptedDoor, queue: AsyncQueue) -> None:
        with pytest.raises(InDoubt, match=r"Penstock\.Send was sent"):
            await queue.send("hello")
        await queue.send("hello", dedup="mine")

    door = converse(scenario, DROP, DROP, SENT, resend=False)
    assert [wish["Messages"][0].get("Dedup") for _, wish in door.asked] == [None, "mine", "mine"]


def test_a_redrive_is_never_begun_twice():
    async def scenario(door: ScriptedDoor, queue: AsyncQueue) -> None:
        with pytest.raises(InDoubt):
            await queue.redrive()

    assert len(converse(scenario, DROP).asked) == 1


def test_a_node_that_says_not_now_is_asked_again():
    async def scenario(door: ScriptedDoor, queue: AsyncQueue) -> None:
        assert await queue.send("hello") == "one"

    refusal = (503, {"__type": "penstock#not_available", "message": "no leader"})
    broken = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 21\r\n\r\nInternal Server Error"
    assert len(converse(scenario, refusal, (500, {}), broken, SENT).asked) == 4


def test_a_node_that_says_not_now_of_some_messages_is_asked_again():
    not_now = {"Code": "not_available", "Message": "too few replicas"}
    one, two = ({**SENT["Results"][0], "Id": id} for id in ("one", "two"))

    async def scenario(door: ScriptedDoor, queue: AsyncQueue) -> None:
        assert await queue.send_many(["hello", "world"]) == ["one", "two"]

    door = converse(scenario, {"Results": [one, not_now]}, {"Results": [{**one, "IsDuplicate": True}, two]})
    assert door.asked[0] == door.asked[1]

    async def in_vain(door: ScriptedDoor, queue: AsyncQueue) -> None:
        with pytest.raises(SendFailed) as told:
            await queue.send_many(["hello", "world"])
        assert told.value.ids == ["one", None] and isinstance(told.value.problems[1], NotAvailable)

    assert len(converse(in_vain, {"Results": [one, not_now]}, patience=0).asked) == 1


def test_patience_ends():
    async def scenario(door: ScriptedDoor, queue: AsyncQueue) -> None:
        with pytest.raises(NotAvailable, match="no leader") as told:
            await queue.counts()
        assert told.value.code == "not_available"

    refusal = (503, {"__type": "penstock#not_available", "message": "no leader"})
    assert len(converse(scenario, refusal, patience=0).asked) == 1


def test_nobody_there_is_told_with_the_address_and_what_to_do():
    with silent_address() as address:

        async def scenario() -> None:
            async with AsyncQueue("emails", url=f"http://{address}", patience=EXPIRES_S) as queue:
                with pytest.raises(Unreachable, match=address) as told:
                    await queue.send("hello")
                assert "PENSTOCK_URL" in told.value.advice

        asyncio.run(scenario())


def test_workers_that_can_take_no_more_end_with_one_word_for_all():
    async def scenario(door: ScriptedDoor, queue: AsyncQueue) -> None:
        async def step(message: object) -> None:
            raise AssertionError("nothing was given out")

        with pytest.raises(QueueMissing):
            await queue.work(step, at_once=3)

    converse(scenario, *[(400, {"__type": "penstock#no_such_queue", "message": "gone"})] * 3)


def test_of_several_addresses_the_next_is_asked_when_one_fails():
    async def scenario() -> None:
        with silent_address() as dead:
            async with scripted_door(SENT, SENT) as door, AsyncQueue("emails", url=f"http://{dead},{door.url}") as queue:
                await queue.send("hello")
                await queue.send("hello")  # By now it knows whom to ask.
                assert len(door.asked) == 2

    asyncio.run(scenario())


def test_of_several_addresses_the_next_is_asked_when_one_can_do_nothing():
    """As a node that is cut off from its cluster: it answers every call, for as long as anybody has patience."""

    async def scenario() -> None:
        async with (
            scripted_door((503, {"__type": "penstock#not_available", "message": "no leader"})) as alone,
            scripted_door(SENT, SENT) as door,
            AsyncQueue("emails", url=f"{alone.url},{door.url}", access_key="AKID", secret_key="secret") as queue,
        ):
            await queue.send("hello")
            await queue.send("hello")
            assert (len(alone.asked), len(door.asked)) == (1, 2)
            assert all(f"Host: {door.url.removeprefix('http://')}\r\n".encode() in head for head in door.heads)

    asyncio.run(scenario())


def test_each_address_is_asked_once_whatever_the_patience():
    async def scenario() -> None:
        with silent_address() as dead, silent_address() as dead_too:
            async with (
                scripted_door(SENT) as door,
                AsyncQueue("emails", url=f"http://{dead},http://{dead_too},{door.url}", patience=0) as queue,
            ):
                assert await queue.send("hello") == "one"
            async with AsyncQueue("emails", url=f"http://{dead},http://{dead_too}", patience=0) as queue:
                with pytest.raises(Unreachable, match=f"{dead} cannot be reached: .*; {dead_too} cannot be reached"):
                    await queue.send("hello")
            async with scripted_door((503, {"__type": "penstock#not_available", "message": "no leader"})) as alone:
                async with AsyncQueue("emails", url=f"{alone.url},http://{dead}", patience=0) as queue:
                    with pytest.raises(NotAvailable, match="no leader"):
                        await queue.send("hello")
                assert len(alone.asked) == 1

    asyncio.run(scenario())


def test_a_request_that_may_not_be_sent_twice_goes_to_one_address_only():
    async def scenario() -> None:
        async with (
            scripted_door(DROP) as first,
            scripted_door(SENT) as second,
            AsyncQueue("emails", url=f"{first.url},{second.url}", patience=0, resend=False) as queue,
        ):
            with pytest.raises(InDoubt):
                await queue.send("hello")
            assert second.asked == []

    asyncio.run(scenario())


def test_tls_asked_of_a_port_that_has_none_is_told():
    async def scenario() -> None:
        async with broken_door() as port, AsyncQueue("emails", url=f"https://127.0.0.1:{port}", patience=0) as queue:
            with pytest.raises(Unreachable, match=r"does not speak TLS; say http:// instead of https://"):
                await queue.counts()

    asyncio.run(scenario())


@asynccontextmanager
async def broken_door() -> AsyncIterator[int]:
    """Says in plain HTTP that it did not understand, whatever comes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def test_a_cancelled_receive_closes_its_connection_and_the_queue_goes_on():
    async def scenario(door: ScriptedDoor, queue: AsyncQueue) -> None:
        waiting = asyncio.create_task(queue.receive(lease=30, wait=20))
        await until_async(lambda: door.asked)
        waiting.cancel()
        await door.gone.wait()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await queue.send("hello") == "one"

    converse(scenario, SILENCE, SENT)


def test_a_receive_that_is_tried_again_asks_for_the_same_messages_and_waits_no_longer_than_it_was_told():
    async def scenario(door: ScriptedDoor, queue: AsyncQueue) -> None:
        assert await queue.receive(lease=30, wait=0.5) == []

    door = converse(scenario, DROP, *[{}] * 10)
    wishes = [wish for _, wish in door.asked]
    assert wishes[0]["AttemptId"] == wishes[1]["AttemptId"]
    assert 500 >= wishes[0]["WaitMs"] > wishes[1]["WaitMs"] >= wishes[-1]["WaitMs"] >= 0


def test_a_settlement_that_is_tried_again_finds_its_own_work_done():
    lent = {"Id": "one", "Handle": "h", "Attempt": 1, "SentMs": 1, "DeadlineMs": 2, "Body": "hello"}

    async def scenario(door: ScriptedDoor, queue: AsyncQueue) -> None:
        (message,) = await queue.receive(lease=30)
        await message.nack(reason="no paper")
        assert message.is_settled

    door = converse(scenario, {"Messages": [lent]}, DROP, {"Verdicts": [{"Outcome": "lost"}]})
    assert door.asked[-1][1]["Orders"] == [{"Handle": "h", "Verb": "release", "Reason": "no paper"}]


def test_an_acknowledgement_that_finds_the_lease_lost_is_never_believed_to_be_done():
    """Had an earlier try been carried out, the message would be gone."""
    lent = {"Id": "one", "Handle": "h", "Attempt": 1, "SentMs": 1, "DeadlineMs": 2, "Body": "hello"}

    async def scenario(door: ScriptedDoor, queue: AsyncQueue) -> None:
        (message,) = await queue.receive(lease=30)
        with pytest.raises(LeaseLost):
            await message.ack()

    converse(scenario, {"Messages": [lent]}, DROP, {"Verdicts": [{"Outcome": "lost"}]})


def test_what_never_left_is_no_trace_of_an_earlier_try():
    lent = {"Id": "one", "Handle": "h", "Attempt": 1, "SentMs": 1, "DeadlineMs": 2, "Body": "hello"}

    async def scenario(door: ScriptedDoor, queue: AsyncQueue) -> None:
        (message,) = await queue.receive(lease=30)
        with pytest.raises(LeaseLost):
            await message.nack()

    converse(scenario, {"Messages": [lent]}, {"Verdicts": [{"Outcome": "lost"}]})


@pytest.mark.parametrize(
    ("code", "kind"),
    [("no_such_queue", QueueMissing), ("full", QueueFull), ("invalid", Refused), ("UnrecognizedClientException", NotAllowed)],
)
def test_a_refusal_has_the_class_that_a_program_looks_for_and_the_nodes_words(code: str, kind: type[Exception]):
    async def scenario(door: ScriptedDoor, queue: AsyncQueue) -> None:
        with pytest.raises(kind, match="because of this") as told:
            await queue.counts()
        assert told.value.code == code  # type: ignore[attr-defined]

    converse(scenario, (400, {"__type": f"penstock#{code}", "message": "because of this"}))


def test_of_many_messages_those_that_were_taken_are_told_apart_from_those_that_were_not():
    async def scenario(door: ScriptedDoor, queue: AsyncQueue) -> None:
        with pytest.raises(SendFailed, match="1 of 2 messages were not sent") as told:
            await queue.send_many(["one", "two"])
        assert told.value.ids == ["one", None]
        assert isinstance(told.value.problems[1], QueueFull)

    converse(scenario, {"Results": [*SENT["Results"], {"Code": "full", "Message": "no room"}]})


def test_large_messages_go_out_in_several_requests():
    async def scenario(door: ScriptedDoor, queue: AsyncQueue) -> None:
        await queue.send_many(["x" * (1 << 20)] * 8)

    five, three = {"Results": SENT["Results"] * 5}, {"Results": SENT["Results"] * 3}
    assert [len(wish["Messages"]) for _, wish in converse(scenario, five, three).asked] == [5, 3]


@pytest.mark.parametrize("reply", [b"SSH-2.0-OpenSSH_9.9\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n<html"])
def test_a_peer_that_is_no_node_is_told_so(reply: bytes):
    async def scenario(door: ScriptedDoor, queue: AsyncQueue) -> None:
        with pytest.raises((Unreachable, Refused), match=r"does not speak HTTP|no answer of a node"):
            await queue.counts()

    converse(scenario, reply, patience=0)


def test_chunks_are_put_together_and_a_farewell_is_heard():
    chunked = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\n{"a":\r\n3\r\n 1}\r\n0\r\n\r\n'

    async def scenario(door: ScriptedDoor, queue: AsyncQueue) -> None:
        raw = Door(addresses(door.url))
        reply = await raw.post(raw.address, {"X-Amz-Target": "t"}, b"{}", seconds=PATIENCE_S)
        assert (reply.status, reply.body) == (200, b'{"a": 1}')
        await raw.post(raw.address, {"X-Amz-Target": "t"}, b"{}", seconds=PATIENCE_S)

    assert converse(scenario, chunked, {}).connections == 2


def test_an_answer_that_takes_too_long_is_lost_and_may_have_had_its_effect():
    async def scenario(door: ScriptedDoor, queue: AsyncQueue) -> None:
        with pytest.raises(Lost, match=f"has not answered for {EXPIRES_S} s") as told:
            await Door(addresses(door.url)).post(*addresses(door.url), {"X-Amz-Target": "t"}, b"{}", seconds=EXPIRES_S)
        assert told.value.was_sent

    converse(scenario, SILENCE)


def test_a_closed_queue_says_so():
    async def scenario(door: ScriptedDoor, queue: AsyncQueue) -> None:
        await queue.close()
        with pytest.raises(Closed):
            await queue.counts()

    converse(scenario)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("127.0.0.1:8080", [Address("http", "127.0.0.1", 8080)]),
        ("https://queues.example", [Address("https", "queues.example", 443)]),
        ("http://a:1, http://[::1]:2/", [Address("http", "a", 1), Address("http", "::1", 2)]),
    ],
)
def test_addresses_are_read_as_people_write_them(text: str, found: list[Address]):
    assert addresses(text) == found


@pytest.mark.parametrize("text", ["", "ftp://host:1", "http://host:port", "http://:80", "http://host:0", "http://host:99999", "http://[::1"])
def test_what_is_no_address_is_refused_before_anything_is_asked(text: str):
    with pytest.raises(ValueError, match=r"(address|port) .* http://127\.0\.0\.1:8080$"):
        addresses(text)


def test_signatures_are_those_that_aws_clients_make():
    now, body = datetime.now(UTC), b'{"Queue":"emails"}'
    headers = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": "Penstock.Counts"}
    request = AWSRequest("POST", "http://127.0.0.1:8080/", dict(headers), body)
    request.context["timestamp"] = now.strftime("%Y%m%dT%H%M%SZ")
    request.headers["Host"] = "127.0.0.1:8080"
    request.headers["X-Amz-Date"] = request.context["timestamp"]
    auth = SigV4Auth(Credentials("AKID", "secret"), "sqs", "us-east-1")
    theirs = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    ours = Signer("AKID", "secret").headers("127.0.0.1:8080", headers, body, now)
    assert ours["Authorization"].endswith(f"Signature={theirs}")


def test_a_key_without_its_secret_is_refused():
    with pytest.raises(ValueError, match="belong together"):
        AsyncQueue("emails", access_key="AKID")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"delay": -1}, "delay must be a span"),
        ({"delay": "soon"}, "delay must be seconds or a timedelta"),
        ({"ttl": True}, "ttl must be seconds"),
        ({"at": datetime(2026, 1, 1)}, "at must be a datetime with a time zone"),
        ({"at": datetime.now(UTC), "delay": 1}, "delay and at exclude each other"),
        ({"headers": {"trace": 7}}, "header 'trace' must be bytes or text"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_what_a_message_cannot_have_is_refused_by_its_name(options: dict[str, Any], complaint: str):
    async def scenario(door: ScriptedDoor, queue: AsyncQueue) -> None:
        with pytest.raises((TypeError, ValueError), match=complaint):
            await queue.send("hello", **options)

    assert converse(scenario).asked == []


@pytest.mark.parametrize(
    ("choices", "complaint"),
    [
        ({"leese": 5}, "did you mean 'lease'"),
        ({"lease": "long"}, "lease must be seconds or a timedelta"),
        ({"deliveries": 2.5}, "deliveries must be a number"),
        ({"fifo": "yes"}, "fifo must be True or False"),
        ({"partitions": 0}, "partitions must be 1 or more"),
    ],
)
def test_what_a_queue_cannot_have_is_refused_by_its_name(choices: dict[str, Any], complaint: str):
    async def scenario(door: ScriptedDoor, queue: AsyncQueue) -> None:
        with pytest.raises((TypeError, ValueError), match=complaint):
            await queue.ensure(**choices)

    assert converse(scenario).asked == []


def test_spans_are_seconds_or_timedeltas():
    async def scenario(door: ScriptedDoor, queue: AsyncQueue) -> None:
        await queue.send("hello", delay=timedelta(minutes=1), ttl=1.5)

    ((_, wish),) = converse(scenario, SENT).asked
    assert (wish["Messages"][0]["DelayMs"], wish["Messages"][0]["TtlMs"]) == (60_000, 1_500)
