"""Peers that are waited for: who send nothing, or too little, of a request, who do not take their answers, and crowds of them.

In virtual time, with the bounds that the product has.
"""

import asyncio
import tracemalloc

import pytest
from all_loops import OnLoop
from queue_http_talk import HEAD, PAGE, Talk, ask, on_http_port
from serving import virtually
from waiting import until_async

from penstock.http import door as doors
from penstock.http import patience
from penstock.http.door import IDLE_SECONDS
from penstock.http.gathering import PIECES_MAX
from penstock.http.patience import STALLED_SECONDS_WHEN_CROWDED
from penstock.http.sqs.room import BODY_BYTES_MAX, MIDDLE_BYTES, SENDING_SECONDS_WHEN_CROWDED, SMALL_BYTES

HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
MIB = 1 << 20
STALLED_S = 60.0  # What the door of these tests grants a peer.
A_LOOK_S = 1.0  # Between two looks at all connections.


def now() -> float:
    return asyncio.get_running_loop().time()


def begun(size: int, *, announced: int) -> bytes:
    return HEAD + b"Content-Length: %d\r\n\r\n" % announced + b"x" * size


# Bodies


@pytest.mark.virtual_time("a bound of time expires")
@pytest.mark.parametrize("sent", [0, 5, 100_000], ids=["nothing", "little", "much"])
def test_a_body_that_does_not_come_is_not_waited_for(sent: int):
    async def story(talk: Talk) -> None:
        talk.say(begun(sent, announced=200_000))
        begun_at = now()
        head, body = await talk.hear()
        assert STALLED_S < now() - begun_at < STALLED_S + 2 * A_LOOK_S
        assert head.startswith(b"HTTP/1.1 408 ") and b"connection: close" in head and b"RequestTimeout" in body
        assert await talk.is_ended()
        assert (talk.door.stalled, talk.door.room.bytes_taken) == (1, 0)

    virtually(on_http_port(story))


@pytest.mark.virtual_time("a bound of time expires")
def test_a_body_that_trickles_is_not_waited_for_either():
    async def story(talk: Talk) -> None:
        talk.say(begun(MIB, announced=MIB + 10_000))
        for _ in range(200):
            if talk.door.stalled:
                break
            talk.say(b"x")
            await asyncio.sleep(1)
        assert talk.door.stalled == 1, "a byte now and then is no progress"
        head, _ = await talk.hear()
        assert head.startswith(b"HTTP/1.1 408 ")

    virtually(on_http_port(story))


@pytest.mark.virtual_time("a bound of time expires")
def test_a_large_body_has_time_for_each_of_its_mebibytes():
    async def story(talk: Talk) -> None:
        talk.say(begun(0, announced=5 * MIB))
        for _ in range(5):
            await asyncio.sleep(STALLED_S - 2 * A_LOOK_S)
            talk.say(b"x" * MIB)
        assert (await talk.hear())[1] == b"%d" % (5 * MIB)

    virtually(on_http_port(story))


@pytest.mark.virtual_time("a bound of time expires")
def test_a_body_that_nobody_wants_is_not_waited_for_long():
    async def story(talk: Talk) -> None:
        talk.door.stalled_seconds_max = IDLE_SECONDS / 6
        talk.say(b"POST /page HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n")
        await talk.hear()
        assert await talk.is_ended(IDLE_SECONDS / 6 + 2 * A_LOOK_S)

    virtually(on_http_port(story))


@pytest.mark.virtual_time("a bound of time expires")
def test_who_was_answered_before_its_body_came_is_not_waited_for_when_it_has():
    async def story(talk: Talk) -> None:
        talk.door.stalled_seconds_max, talk.door.asks_for_keys = IDLE_SECONDS / 6, True
        talk.say(begun(0, announced=5))
        assert (await talk.hear())[0].startswith(b"HTTP/1.1 400 ")
        talk.say(b"12345")
        await asyncio.sleep(IDLE_SECONDS / 2)
        talk.say(ask(b"1", b"Authorization: x"))
        assert ((await talk.hear())[1], talk.door.stalled) == (b"1", 0)

    virtually(on_http_port(story))


@pytest.mark.virtual_time("a bound of time expires")
def test_one_who_waits_for_the_node_is_not_cut_off():
    async def story(talk: Talk) -> None:
        talk.say(ask(b"wait") + ask(b"behind it"))
        await asyncio.sleep(10 * STALLED_S)
        talk.door.let_on.set()
        assert [(await talk.hear())[1] for _ in range(2)] == [b"4", b"9"]

    virtually(on_http_port(story))


