"""The load generator must be trusted before its figures are: it notices what is wrong, and counts what is right."""

import asyncio
import struct
import threading

import pytest
from bench.moments import A_MOMENT, measured
from benchmarks.bare_loop import Client, Store
from benchmarks.load import frames
from benchmarks.load.end_to_end import EndToEndLoad
from benchmarks.load.fetching import FetchLoad, read_fetched
from benchmarks.load.frames import UnexpectedReply
from benchmarks.load.pipeline import Timing
from benchmarks.load.producing import ProduceLoad
from benchmarks.load.topics import Admin
from waiting import PATIENCE_S

HOST = "127.0.0.1"


@pytest.fixture(params=[False, True], ids=["no flush", "flush"])
def port(request, tmp_path):
    """A bare loop in a thread of its own."""
    started, loop = threading.Event(), asyncio.new_event_loop()
    found = []

    async def serve():
        store = Store(tmp_path, flushes=request.param)
        server = await loop.create_server(lambda: Client(store), HOST, 0)
        found.append(server.sockets[0].getsockname()[1])
        started.set()

    def run():
        loop.run_until_complete(serve())
        loop.run_forever()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(PATIENCE_S)
    yield found[0]
    loop.call_soon_threadsafe(loop.stop)
    thread.join(PATIENCE_S)


def test_what_is_produced_is_counted_and_can_be_fetched_whole(port):
    load = ProduceLoad("t", partitions=2, batch_bytes=50_000)
    produced = measured(load, HOST, port)
    assert produced.records == produced.requests * load.encoded_batch()[1] > 0
    assert produced.lap.own_cpu_s > 0
    batch, records = load.encoded_batch()
    admin = Admin(HOST, port)
    while min(admin.end_offsets("t", 2)) < 20 * records:  # At least one whole chunk of 1 MB.
        load.run(HOST, port, A_MOMENT)
    admin.close()
    fetched = measured(FetchLoad("t", 2, len(batch), records), HOST, port)
    assert fetched.records == fetched.bytes // len(batch) * records > 0


def test_one_request_may_carry_a_record_to_each_of_many_partitions(port):
    outcome = measured(ProduceLoad("many", partitions=20, connections=2, depth=1, partitions_per_request=10), HOST, port)
    assert outcome.records == 10 * outcome.requests > 0


def test_end_to_end_every_record_is_timed_from_when_it_was_due(port):
    outcome = EndToEndLoad("t", rate=500).run(HOST, port, Timing(0.1, 0.2))
    assert outcome.records == 150
    assert len(outcome.latencies) == 100
    assert all(0 < latency < PATIENCE_S for latency in outcome.latencies)


def test_a_refused_produce_ends_the_run():
    reply = _produce_reply(error=6)
    with pytest.raises(UnexpectedReply, match="error 6"):
        frames.check_produced(reply, "t", 1, 0)
    frames.check_produced(_produce_reply(error=0), "t", 1, 0)


def test_a_produce_reply_out_of_turn_ends_the_run():
    with pytest.raises(UnexpectedReply, match="out of order"):
        frames.check_produced(_produce_reply(error=0), "t", 1, correlation_id=7)


def test_a_fetch_reply_is_counted_up_to_its_last_whole_batch():
    first, second = _batch_at(10), _batch_at(13)
    offsets = {0: 10}
    records, size = read_fetched(_fetch_reply(first + second + _batch_at(16)[:70]), "t", offsets, 0)
    assert (records, size, offsets) == (6, 2 * len(first) + 70, {0: 16})


def test_a_gap_in_fetched_offsets_ends_the_run():
    with pytest.raises(UnexpectedReply, match="offset 14, format 2, where offset 13"):
        read_fetched(_fetch_reply(_batch_at(10) + _batch_at(14)), "t", {0: 10}, 0)


def test_a_fetch_that_begins_elsewhere_than_asked_ends_the_run():
    with pytest.raises(UnexpectedReply):
        read_fetched(_fetch_reply(_batch_at(10)), "t", {0: 9}, 0)


def test_a_batch_is_as_large_as_asked_for_and_no_larger():
    batch, records = frames.batch_of_bytes(16_384, 0)
    assert len(batch) <= 16_384 < len(frames.one_batch(records + 1, 0))


def _produce_reply(*, error: int) -> memoryview:
    return memoryview(struct.pack(">iih1si", 0, 1, 1, b"t", 1) + struct.pack(">ihqqq", 0, error, 0, -1, 0) + bytes(4))


def _batch_at(offset: int) -> bytes:
    return struct.pack(">q", offset) + frames.one_batch(3, 0)[8:]


def _fetch_reply(records: bytes) -> memoryview:
    head = struct.pack(">iihiih1si", 0, 0, 0, 0, 1, 1, b"t", 1)
    return memoryview(head + struct.pack(">ihqqqiii", 0, 0, 99, 99, 0, -1, -1, len(records)) + records)
