"""A queue among many, from Python: threads, forks, loops that are left, interrupts, asyncio, several partitions."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator

import pytest
from client.queue_side import one, waiting_for
from waiting import EXPIRES_S, NEVER_S, PATIENCE_S, until, until_async

from penstock.client import AsyncQueue, Draft, Queue
from penstock.testing import Broker


def test_threads_share_a_queue_and_none_gets_what_another_has(jobs: Queue):
    ids = jobs.send_many([str(number) for number in range(60)])
    done: list[str] = []
    is_over = threading.Event()

    def work() -> None:
        while not is_over.is_set():
            for message in jobs.messages(ahead=5, idle=EXPIRES_S):
                with message:
                    done.append(message.id)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: len(done) >= len(ids), lambda: f"only {len(done)} of {len(ids)} messages were done")
    finally:
        is_over.set()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "a thread did not end"
    assert sorted(done) == sorted(ids)


def test_a_loop_that_is_left_gives_back_what_it_had_taken_ahead(jobs: Queue):
    jobs.configure(backoff=NEVER_S)
    jobs.send_many(["a", "b", "c"])
    messages = jobs.messages(ahead=3)
    with next(messages) as first:
        assert first.text == "a"
    messages.close()  # type: ignore[attr-defined]
    assert [message.text for message in jobs.receive(3, wait=PATIENCE_S)] == ["b", "c"]


def test_a_fork_goes_on_with_connections_of_its_own(jobs: Queue):
    jobs.send_many(["done by the child", "by the parent"])
    taken = one(jobs)
    pid = os.fork()
    if pid == 0:
        try:
            taken.ack()
            jobs.send("by the child")
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    jobs.send("by the parent again")
    assert [message.text for message in jobs.receive(5)] == ["by the parent", "by the child", "by the parent again"]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A suite that a script has started in the background would pass interrupts over."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_a_wait_and_takes_no_message_along(penstock_broker: Broker, jobs: Queue):
    def interrupt_main_thread() -> None:
        until(lambda: waiting_for(penstock_broker, jobs))
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    interrupting = threading.Thread(target=interrupt_main_thread)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        jobs.receive(1, wait=PATIENCE_S)
    interrupting.join()
    jobs.send("hello")
    assert one(jobs).attempt == 1


def test_the_same_for_asyncio(penstock_broker: Broker, jobs: Queue):
    queue = AsyncQueue(jobs.name, url=penstock_broker.http_url)

    async def scenario() -> None:
        waiting = asyncio.create_task(queue.receive(1, wait=PATIENCE_S))
        await until_async(lambda: waiting_for(penstock_broker, jobs))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await queue.send_many(["a", "b"])
        async for message in queue:
            async with message:
                assert message.attempt == 1, "a wait that was cancelled has taken it along"
                if message.text == "b":
                    break
        assert (await queue.counts()).unfinished == 0

    asyncio.run(scenario())
    asyncio.run(scenario())  # Another loop, with the same queue.
    asyncio.run(queue.close())


def test_a_queue_of_several_partitions_gives_all_that_was_sent(penstock_broker: Broker):
    queue = penstock_broker.queue(partitions=3)
    ids = queue.send_many([Draft(str(number), key=str(number)) for number in range(30)])
    came: list[str] = []
    while len(came) < 30:
        messages = queue.receive(30, wait=PATIENCE_S)
        came += [message.id for message in messages]
        queue.ack_many(messages)
    assert sorted(came) == sorted(ids)
    assert all(queue.find(id) is None or queue.find(id).state == "finished" for id in ids[:3])  # type: ignore[union-attr]
