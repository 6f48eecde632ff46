"""Quorums that are broken on purpose: each neglects one thing that a shell owes its core, and a claim that holds otherwise catches it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from broker import test_quorum, test_quorum_disk, test_quorum_snapshots, test_quorum_upgrade

from penstock.broker import quorum_files, quorum_snapshots
from penstock.broker.quorum import CommitUnknown, NotLeading, Quorum
from penstock.broker.quorum_asking import Asking
from penstock.broker.quorum_entries import is_old
from penstock.broker.quorum_files import Snapshot
from penstock.broker.quorum_store import METADATA_DIRECTORY, Store
from penstock.consensus.effects import Effect, Lead, PersistVote
from penstock.consensus.events import Order, Propose
from penstock.consensus.nouns import Replica
from penstock.env import Disk
from penstock.errors import BrokenPromise
from penstock.log.small_files import write_fresh
from penstock.simulator.defects import breaks
from penstock.simulator.loop import Stuck
from penstock.simulator.platter import Loss
from penstock.vocabulary import Offset

Patches = list[tuple[Any, str, Any]]


@breaks("consensus.answer-after-flush")
def answers_before_the_flush() -> Patches:
    flush = Store.flush

    async def some_time(self: Store) -> None:
        asyncio.get_running_loop().create_task(flush(self))

    return [(Store, "flush", some_time)]


@breaks("consensus.answer-after-flush")
def leaves_its_vote_to_the_kernel() -> Patches:
    async def write_vote(disk: Disk, directory: str, me: Replica, vote: PersistVote) -> None:
        body = quorum_files._VOTE.pack(*me, vote.term, vote.voted_for is not None, *(vote.voted_for or quorum_files._NOBODY))
        disk.close(write_fresh(disk, f"{directory}/new", quorum_files.seal(quorum_files._VOTE_KIND, 1, body)))
        disk.rename(f"{directory}/new", f"{directory}/{quorum_files.VOTE}")

    return [(quorum_files, "write_vote", write_vote)]


@breaks("consensus.vote-durable")
def believes_what_the_kernel_has() -> Patches:
    async def write_nothing(disk: Disk, directory: str) -> None: ...

    return [(quorum_files, "write_anew", write_nothing)]


@breaks("consensus.snapshot-install-atomic")
def empties_the_log_before_the_snapshot_is_there() -> Patches:
    async def install(self: Store, snapshot: Snapshot) -> None:
        await self._start_over(snapshot.head)
        await quorum_files.write_snapshot(self._env.disk, METADATA_DIRECTORY, snapshot)
        self._note(snapshot)

    return [(Store, "install", install)]


@breaks("consensus.snapshot-install-atomic")
def forgets_to_finish_an_installation() -> Patches:
    async def do_nothing(self: Store) -> None: ...

    return [(Store, "_join", do_nothing)]


@breaks("consensus.decide-after-replay")
def answers_before_the_replay() -> Patches:
    async def commit(self: Quorum, payload: bytes) -> None:
        await self._done(lambda token: Propose(token, payload))

    return [(Quorum, "_commit", commit)]


@breaks("consensus.decide-after-replay")
def decides_before_the_replay() -> Patches:
    carry_out = Quorum._carry_out

    def lead_at_once(self: Quorum, effect: Effect) -> None:
        if isinstance(effect, Lead):
            self._elected(effect.term)
        else:
            carry_out(self, effect)

    return [(Quorum, "_carry_out", lead_at_once)]


@breaks("consensus.unknown-not-refused")
def takes_unknown_for_refused() -> Patches:
    done = Asking.done

    async def be_sure(self: Asking, make: Callable[[object], Order]) -> Offset:
        try:
            return await done(self, make)
        except CommitUnknown:
            raise NotLeading(None) from None

    return [(Asking, "done", be_sure)]


@breaks("consensus.vote-durable")
def takes_a_lost_vote_for_none() -> Patches:
    return [(Store, "is_all_old", property(lambda self: True, lambda self, value: None))]


@breaks("consensus.upgrade-keeps-log")
def takes_a_copy_of_an_old_log_for_one() -> Patches:
    def begins_old(self: Store) -> bool:
        return self.start == 0 and bool(self._entries) and bool(self._entries[0].payload) and is_old(self._entries[0].payload)

    return [(Store, "begins_old", property(begins_old, lambda self, value: None))]


def cut_while_installing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum_snapshots, "SNAPSHOT_EVERY_BYTES", 300)
    test_quorum_snapshots.test_no_power_cut_halves_the_installation_of_a_snapshot(None, 1, Loss.ALL)


Claim = Callable[[pytest.MonkeyPatch], None]

CAUGHT_BY: dict[Callable[[], Patches], Claim] = {
    answers_before_the_flush: lambda monkeypatch: test_quorum_disk.test_nothing_is_granted_before_it_is_flushed(),
    leaves_its_vote_to_the_kernel: lambda monkeypatch: test_quorum.test_what_was_decided_is_there_in_the_next_life("power cut"),
    believes_what_the_kernel_has: lambda monkeypatch: (
        test_quorum_disk.test_a_vote_that_only_the_kernel_has_is_written_anew_before_it_counts()
    ),
    empties_the_log_before_the_snapshot_is_there: cut_while_installing,
    forgets_to_finish_an_installation: cut_while_installing,
    answers_before_the_replay: lambda monkeypatch: test_quorum.test_a_slow_replay_holds_up_no_election(),
    decides_before_the_replay: lambda monkeypatch: (
        test_quorum.test_a_new_leader_decides_only_when_it_has_replayed_all_that_was_decided_before()
    ),
    takes_unknown_for_refused: lambda monkeypatch: test_quorum.test_a_leader_that_is_cut_off_grants_nothing_and_learns_that_nobody_knows(),
    takes_a_lost_vote_for_none: lambda monkeypatch: test_quorum_disk.test_a_replica_that_cannot_read_its_vote_takes_no_part("gone"),
    takes_a_copy_of_an_old_log_for_one: lambda monkeypatch: (
        test_quorum_upgrade.test_a_copy_that_has_only_the_first_old_entries_stays_silent()
    ),
}


@pytest.mark.expects_failure
@pytest.mark.parametrize("variant", list(CAUGHT_BY), ids=lambda variant: variant.__name__.replace("_", "-"))
def test_a_broken_quorum_is_caught(variant: Callable[[], Patches], monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name, instead in variant():
        monkeypatch.setattr(owner, name, instead, raising=not isinstance(instead, property))
    with pytest.raises((AssertionError, BrokenPromise, Stuck)):
        CAUGHT_BY[variant](monkeypatch)