@pytest.mark.virtual_time("it moves time by hand")
def test_small_requests_find_room_whatever_others_take():
    async def story(talk: Talk) -> None:
        stalled = [await talk.another() for _ in range(9)]
        for each in stalled:
            each.say(begun(BODY_BYTES_MAX - 1, announced=BODY_BYTES_MAX))
            await each.writer.drain()
        await until_async(lambda: talk.door.room.bytes_taken > 5 * BODY_BYTES_MAX)
        await asyncio.sleep(A_LOOK_S)
        for size in (10, SMALL_BYTES, MIDDLE_BYTES):
            talk.say(ask(b"x" * size))
            assert (await talk.hear())[1] == b"%d" % size

    virtually(on_http_port(story))


@pytest.mark.virtual_time("a bound of time expires")
def test_who_sends_slowly_makes_room_for_others():
    async def story(talk: Talk) -> None:
        stalled = [await talk.another() for _ in range(5)]
        for number, each in enumerate(stalled, 1):
            each.say(begun(BODY_BYTES_MAX - 1, announced=BODY_BYTES_MAX))
            await until_async(lambda number=number: talk.door.room.bytes_taken == number * (BODY_BYTES_MAX - 1))
        await asyncio.sleep(SENDING_SECONDS_WHEN_CROWDED)
        later = await talk.another()
        later.say(begun(BODY_BYTES_MAX - 1, announced=BODY_BYTES_MAX))
        await until_async(lambda: talk.door.room.bytes_taken == 6 * (BODY_BYTES_MAX - 1))
        talk.say(ask(b"x" * BODY_BYTES_MAX))
        assert (await talk.hear())[1] == b"%d" % BODY_BYTES_MAX
        head, body = await stalled[0].hear()
        assert head.startswith(b"HTTP/1.1 403 ") and b"RequestThrottled" in body and await stalled[0].is_ended()
        assert talk.door.room.bytes_taken == 5 * (BODY_BYTES_MAX - 1), "one was enough"
        later.say(b"x")
        assert (await later.hear())[1] == b"%d" % BODY_BYTES_MAX, "who has just begun is left alone"

    virtually(on_http_port(story))


def test_requests_in_line_take_room_however_small_they_are(on_loop):
    async def story(talk: Talk) -> None:
        talk.say(ask(b"wait") + ask(b"x" * 100) * 20)
        await until_async(lambda: talk.door.room.bytes_taken == 2_000)
        talk.door.let_on.set()
        assert [(await talk.hear())[1] for _ in range(21)] == [b"4"] + [b"100"] * 20
        await until_async(lambda: talk.door.room.bytes_taken == 0)

    on_loop(on_http_port(story))


def test_who_may_not_come_in_is_told_before_its_body_comes(on_loop):
    async def story(talk: Talk) -> None:
        talk.door.asks_for_keys = True
        talk.say(begun(1_000_000, announced=BODY_BYTES_MAX))
        assert b"MissingAuthenticationToken" in (await talk.hear())[1]
        assert talk.door.room.bytes_taken == 0
        talk.say(b"x" * (BODY_BYTES_MAX - 1_000_000) + ask(b"12", b"Authorization: known"))
        assert (await talk.hear())[1] == b"2", "the connection goes on behind it"

    on_loop(on_http_port(story))


