"""The driver's half: the commit of a batch, or its abort.

    every transaction seen open  →  commit record in the ledger  →  every transaction ended  →  attempts that lost released
                                    ^ the commit point

Rules:
- Before the commit point anything may fail: nothing counts, and the batch is written again.
- After it nothing is aborted any more. Ends are repeated until they succeed, here or by the next run.
- An abort first makes sure that no commit record of its own can still arrive, then looks whether one has.
- What was seen open before the commit record was accepted, and is none of the winners, is of an attempt that lost or of an earlier run: a
  later run could begin only by making the leader refuse that record.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from penstock.peers.client import Client
from penstock.peers.failures import PeerFailure
from penstock.pipeline.sink.ending import abort_all, abort_seen, check_open, commit_all, described, open_of, until_seen
from penstock.pipeline.sink.entries import Committed, Token, Winner, committed_records, ended_records
from penstock.pipeline.sink.failures import SinkFailure, TakenOver, WrongCheckpoint
from penstock.pipeline.sink.ledger import Ledger, Superseded
from penstock.pipeline.sink.names import Place, neighbours
from penstock.pipeline.sink.runs import Beginning, Verdict, Work, take_again
from penstock.pipeline.sink.steps import Step, reached

TRIES_MAX = 3


@dataclass(frozen=True, slots=True)
class Report:
    """What a task tells the driver."""

    work: Work
    place: Place
    rows: int
    beginning: Beginning | None = None  # None where the task had no row, and so asked nobody.
    winner: Winner | None = None  # The transaction that it left open.

    @property
    def is_skipped(self) -> bool:
        return self.beginning is not None and self.beginning.verdict is Verdict.SKIP


async def commit(client: Client, ledger: Ledger, reports: Sequence[Report]) -> None:
    staged = [report for report in reports if report.winner is not None]
    _check_agreement(reports, staged)
    if not staged:
        return
    work, winners = staged[0].work, tuple(report.winner for report in staged if report.winner is not None)
    names = [name for report in staged for name in neighbours(work.sink, work.batch, report.place)]
    seen = await described(client, [*(winner.transactional_id for winner in winners), *names])
    check_open(winners, seen, client.env.wall_ms())
    if not work.is_action and any(report.beginning is not None and report.beginning.is_first_of_run for report in staged):
        with suppress(PeerFailure):  # Their time-out releases them too.
            seen |= await open_of(client, work.sink)
    reached(Step.CHECKED)
    committed = Committed(work.sink, work.batch, work.run, work.query, winners, sum(report.rows for report in staged))
    token = await _record(client, ledger, work, committed, staged)
    reached(Step.COMMITTED)
    await commit_all(client, committed, seen, lambda: reached(Step.HALF_ENDED))
    reached(Step.ENDED)
    await abort_seen(client, seen, but=winners)
    if not work.query:
        await until_seen(client, winners)  # Whoever waits for a write to end may read what it wrote at once.
    if work.is_action:
        with suppress(PeerFailure):  # Whoever begins next does it.
            await ledger.append(token, ended_records(committed, client.env.wall_ms()))


async def abort(client: Client, ledger: Ledger, reports: Sequence[Report]) -> None:
    staged = [report for report in reports if report.winner is not None]
    if not staged:
        return
    work = staged[0].work
    orphans = {} if work.is_action else await open_of(client, work.sink)
    state = await take_again(ledger, work)
    if state.last is not None and (state.last.batch, state.last.run) == (work.batch, work.run):
        return  # It counts: the next run ends its transactions.
    reached(Step.ABORTING)
    await abort_all(client, [report.winner for report in staged if report.winner is not None], orphans)
    if state.run == work.run:
        await abort_seen(client, orphans)


async def _record(client: Client, ledger: Ledger, work: Work, committed: Committed, staged: Sequence[Report]) -> Token:
    """Stores the commit record; returns the token that follows it."""
    known = max((one.beginning for one in staged if one.beginning is not None), key=lambda one: one.token.offset if one.token else -1)
    token, last_batch = known.token, known.last_batch
    for _ in range(TRIES_MAX):
        if token is None:
            state = await take_again(ledger, work)
            if state.last is not None and (state.last.batch, state.last.run) == (work.batch, work.run) and state.token is not None:
                return state.token  # Stored by a try whose answer was lost.
            if state.run != work.run:
                raise TakenOver(
                    f"batch {work.batch} of sink {work.sink!r} was not committed: run {state.run} has taken the sink over",
                    "nothing of it counts. Stop one of the two queries, if there are two with this sinkId or checkpoint",
                )
            token, last_batch = state.token, state.last.batch if state.last else None
            continue
        records = committed_records(committed, last_batch, client.env.wall_ms())
        try:
            offset = await ledger.append(token, records)
        except Superseded:
            token = None  # A twin of one of these tasks took the ledger for this run once more, or another run did.
            continue
        return Token(token.producer_id, token.epoch, token.sequence + len(records), offset)
    raise SinkFailure(
        f"batch {work.batch} of sink {work.sink!r} was not committed: the ledger {ledger.topic!r} refused its record {TRIES_MAX} times",
        "nothing of it counts; start the query again",
    )


def _check_agreement(reports: Sequence[Report], staged: Sequence[Report]) -> None:
    skipped = [report for report in reports if report.is_skipped]
    if skipped and staged:
        work = staged[0].work
        raise SinkFailure(
            f"tasks of batch {work.batch} of sink {work.sink!r} disagree whether it was committed before: two runs write at once",
            "nothing of it counts; stop all but one of them",
        )
    expected = next((one.beginning.rows_expected for one in skipped if one.beginning is not None), None)
    rows = sum(report.rows for report in skipped)
    if expected is not None and expected != rows:
        work = skipped[0].work
        raise WrongCheckpoint(
            f"batch {work.batch} of the new checkpoint has {rows} rows, and that of sink {work.sink!r} was written with {expected}: the "
            "source has cut its batches in another way, so that leaving them out by number loses rows or doubles them",
            "begin after what was written, with startingOffsets and onNewCheckpoint=append",
        )
