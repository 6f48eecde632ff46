"""How fast is a queue's ledger by itself, and what does it take in memory? No sockets, no disk: decide, encode, replay.

Three questions. Taking and settling in batches, as a door would have them carried out, at several batch sizes. A million messages in
flight: memory for each, how long the longest pause of the garbage collector is, and what a take and a settle cost then. Loading: a
checkpoint after ten million finished jobs, in order and with every thousandth one still unfinished, and a million leases.
Seconds are those of the processor: nothing here waits for anything, and others may be using the machine.
"""

import argparse
import gc
import time
import tracemalloc
from pathlib import Path
from random import Random

from benchmarks.machine import described, header
from benchmarks.tables import table
from penstock.queues import records
from penstock.queues.commands import COUNT_MAX, QUEUE_GROUP, Settle, Settlement, Take, Verb
from penstock.queues.policy import Policy
from penstock.queues.replies import Taken
from penstock.queues.state import LedgerState, Run
from penstock.vocabulary import Instant

WALL_MS = 1_800_000_000_000
POLICY = Policy(in_flight_max=1 << 40)


def new_state() -> LedgerState:
    state = LedgerState(lambda _: POLICY, Random(1).random)
    state.begin(Instant(0), WALL_MS)
    return state


def carry_out(state: LedgerState, command: Take | Settle) -> object:
    decision = state.decide(command, Instant(0), WALL_MS)
    for record in decision.records:
        records.encode(record)
        state.replay(record)
    return decision.replies[0][1]


def take(state: LedgerState, count: int) -> Taken:
    reply = carry_out(state, Take(0, QUEUE_GROUP, count, None, "worker-1"))
    assert isinstance(reply, Taken)
    return reply


def settle(state: LedgerState, taken: Taken) -> None:
    items = tuple(Settlement(each.offset, each.lease, Verb.DONE) for each in taken.deliveries)
    carry_out(state, Settle(0, QUEUE_GROUP, items))


def rounds(count: int, messages: int) -> tuple[float, float]:
    """Messages taken and settled per second, each counted alone."""
    state = new_state()
    state.learn([Run(0, messages, WALL_MS)], messages)
    taking = settling = 0.0
    for _ in range(messages // count):
        began = time.process_time()
        taken = take(state, count)
        then = time.process_time()
        settle(state, taken)
        taking += then - began
        settling += time.process_time() - then
    assert state.base(QUEUE_GROUP) == messages // count * count
    return messages / taking, messages / settling


def in_flight(messages: int) -> list[tuple[str, str]]:
    tracemalloc.start()
    state = new_state()
    state.learn([Run(0, messages, WALL_MS)], messages)
    for _ in range(messages // COUNT_MAX):
        take(state, COUNT_MAX)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    state.learn([Run(messages, messages + 10_000, WALL_MS)], messages + 10_000)
    began = time.process_time()
    for _ in range(100):
        settle(state, take(state, 100))
    each = (time.process_time() - began) / 10_000
    began = time.process_time()
    gc.collect()
    pause = time.process_time() - began
    began = time.process_time()
    drawing = state.checkpoint()
    copied = time.process_time() - began
    pieces = list(drawing)
    drawn = time.process_time() - began
    began = time.process_time()
    again = LedgerState(lambda _: POLICY, Random(1).random)
    again.restore(pieces)
    again.begin(Instant(0), WALL_MS)
    loaded = time.process_time() - began
    assert again.counts(QUEUE_GROUP, WALL_MS).leased == messages
    return [
        ("memory for each lease", f"{held / messages:,.0f} bytes"),
        ("take and settle of one message, in batches of 100", f"{each * 1e6:,.2f} µs"),
        ("a full garbage collection", f"{pause * 1e3:,.1f} ms"),
        ("beginning a checkpoint, in one go", f"{copied * 1e3:,.1f} ms"),
        ("drawing a checkpoint", f"{drawn:,.2f} s, {sum(map(len, pieces)) / 1e6:,.0f} MB"),
        ("loading it", f"{loaded:,.2f} s"),
    ]


def finished(jobs: int, *, straggler_every: int) -> tuple[float, int]:
    """Seconds to load a ledger of so many finished jobs, and the bytes of its checkpoint."""
    state = new_state()
    state.learn([Run(0, jobs, WALL_MS)], jobs)
    ledger = state.ledgers[QUEUE_GROUP]
    for start in range(0, jobs, straggler_every):
        ledger.done.add_range(start + (straggler_every < jobs), min(start + straggler_every, jobs))
    pieces = list(state.checkpoint())
    gc.collect()
    began = time.process_time()
    again = LedgerState(lambda _: POLICY, Random(1).random)
    again.restore(pieces)
    again.begin(Instant(0), WALL_MS)
    taken = time.process_time() - began
    open_jobs = jobs // straggler_every if straggler_every < jobs else 0
    assert again.counts(QUEUE_GROUP, WALL_MS).ready == open_jobs
    return taken, sum(map(len, pieces))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ledger", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--messages", type=int, default=200_000, help="of each round of taking and settling")
    parser.add_argument("--in-flight", type=int, default=1_000_000)
    parser.add_argument("--finished", type=int, default=10_000_000)
    given = parser.parse_args()
    print(header("A queue's ledger alone", described(Path(), "the ledger's core in one process, without sockets and without a disk")))
    rows = []
    for count in (1, 10, 100, 1_000):
        taking, settling = rounds(count, given.messages if count > 1 else given.messages // 10)
        rows.append((str(count), f"{taking:,.0f}", f"{settling:,.0f}"))
    print(table(("messages in a call", "taken/s", "settled/s"), rows), end="\n\n")
    print(table((f"{given.in_flight:,} in flight", ""), in_flight(given.in_flight)), end="\n\n")
    rows = []
    for words, every in (("in order", given.finished), ("every thousandth unfinished", 1_000), ("every second unfinished", 2)):
        seconds, size = finished(given.finished, straggler_every=every)
        rows.append((words, f"{seconds:,.2f} s", f"{size / 1e6:,.2f} MB"))
    print(table((f"loading {given.finished:,} finished jobs", "time", "checkpoint"), rows))


if __name__ == "__main__":
    main()
