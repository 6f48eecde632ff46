"""This node's replica of the metadata log: the shell around one Raft core, which decides all that consensus decides (consensus/core.py).

It gives the core time (quorum_stepping.py), a disk (quorum_store.py, written by quorum_persisting.py) and messages, which `tell` sends and
`received` brings; it replays what is committed (quorum_replaying.py) and answers who asks (quorum_asking.py).
One node alone is a quorum of one by the same code: it elects itself as soon as it is started.

Rules:
- One decision at a time, on an image that has everything before it. It is answered when it is committed, replayed and told here.
- Whoever leads may decide only when all that leaders before it committed is replayed here (`is_leading`).
- With less room on the disk than a decision may need, and no reserve left to give up, nothing is proposed: it is refused, or left to
  another voter, who shall lead instead.
- What was proposed is carried through, whatever becomes of the one who asked. Leadership that goes meanwhile makes it `CommitUnknown`.
- A disk that fails, a promise that breaks, metadata that this node doesn't understand: `on_failed`, and nothing is stepped any more.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, assert_never

from penstock.broker import quorum_snapshots
from penstock.broker.quorum_asking import Asking, CommitUnknown, NotLeading, OrderRefused
from penstock.broker.quorum_entries import encode_decision
from penstock.broker.quorum_files import Snapshot
from penstock.broker.quorum_opening import Opened, open_replica
from penstock.broker.quorum_persisting import Install, Keep, Persister
from penstock.broker.quorum_replaying import Committed, Elected, Installed, Replayer
from penstock.broker.quorum_stepping import Stepper
from penstock.broker.quorum_views import QuorumView, describe
from penstock.cluster import records
from penstock.cluster.commands import Command
from penstock.cluster.controller import Controller
from penstock.cluster.image import ClusterImage
from penstock.cluster.records import UnknownRecord
from penstock.cluster.replies import Reply
from penstock.consensus.core import Core
from penstock.consensus.effects import Answer, Apply, Effect, Follow, InstallSnapshot, KeepChunk, Lead, PersistEntries, PersistVote, Send
from penstock.consensus.events import (
    AddVoter,
    AskBarrier,
    Order,
    Persisted,
    Propose,
    Received,
    RemoveVoter,
    SnapshotTaken,
    TimePassed,
    TransferLeadership,
)
from penstock.consensus.leader import Leader
from penstock.consensus.log_view import SnapshotHead
from penstock.consensus.messages import Message
from penstock.consensus.nouns import Replica, Term
from penstock.consensus.options import Options
from penstock.consensus.voters import Voters
from penstock.env import Env
from penstock.errors import BrokenPromise, DiskFailed, DiskFull, ErrorCode, OutOfHandles, Refusal, require
from penstock.log.faults import NewerFormat
from penstock.log.open_files import OpenFiles
from penstock.settings import KIB
from penstock.vocabulary import Instant, NodeId, Offset

__all__ = ["CommitUnknown", "NotLeading", "OrderRefused", "Quorum", "QuorumView"]

log = logging.getLogger("penstock")

ROOM_KEPT_BYTES = 64 * KIB  # No decision is proposed with less room than this: one that was proposed has to be written.
# Between two tries to give the office to a voter with more room: soon at first, for that one may just have gone; where nobody has, seldom.
HAND_OVER_SECONDS_MIN, HAND_OVER_SECONDS_MAX = 2.0, 32.0
NOTHING = Offset(0)
_ENTRY_BYTES = 128  # What the log adds to a decision, at most.
_CLOSING_SHARE = 16  # A stop leaves a snapshot if there is more to replay than this part of what one is taken for anyway.


def _nothing() -> None:
    """Nobody wants to know."""


def _no_reserve() -> bool:
    """There is none to give up."""
    return False


async def _nobody(image: ClusterImage) -> None:
    """Nobody wants to know."""


class Quorum:
    def __init__(
        self, env: Env, me: Replica, opened: Opened, *, contacts: tuple[NodeId, ...], options: Options,
        on_replayed: Callable[[records.Record], Awaitable[None]], tell: Callable[[NodeId, Message], None],
        on_failed: Callable[[str], None], report: Callable[[str], None], make_room: Callable[[], bool],
    ) -> None:  # fmt: skip
        """Use `Quorum.open`."""
        self._env = env
        self._tell = tell
        self._on_failed = on_failed
        self._report = report
        self._make_room = make_room
        self._store = opened.store
        self._core = Core(
            me, opened.store, opened.vote, env.now(),
            draw=env.rng.random, first_voters=opened.first_voters, contacts=contacts, options=options,
        )  # fmt: skip
        self._persister = Persister(
            opened.store, on_persisted=self._persisted, on_installed=self._snapshot_installed, on_kept=self._snapshot_kept,
            on_no_room=self._found_no_room,
        )  # fmt: skip
        self._replayer = Replayer(
            env, opened.image, opened.end, on_replayed,
            on_elected=self._elected, on_installed=self._tell_installed, on_unsaved=self._take_snapshot,
        )  # fmt: skip
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._stepper = Stepper(env, self._core, self._carry_out, self._fail)
        self._asking = Asking(self._stepper.step)
        self._turn = asyncio.Lock()  # Decisions take turns.
        self._awaiting_office: list[asyncio.Future[None]] = []
        self._arriving = bytearray()  # A leader's snapshot, as far as it has come.
        self._is_saved = asyncio.Event()  # No snapshot is on its way to the disk.
        self._is_saved.set()
        self._hand_over_pause = HAND_OVER_SECONDS_MIN
        self._hand_over_next_at = env.now()
        self._is_handing_over_until = env.now()
        self._is_open = True
        self._is_closing = False  # It takes in nothing new.
        self._failure: BaseException | None = None
        self.me = me
        self.is_leading = False  # It leads, and everything that leaders before it committed is replayed here.
        self.on_lead: Callable[[], None] = _nothing
        self.on_follow: Callable[[], None] = _nothing  # Somebody else leads, or nobody: ask `leader`.
        self.on_installed: Callable[[ClusterImage], Awaitable[None]] = _nobody

    @classmethod
    async def open(
        cls, env: Env, files: OpenFiles, me: Replica, *, is_clean: bool, known_end: Offset = NOTHING, accepts_loss: bool = False,
        first_voters: Voters, contacts: tuple[NodeId, ...] = (),
        options: Options, on_replayed: Callable[[records.Record], Awaitable[None]], tell: Callable[[NodeId, Message], None],
        on_failed: Callable[[str], None], report: Callable[[str], None] = log.warning, make_room: Callable[[], bool] = _no_reserve,
    ) -> "Quorum":  # fmt: skip
        """Reads what the directory holds. The image is the snapshot's: whether what the log has after it is committed, is not known yet.

        `make_room` gives up what the disk has in reserve, and tells whether there was anything.
        Waits for room on the disk if it has none and others are to be met. Raises DiskFailed, NewerFormat or UnknownRecord.
        """
        has_others = any(node != me.node for node in contacts)
        opened = await open_replica(
            env, files, me, is_clean=is_clean, known_end=known_end, accepts_loss=accepts_loss, first_voters=first_voters,
            waits_for_room=has_others, report=report, make_room=make_room,
        )  # fmt: skip
        return cls(
            env, me, opened, contacts=contacts, options=options, on_replayed=on_replayed, tell=tell, on_failed=on_failed, report=report,
            make_room=make_room,
        )  # fmt: skip

    def start(self) -> None:
        """From here on it takes part."""
        self._spawn(self._persister.run())
        self._spawn(self._replayer.run())
        self._stepper.step(TimePassed())

    async def close(self) -> None:
        """Ends in order: what is being written is written, and what is committed here is replayed. Raises if it cannot be."""
        self._is_closing, self._persister.is_patient = True, False
        if self._tasks:
            await self._until_quiet()
            if self._replayer.unsaved_bytes > quorum_snapshots.SNAPSHOT_EVERY_BYTES // _CLOSING_SHARE:
                await self._take_snapshot()
                await self._until_quiet()
        self.abandon()
        if isinstance(self._failure, Exception):
            raise DiskFailed(str(self._failure))
        await self._store.close()

    def abandon(self) -> None:
        """Ends at once; whoever waits learns that nobody knows."""
        self._is_open = self.is_leading = False
        self._stepper.stop()
        for task in list(self._tasks):
            task.cancel()
        self._refuse_all(CommitUnknown("the node stops"))

    async def _until_quiet(self) -> None:
        written, replayed = self._persister.backlog, self._replayer.backlog
        while not (written.is_idle and replayed.is_idle and self._is_saved.is_set()) and self._failure is None:
            await written.until_idle()
            await replayed.until_idle()
            await self._is_saved.wait()

    # For those who look on.

    @property
    def image(self) -> ClusterImage:
        return self._replayer.image

    @property
    def leader(self) -> NodeId | None:
        return self._core.leader

    @property
    def term(self) -> Term:
        return self._core.term

    @property
    def voters(self) -> Voters:
        return self._core.voters

    @property
    def committed_end(self) -> Offset:
        return self._core.committed_end

    @property
    def applied_end(self) -> Offset:
        """Everything below this is committed, on this node's disk, and replayed here."""
        return self._replayer.end

    @property
    def end(self) -> Offset:
        return self._store.end

    def describe(self) -> QuorumView:
        return describe(self._core, self._env.now())

    # Orders.

    async def submit(self, command: Command, controller: Controller) -> tuple[Reply, ...]:
        """Decides the command and waits until the decision holds here. Replies come in the order of what was asked.

        Raises NotLeading and Refusal (nothing was done), CommitUnknown, or DiskFailed when this replica has ended.
        """
        await self._turn.acquire()
        try:
            self._check_leading()
            decision = controller.decide(command)
            payload = encode_decision(decision.records) if decision.records else b""
            if payload:
                self._check_room(len(payload))
        except BaseException:
            self._turn.release()
            raise
        if not payload:
            self._turn.release()
            return decision.replies
        committing = asyncio.get_running_loop().create_task(self._commit_and_pass_turn_on(payload))
        committing.add_done_callback(_take_note)
        await asyncio.shield(committing)
        return decision.replies

    async def applied(self, end: Offset) -> None:
        """Waits until everything below `end` is replayed here."""
        await self._replayer.until(end)

    async def barrier(self) -> Offset:
        """At the leader: up to where state must be replayed, so that it has all that anybody was told before. It is, here."""
        end = await self._done(AskBarrier)
        await self.applied(end)
        return end

    async def leading(self) -> None:
        """Waits until this node may decide. A quorum of one that cannot write its vote refuses."""
        if self._failure is not None:
            raise self._failure
        if not self.is_leading:
            waiting = asyncio.get_running_loop().create_future()
            self._awaiting_office.append(waiting)
            await waiting

    async def transfer(self, to: NodeId | None = None) -> bool:
        """Hands leadership over; False when it stays here, or was not here."""
        try:
            await self._done(lambda token: TransferLeadership(token, to))
        except (NotLeading, OrderRefused):
            return False
        return True

    async def add_voter(self, replica: Replica) -> None:
        await self.applied(await self._done(lambda token: AddVoter(token, replica)))

    async def remove_voter(self, replica: Replica) -> None:
        await self.applied(await self._done(lambda token: RemoveVoter(token, replica)))

    async def _commit_and_pass_turn_on(self, payload: bytes) -> None:
        try:
            await self._commit(payload)
        finally:
            self._turn.release()

    async def _commit(self, payload: bytes) -> None:
        await self.applied(await self._done(lambda token: Propose(token, payload)))

    async def _done(self, make: Callable[[object], Order]) -> Offset:
        self._check_open()
        return await self._asking.done(make)

    def _check_open(self) -> None:
        if self._failure is not None:
            raise DiskFailed(str(self._failure))
        if not self._is_open or self._is_closing:
            raise NotLeading(None)

    def _check_leading(self) -> None:
        self._check_open()
        if not self.is_leading:
            raise NotLeading(self.leader)

    def _check_room(self, size: int) -> None:
        needed = size + _ENTRY_BYTES + ROOM_KEPT_BYTES
        has_room = self._env.disk.free_bytes() >= needed or (self._make_room() and self._env.disk.free_bytes() >= needed)
        if has_room and not self._persister.is_out_of_room:
            self._hand_over_pause = HAND_OVER_SECONDS_MIN
            return
        if self._hands_over():
            raise NotLeading(None)
        raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full: nothing was changed")

    def _hands_over(self) -> bool:
        """Whether another voter may soon lead instead of this one, which has no room to decide anything."""
        now = self._env.now()
        if len(self._core.voters.replicas) > 1 and now >= self._hand_over_next_at:
            self._report("the disk is too full for a decision: another voter shall lead the metadata quorum")
            self._is_handing_over_until = Instant(now + HAND_OVER_SECONDS_MIN)
            self._hand_over_next_at = Instant(now + self._hand_over_pause)
            self._hand_over_pause = min(2 * self._hand_over_pause, HAND_OVER_SECONDS_MAX)
            self._stepper.step(TransferLeadership(None))
        return now < self._is_handing_over_until

    # Steps of the core.

    def received(self, message: Message) -> None:
        if not self._is_closing:
            self._stepper.step(Received(message))

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send():
                self._tell(effect.to, effect.message)
            case PersistVote() | PersistEntries():
                self._persister.backlog.add(effect)
            case Apply():
                self._replayer.backlog.add(Committed(self._store.applied(effect.first, effect.end)))
            case Answer():
                self._asking.answer(effect)
            case Lead():
                self._replayer.backlog.add(Elected(effect.term))
            case Follow():
                self.is_leading = False
                self.on_follow()
            case KeepChunk():
                self._keep_chunk(effect)
            case InstallSnapshot():
                self._install(effect)
            case _:
                assert_never(effect)

    def _elected(self, term: Term) -> None:
        """Everything before its first entry is replayed. It may have lost its office again meanwhile."""
        if self._is_open and self._core.term == term and isinstance(self._core.role, Leader):
            self.is_leading = True
            for waiting in self._awaiting_office:
                if not waiting.done():
                    waiting.set_result(None)
            self._awaiting_office.clear()
            self.on_lead()

    def _persisted(self, sequence: int) -> None:
        self._stepper.step(Persisted(sequence))

    def _found_no_room(self, full: DiskFull) -> None:
        if not isinstance(full, OutOfHandles) and self._make_room():
            return  # The write is tried again at once.
        self._report(f"the metadata log waits for room on the disk: {full}")
        for waiting in self._awaiting_office:
            if not waiting.done():
                waiting.set_exception(Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk is full: {full}"))
        self._awaiting_office.clear()
        if self._core.leader == self.me.node and len(self._core.voters.replicas) > 1:
            self._stepper.step(TransferLeadership(None))

    # Snapshots.

    def _keep_chunk(self, chunk: KeepChunk) -> None:
        if chunk.position == 0:
            self._arriving = bytearray()
        require(chunk.position == len(self._arriving), "the pieces of a snapshot come in order")
        self._arriving += chunk.content

    def _install(self, effect: InstallSnapshot) -> None:
        content, self._arriving = bytes(self._arriving), bytearray()
        quorum_snapshots.check(content)
        self._replayer.installs_under_way += 1
        self._persister.backlog.add(Install(effect.sequence, Snapshot(effect.head, content)))

    def _snapshot_installed(self, snapshot: Snapshot) -> None:
        self._replayer.backlog.add(Installed(snapshot))

    async def _tell_installed(self, image: ClusterImage) -> None:
        await self.on_installed(image)

    async def _take_snapshot(self) -> None:
        """Of the image as it is: nothing is replayed meanwhile."""
        store, end = self._store, self._replayer.end
        is_new = store.snapshot is None or end > store.snapshot.end
        if not self._is_saved.is_set() or self._replayer.installs_under_way or not is_new:
            return
        self._replayer.unsaved_bytes = 0
        term, voters = store.term_before(end), self._core.voters_at(end)
        content = await quorum_snapshots.encode(self._env, self.image.snapshot())
        self._is_saved.clear()
        self._persister.backlog.add(Keep(Snapshot(SnapshotHead(end, term, voters, len(content)), content)))

    def _snapshot_kept(self, end: Offset | None) -> None:
        self._is_saved.set()
        if end is not None:
            self._stepper.step(SnapshotTaken(end))

    # Ends.

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: "asyncio.Task[None]") -> None:
        del self._tasks[task]
        if task.cancelled():
            if self._is_open:
                self.abandon()
        elif (failure := task.exception()) is not None:
            self._fail(failure)

    def _fail(self, failure: BaseException) -> None:
        """This replica takes no part any more, and the node must end."""
        if self._failure is not None or not self._is_open:
            return
        self._failure = failure
        for waiting in self._awaiting_office:
            if not waiting.done():
                waiting.set_exception(failure)
        self._awaiting_office.clear()
        self._persister.backlog.give_up()
        self._is_saved.set()
        self._refuse_all(DiskFailed(str(failure)))
        self.abandon()
        self._on_failed(_sentence(failure))

    def _refuse_all(self, failure: Exception) -> None:
        self._asking.fail(failure)
        self._replayer.fail(failure)


def _sentence(failure: BaseException) -> str:
    match failure:
        case BrokenPromise():
            return f"a promise was broken: {failure}"
        case DiskFailed():
            return f"the metadata log failed: {failure}"
        case NewerFormat() | UnknownRecord():
            return f"the metadata log cannot be followed: {failure}"
        case _:
            log.error("a task of the metadata log failed", exc_info=failure)
            return f"the metadata log failed: {failure!r}"


def _take_note(task: "asyncio.Task[None]") -> None:
    """Whoever asked may be gone; what came of it was told then."""
    if not task.cancelled():
        task.exception()