@pytest.mark.virtual_time("a bound of time expires")
def test_a_refused_body_that_never_ends_is_cut_off():
    async def story(talk: Talk) -> None:
        talk.door.asks_for_keys = True
        talk.say(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        await talk.hear()
        chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        with pytest.raises(ConnectionError):
            for _ in range(1_000):
                talk.say(chunk)
                await talk.writer.drain()

    virtually(on_http_port(story))


def test_small_chunks_take_no_more_memory_than_their_bytes(on_loop):
    async def story(talk: Talk) -> None:
        count = 60_000
        talk.say(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        tracemalloc.start()
        for _ in range(100):
            talk.say(b"2\r\nab\r\n" * (count // 100))
            await talk.writer.drain()
        await until_async(lambda: talk.door.room.bytes_taken == 2 * count)
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert taken < 2 * count + MIB // 2
        talk.say(b"0\r\n\r\n")
        assert (await talk.hear())[1] == b"%d" % (2 * count)

    on_loop(on_http_port(story))


def test_a_body_has_a_bound_on_its_pieces(on_loop):
    async def story(talk: Talk) -> None:
        talk.say(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * (PIECES_MAX + 1))
        assert (await talk.hear())[0].startswith(b"HTTP/1.1 413 ") and await talk.is_ended()

    on_loop(on_http_port(story))


# Crowds


def test_a_crowd_that_is_at_work_is_told_so_and_the_nodes_health_can_be_asked_after(on_loop: OnLoop, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doors, "CONNECTIONS_MAX", 1)

    async def story(talk: Talk) -> None:
        talk.say(ask(b"wait"))
        await until_async(lambda: talk.door.asked == [b"wait"])
        for question in (ask(b"x"), PAGE):
            late = await talk.another()
            late.say(question)
            assert (await late.hear())[0].startswith(b"HTTP/1.1 503 ")
        prober = await talk.another()
        for _ in range(2):
            prober.say(HEALTH)
            assert (await prober.hear())[1] == b"page"
        talk.door.let_on.set()
        assert (await talk.hear())[1] == b"4" and talk.door.asked == [b"wait"]
        talk.say(ask(b"x"))
        assert (await talk.hear())[1] == b"1", "who was there before is served"

    on_loop(on_http_port(story))


@pytest.mark.virtual_time("a bound of time expires")
@pytest.mark.parametrize("beginning", [b"", b"POST / HT", begun(1, announced=48), begun(100_000, announced=200_000), PAGE])
def test_who_is_waited_for_longest_makes_place_for_who_comes(beginning: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doors, "CONNECTIONS_MAX", 4)

    async def story(talk: Talk) -> None:
        talk.say(ask(b"x"))
        await talk.hear()
        talk.say(ask(b"wait"))  # At work, and so not waited for.
        await until_async(lambda: len(talk.door.asked) == 2)
        crowd = []
        for _ in range(30):
            each = await talk.another()
            each.say(beginning)
            await each.writer.drain()
            crowd.append(each)
            await asyncio.sleep(0.002)
        async with asyncio.timeout(A_LOOK_S):  # No other bound would end it so soon.
            await crowd[0].end()
        late = await talk.another()
        late.say(ask(b"12345"))
        assert (await late.hear())[1] == b"5"
        late.say(HEALTH)
        assert (await late.hear())[1] == b"page"
        talk.door.let_on.set()
        assert (await talk.hear())[1] == b"4"

    virtually(on_http_port(story))


def test_more_than_a_few_too_many_are_not_let_in(on_loop: OnLoop, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doors, "CONNECTIONS_MAX", 1)
    monkeypatch.setattr(patience, "PLACES_FOR_HEALTH", 0)

    async def story(talk: Talk) -> None:
        talk.say(ask(b"wait"))
        await until_async(lambda: bool(talk.door.asked))
        assert await (await talk.another()).is_ended(A_LOOK_S)

    on_loop(on_http_port(story))


# Answers


@pytest.mark.virtual_time("a bound of time expires")
@pytest.mark.parametrize("size", [100_000, 8 * MIB])
def test_who_does_not_take_its_answer_is_cut_off_and_holds_nothing(size: int):
    async def story(talk: Talk) -> None:
        talk.door.answer_bytes = size
        slow = await talk.another()
        slow.writer.transport.pause_reading()
        for _ in range(80):
            slow.say(ask(b"x"))
        await until_async(lambda: talk.door.stalled > 0)
        await until_async(lambda: talk.door.replies.bytes_taken == talk.door.reply_room.bytes_taken == talk.door.room.bytes_taken == 0)

    virtually(on_http_port(story))


@pytest.mark.virtual_time("a bound of time expires")
@pytest.mark.parametrize("said", [b"x", b"wait"], ids=["at once", "after a long poll"])
def test_who_takes_its_answer_slowly_but_takes_it_is_waited_for(said: bytes):
    async def story(talk: Talk) -> None:
        talk.door.answer_bytes = 8 * MIB
        talk.say(ask(said))
        if said == b"wait":
            await asyncio.sleep(2 * STALLED_S)  # It is looked at meanwhile.
            talk.door.let_on.set()
        for _ in range(8):
            await talk.reader.readexactly(MIB)
            await asyncio.sleep(STALLED_S - 2 * A_LOOK_S)
        assert talk.door.stalled == 0

    virtually(on_http_port(story))


@pytest.mark.virtual_time("a bound of time expires")
def test_while_answers_fill_their_room_nobody_is_waited_for_long():
    async def story(talk: Talk) -> None:
        talk.door.answer_bytes = 8 * MIB
        slow = await talk.another()
        slow.writer.transport.pause_reading()
        slow.say(ask(b"x"))
        await asyncio.sleep(4 * STALLED_SECONDS_WHEN_CROWDED)
        assert talk.door.stalled == 0
        talk.door.replies.bytes_max = 10 * MIB
        await asyncio.sleep(2 * A_LOOK_S)
        assert talk.door.stalled == 1

    virtually(on_http_port(story))
