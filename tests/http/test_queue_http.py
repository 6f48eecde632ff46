"""The straight way of queue requests through HTTP, in virtual time: what uvicorn promises of a connection holds there too."""

import asyncio
import re

import pytest
from all_loops import OnLoop
from queue_http_talk import HEAD, PAGE, Talk, ask, on_http_port
from serving import virtual_timeout, virtually
from waiting import until_async

from penstock.errors import BrokenPromise
from penstock.http.door import GRACE_SECONDS, IDLE_SECONDS
from penstock.http.sqs import room
from penstock.http.sqs.room import SMALL_BYTES


def test_requests_that_come_at_once_are_answered_in_their_order_whichever_way_they_go(on_loop):
    async def story(talk: Talk) -> None:
        talk.say(ask(b"wait") + PAGE + ask(b"12345") + ask(b"1") + PAGE + ask(b""))
        await until_async(lambda: talk.door.asked == [b"wait"])
        talk.door.let_on.set()
        assert [(await talk.hear())[1] for _ in range(6)] == [b"4", b"page", b"5", b"1", b"page", b"0"]
        talk.say(ask(b"12"))
        assert (await talk.hear())[1] == b"2", "the connection goes on"

    on_loop(on_http_port(story))


def test_a_body_comes_in_any_pieces_with_a_length_or_in_chunks(on_loop):
    async def story(talk: Talk) -> None:
        chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"
        for byte in ask(b"some bytes") + chunked:
            talk.say(bytes([byte]))
            await talk.writer.drain()
            await asyncio.sleep(0)
        assert [(await talk.hear())[1] for _ in range(2)] == [b"10", b"11"]
        assert talk.door.asked == [b"some bytes", b"hello world"]

    on_loop(on_http_port(story))


@pytest.mark.parametrize(
    "request_", [ask(b""), ask(b"x", b"Connection: Keep-Alive"), ask(b"x", b"Connection: close"), ask(b"x", b"Odd_Name: 1"),
                 ask(b"x", b"Padded:  1 "), ask(b"x", head=HEAD.replace(b"POST / ", b"POST /0/q?a=b "))]
)  # fmt: skip
def test_nobody_can_tell_whether_a_request_came_whole(on_loop: OnLoop, request_: bytes):
    def heard(pieces: list[bytes]) -> list[object]:
        found: list[object] = []

        async def story(talk: Talk) -> None:
            for piece in pieces:
                talk.say(piece)
                await talk.writer.drain()
                await asyncio.sleep(0)
            await until_async(lambda: bool(talk.door.asked))
            talk.say(ask(b"last", b"Connection: close"))
            answers = await talk.reader.read()
            found.extend((re.sub(rb"date: .*", b"", answers), talk.door.asked, talk.door.room.bytes_taken))

        on_loop(on_http_port(story))
        return found

    assert heard([request_]) == heard([bytes([byte]) for byte in request_])


def test_a_request_that_was_begun_is_done_though_its_client_is_gone(on_loop):
    async def story(talk: Talk) -> None:
        talk.say(ask(b"x"))
        talk.writer.close()
        await until_async(lambda: talk.door.asked == [b"x"])
        await until_async(lambda: talk.door.room.bytes_taken == 0)

    on_loop(on_http_port(story))


