"""How a task finds its place: whether its batch is to be written, was written before, or is none of its business.

A run is one start of a query. The first task of a run that comes to the ledger takes it over for the run; from then on no other run can
commit. Before that it ends what the last run had committed and not ended, so that nobody can take the ids of those transactions before.

| the ledger's last batch | Spark brings | meaning |
|---|---|---|
| none, or a lower one | batch | to be written |
| the same, of another run | batch | was committed, and Spark did not hear of it: its rows are skipped |
| the same or a higher one, of this run | batch | an attempt that outlived its batch: it ends |
| a higher one | batch | the checkpoint was put back: refused, nobody knows what its batches hold now |
| of another query (`sinkId`, and the checkpoint was deleted) | the same or a lower one | as `onNewCheckpoint` says |
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum

from penstock.peers.client import Client
from penstock.pipeline.sink.ending import commit_all, described
from penstock.pipeline.sink.entries import Committed, SinkState, Token, committed_records, ended_records, forgotten_record
from penstock.pipeline.sink.failures import RowsLost, SinkFailure, TakenOver, WrongCheckpoint
from penstock.pipeline.sink.ledger import Ledger, Superseded
from penstock.pipeline.sink.options import LostBatch, NewCheckpoint, SinkOptions
from penstock.pipeline.sink.steps import Step, reached
from penstock.wire.batches import Record

ACTION = "~write-"  # Before the name of a batch write that nobody will resume. No sinkId can begin so.
TRIES_MAX = 10


@dataclass(frozen=True, slots=True)
class Work:
    """What a task or a commit is about."""

    sink: str
    batch: int
    run: str
    query: str = ""

    @property
    def is_action(self) -> bool:
        return self.sink.startswith(ACTION)


class Verdict(Enum):
    WRITE = "write"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Beginning:
    verdict: Verdict
    token: Token | None = None  # None where the driver takes the ledger itself.
    last_batch: int | None = None  # The last one that is committed.
    is_first_of_run: bool = True  # No batch of this run is committed yet: there may be orphans of the run before.
    rows_expected: int | None = None  # In a batch of another checkpoint that is taken for one that was written.


async def begin(client: Client, ledger: Ledger, work: Work, options: SinkOptions) -> Beginning:
    if work.is_action:
        return Beginning(Verdict.WRITE)  # It has a name that nobody had before: there is nothing to find.
    state = await ledger.read(work.sink)
    if state.run != work.run:
        state = await _take(client, ledger, work, state, options)
    last, verdict = state.last, _verdict(work, state.last, options)
    if last is None:
        return Beginning(verdict, state.token)
    is_same_number = verdict is Verdict.SKIP and last.query != work.query and last.batch == work.batch
    return Beginning(verdict, state.token, last.batch, last.run != work.run, last.rows if is_same_number else None)


async def take_again(ledger: Ledger, work: Work) -> SinkState:
    """For a run that holds the ledger, or held it last: makes sure that nothing which it sent before can still arrive."""
    state = await ledger.read(work.sink)
    for _ in range(TRIES_MAX):
        if state.run != work.run and state.begun is not None:
            return state
        try:
            await ledger.take(state.next_run(work.sink, work.run))
        except Superseded:
            state = await ledger.read(work.sink)
            continue
        return await ledger.read(work.sink)
    raise _too_many(work)


async def _take(client: Client, ledger: Ledger, work: Work, state: SinkState, options: SinkOptions) -> SinkState:
    await _finish_actions(client, ledger)
    settled: Committed | None = None
    for _ in range(TRIES_MAX):
        if state.is_over(work.run):
            raise TakenOver(f"run {work.run} of sink {work.sink!r} is over: a later one writes now", "nothing needs to be done")
        records: list[Record] = []
        if state.last is not None and state.last != settled:
            records = await _finish(client, state.last, options)
            settled = state.last
        if state.run == work.run and not records:
            return state
        try:
            await ledger.take(state.next_run(work.sink, work.run), records)
        except Superseded:  # Another task of this run was faster, most likely.
            state = await ledger.read(work.sink)
            continue
        reached(Step.RUN_TAKEN)
        state = await ledger.read(work.sink)
        settled = state.last if records else settled
    raise _too_many(work)


async def _finish(client: Client, last: Committed, options: SinkOptions) -> list[Record]:
    """Ends what was committed. The records say what to make of a batch that is lost in part."""
    seen = await described(client, [winner.transactional_id for winner in last.winners])
    try:
        await commit_all(client, last, seen, lambda: reached(Step.HALF_RECOVERED))
    except RowsLost:
        wall_ms = client.env.wall_ms()
        if options.lost_batch is LostBatch.REWRITE:
            return [forgotten_record(last.sink, last.batch, wall_ms)]
        if options.lost_batch is LostBatch.SKIP:
            return committed_records(replace(last, winners=()), None, wall_ms)
        raise
    return []


async def _finish_actions(client: Client, ledger: Ledger) -> None:
    """Batch writes have nobody who starts them again: whoever comes next ends what a driver that died had committed."""
    for sink, state in ledger.states().items():
        if not sink.startswith(ACTION) or state.last is None or state.token is None:
            continue
        seen = await described(client, [winner.transactional_id for winner in state.last.winners])
        with suppress(RowsLost):  # Its driver is gone, and its action has failed: there is nobody to tell.
            await commit_all(client, state.last, seen, lambda: None)
        with suppress(Superseded):  # Its own driver was faster.
            await ledger.append(state.token, ended_records(state.last, client.env.wall_ms()))


def _verdict(work: Work, last: Committed | None, options: SinkOptions) -> Verdict:
    if last is None or work.batch > last.batch:
        return Verdict.WRITE
    if last.run == work.run:
        raise TakenOver(f"batch {work.batch} of sink {work.sink!r} is committed: this attempt came too late", "nothing needs to be done")
    if last.query == work.query:
        if work.batch == last.batch:
            return Verdict.SKIP
        raise WrongCheckpoint(
            f"sink {work.sink!r} has committed batch {last.batch}, and batch {work.batch} is to be written: the checkpoint was put back to "
            "an older state, or the numbers were",
            "put the newest checkpoint back, or give the query a sinkId of its own and a startingOffsets that suits it",
        )
    if options.new_checkpoint is NewCheckpoint.FAIL:
        raise WrongCheckpoint(
            f"sink {work.sink!r} has committed batch {last.batch} for another checkpoint (query {last.query}), and this one begins with "
            f"batch {work.batch}",
            "say by onNewCheckpoint what that means: skip, where the source cuts the same batches again, so that those which are written "
            "are left out; or append, where it begins with what was not written yet",
        )
    return Verdict.SKIP if options.new_checkpoint is NewCheckpoint.SKIP else Verdict.WRITE


def _too_many(work: Work) -> SinkFailure:
    return SinkFailure(
        f"sink {work.sink!r} was taken over {TRIES_MAX} times while this task wanted it: several runs of it fight for it",
        "stop all but one of the queries that share this sinkId or checkpoint",
    )