def test_a_body_is_called_for_where_the_client_waits_for_that_and_not_where_it_would_be_too_much(on_loop):
    async def story(talk: Talk) -> None:
        talk.say(HEAD + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        assert await talk.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        talk.say(b"abc")
        assert (await talk.hear())[1] == b"3"
        talk.say(HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % (room.BODY_BYTES_MAX + 1))
        head, _ = await talk.hear()
        assert head.startswith(b"HTTP/1.1 413 ") and b"connection: close" in head
        assert await talk.is_ended()

    on_loop(on_http_port(story))


@pytest.mark.parametrize(
    "request_", [ask(b"x", b"Connection: close"), ask(b"x", head=HEAD.replace(b"1.1", b"1.0")),
                 ask(b"x", b"Connection: keep-alive", head=HEAD.replace(b"1.1", b"1.0"))]
)  # fmt: skip
def test_a_connection_ends_where_the_client_wants_no_more_of_it(on_loop: OnLoop, request_: bytes):
    async def story(talk: Talk) -> None:
        talk.say(request_)
        head, body = await talk.hear()
        assert b"connection: close" in head and body == b"1"
        assert await talk.is_ended()

    on_loop(on_http_port(story))


@pytest.mark.virtual_time("a deadline must expire")
def test_an_idle_connection_is_closed_and_one_that_waits_for_its_answer_is_not():
    async def story(talk: Talk) -> None:
        talk.say(ask(b"x"))
        await talk.hear()
        talk.say(ask(b"wait"))
        await asyncio.sleep(3 * IDLE_SECONDS)
        talk.door.let_on.set()
        assert (await talk.hear())[1] == b"4"
        idle_since = asyncio.get_running_loop().time()
        assert await talk.is_ended(IDLE_SECONDS + 2)
        assert IDLE_SECONDS - 1 < asyncio.get_running_loop().time() - idle_since < IDLE_SECONDS + 1

    virtually(on_http_port(story))


def test_a_long_poll_ends_when_its_client_goes_and_what_came_behind_it_never_begins(on_loop):
    async def story(talk: Talk) -> None:
        talk.say(ask(b"wait") + ask(b"never begun"))
        await until_async(lambda: bool(talk.door.asked))
        talk.writer.close()
        await until_async(lambda: talk.door.room.bytes_taken == 0)
        assert talk.door.asked == [b"wait"] and not talk.door.let_on.is_set()

    on_loop(on_http_port(story))


@pytest.mark.virtual_time("it moves time by hand")
@pytest.mark.parametrize("behind", [ask(b"never begun"), PAGE, ask(b"x") * 9 + PAGE, HEAD + b"Content-Length: 9\r\n\r\n1234"])
def test_a_long_poll_ends_when_its_client_goes_also_where_requests_came_later(behind: bytes):
    async def story(talk: Talk) -> None:
        talk.say(ask(b"wait"))
        await until_async(lambda: bool(talk.door.asked))
        talk.say(behind)
        await asyncio.sleep(1)
        talk.writer.close()
        async with asyncio.timeout(1.0):
            await until_async(lambda: talk.door.polls == 0)
            await until_async(lambda: talk.door.room.bytes_taken == 0)
        assert talk.door.asked == [b"wait"] and not talk.door.let_on.is_set()

    virtually(on_http_port(story))


@pytest.mark.parametrize("last", [ask(b"12345"), ask(b"wait12345"), PAGE], ids=["queue", "poll", "page"])
def test_who_ends_its_side_after_its_requests_is_answered_and_then_the_connection_ends(on_loop: OnLoop, last: bytes):
    async def story(talk: Talk) -> None:
        talk.door.delay_s = 1.0
        talk.say(ask(b"1") + PAGE + last)
        talk.writer.write_eof()
        answers = [(await talk.hear())[1] for _ in range(3)]
        assert answers == [b"1", b"page", {ask(b"12345"): b"5", PAGE: b"page"}.get(last, b"{}")]
        assert await talk.is_ended()

    on_loop(on_http_port(story))


def test_a_long_poll_ends_with_nothing_when_its_client_ends_its_side(on_loop):
    async def story(talk: Talk) -> None:
        talk.say(ask(b"wait"))
        await until_async(lambda: talk.door.polls == 1)
        talk.writer.write_eof()
        head, body = await talk.hear()
        assert head.startswith(b"HTTP/1.1 200 ") and body == b"{}" and await talk.is_ended()

    on_loop(on_http_port(story))


def test_half_a_request_at_the_end_does_not_keep_those_before_it_from_being_answered(on_loop):
    async def story(talk: Talk) -> None:
        talk.door.delay_s = 1.0
        talk.say(ask(b"1") + HEAD + b"Content-Length: 9\r\n\r\n1234")
        talk.writer.write_eof()
        assert (await talk.hear())[1] == b"1" and await talk.is_ended()
        assert talk.door.asked == [b"1"]

    on_loop(on_http_port(story))


def test_the_room_of_a_body_that_never_ends_comes_back_with_its_client(on_loop):
    async def story(talk: Talk) -> None:
        begun = b"x" * (SMALL_BYTES + 5)
        talk.say(HEAD + b"Content-Length: 100000\r\n\r\n" + begun)
        await until_async(lambda: talk.door.room.bytes_taken == len(begun))
        talk.writer.close()
        async with virtual_timeout(1.0):  # One that stalls is cut off in the end anyway.
            await until_async(lambda: talk.door.room.bytes_taken == 0)
        assert talk.door.asked == []

    on_loop(on_http_port(story))


def test_a_body_for_which_there_is_no_room_is_refused_and_the_connection_goes_on(on_loop: OnLoop, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(room, "BODIES_BYTES_MAX", 50_000)

    async def story(talk: Talk) -> None:
        talk.say(ask(b"x" * 50_001) + ask(b"x" * 50_000))
        head, body = await talk.hear()
        assert head.startswith(b"HTTP/1.1 403 ") and b"RequestThrottled" in body
        assert (await talk.hear())[1] == b"50000"

    on_loop(on_http_port(story))


@pytest.mark.virtual_time("it moves time by hand")
def test_a_large_answer_is_held_until_the_client_has_taken_it():
    async def story(talk: Talk) -> None:
        size = talk.door.answer_bytes = 8 << 20
        talk.say(ask(b"x"))
        await talk.reader.readexactly(1)
        assert talk.door.reply_room.bytes_taken == size + 1, "as it is sent"
        talk.say(ask(b"next"))
        await asyncio.sleep(1)
        assert talk.door.asked == [b"x"], "the next one waits"
        await talk.reader.readexactly(size)
        await until_async(lambda: talk.door.asked == [b"x", b"next"])
        await talk.reader.readexactly(size)
        await until_async(lambda: talk.door.reply_room.bytes_taken == 0)

    virtually(on_http_port(story))


@pytest.mark.virtual_time("it moves time by hand")
def test_an_answer_under_way_is_given_when_the_server_stops():
    async def story(talk: Talk) -> None:
        talk.say(ask(b"wait"))
        await until_async(lambda: bool(talk.door.asked))
        closing = asyncio.create_task(talk.server.close())
        await asyncio.sleep(GRACE_SECONDS / 2)
        talk.door.let_on.set()
        head, body = await talk.hear()
        assert b"connection: close" in head and body == b"4"
        await closing

    virtually(on_http_port(story))


def test_who_is_not_answered_in_the_grace_hears_that_the_node_stops(on_loop):
    async def story(talk: Talk) -> None:
        talk.say(ask(b"wait"))
        await until_async(lambda: bool(talk.door.asked))
        await talk.server.close()
        head, body = await talk.hear()
        assert head.startswith(b"HTTP/1.1 503 ") and b"stopping" in body

    on_loop(on_http_port(story))


@pytest.mark.parametrize("failure", [BrokenPromise("an offset went backwards"), OSError("the password is swordfish")])
def test_a_failure_is_logged_and_a_broken_promise_reaches_the_loop(on_loop: OnLoop, failure: Exception, caplog: pytest.LogCaptureFixture):
    told: list[BaseException] = []

    async def story(talk: Talk) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["exception"]))
        talk.door.failure = failure
        talk.say(ask(b"x"))
        head, body = await talk.hear()
        assert head.startswith(b"HTTP/1.1 500 ") and b"InternalFailure" in body and str(failure).encode() not in body
        assert await talk.is_ended()

    on_loop(on_http_port(story))
    assert told == ([failure] if isinstance(failure, BrokenPromise) else [])
    assert any(record.exc_info is not None and record.exc_info[1] is failure for record in caplog.records)


OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"


@pytest.mark.parametrize("cut", [1, 60, 150, 195, 230, 233, 1_000])
def test_an_offer_to_go_on_in_another_protocol_is_ignored_and_nothing_is_lost(on_loop: OnLoop, cut: int):
    async def story(talk: Talk) -> None:
        request = HEAD + OFFER + b"Content-Length: 5\r\n\r\nhello"
        page = b"GET /page HTTP/1.1\r\nHost: x\r\n" + OFFER + b"\r\n"
        for content in (request, page + request + page, HEAD + OFFER + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"):
            talk.say(content[:cut])
            await talk.writer.drain()
            await asyncio.sleep(0)
            talk.say(content[cut:])
            for wanted in (b"page", b"5", b"page") if content.startswith(b"GET") else (b"5",):
                head, body = await talk.hear()
                assert head.startswith(b"HTTP/1.1 200") and body == wanted
        talk.say(request * 600)
        assert [(await talk.hear())[1] for _ in range(600)] == [b"5"] * 600
        talk.say(HEAD + b"Content-Length: 2\r\n\r\nhi")
        assert (await talk.hear())[1] == b"2", "the connection is as good as before"

    on_loop(on_http_port(story))


def test_an_offer_of_a_client_that_wants_no_more_is_answered_and_the_connection_ends(on_loop):
    async def story(talk: Talk) -> None:
        talk.say(HEAD + OFFER.replace(b"Upgrade, ", b"close, Upgrade, ") + b"Content-Length: 5\r\n\r\nhello")
        head, body = await talk.hear()
        assert (b"connection: close" in head, body) == (True, b"5")
        assert await talk.is_ended()

    on_loop(on_http_port(story))


def test_nobody_is_connected_to_others(on_loop):
    async def story(talk: Talk) -> None:
        talk.say(b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n" + OFFER + b"\r\n")
        assert b" 400 " in (await talk.hear())[0]
        assert await talk.is_ended()

    on_loop(on_http_port(story))
