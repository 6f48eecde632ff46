"""The leader core on a node: producers, fetches of followers, their reports, and proposals to the controller."""

from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.commands import ChangeInSync, InSyncWish
from penstock.cluster.image import PartitionState
from penstock.errors import ErrorCode, Refusal
from penstock.partition.follower import Fetch, Fetched, diverging_at
from penstock.partition.in_sync import LOOKS_PER_LAG
from penstock.partition.leader import (
    AdvanceWatermark,
    Answer,
    Effect,
    Event,
    InSyncChanged,
    Leader,
    LogFailed,
    MinInSyncChanged,
    ProposalLost,
    ProposalRefused,
    ProposeInSync,
    Reached,
    Refuse,
    Resigned,
    TimePassed,
)
from penstock.simulator.replicas.asked import Asked
from penstock.simulator.replicas.controller import TOPIC_ID
from penstock.vocabulary import Offset
from penstock.wire.batches import read_header, stamp

if TYPE_CHECKING:
    from penstock.simulator.replicas.following import Following
    from penstock.simulator.replicas.node import SimNode

WAIT_SECONDS = 0.05  # How long a follower's question is kept while there is nothing to say.
PROPOSAL_SECONDS = 0.1  # Until a proposal is given up, or put again.


class Parked(NamedTuple):
    follower: "Following"
    asked: Fetch
    number: int


class Leading:
    def __init__(self, node: "SimNode", state: PartitionState) -> None:
        self._node = node
        self._world = node.world
        self.epoch = state.leader_epoch
        self.core: Leader[Asked] = Leader(
            node.node_id,
            state.leader_epoch,
            in_sync=node.with_epochs(state.in_sync),
            replicas=state.replicas,
            partition_epoch=state.partition_epoch,
            own_end=node.durable_end,
            high_watermark=node.watermark,
            epoch_start=node.store.end_offset,
            log_start=node.store.start_offset,
            min_insync=node.min_insync,
            lag_max_s=node.world.plan.lag_max_s,
            now=node.world.now,
        )
        self._parked: list[Parked] = []
        self._min_insync = node.min_insync

    def begin(self) -> None:
        node = self._node
        if node.began_clean:
            node.world.judge.leads_on(node.node_id, node.life, self.epoch)
        node.world.judge.begins_to_lead(node.node_id, node.life, self.epoch, node.store)
        node.raise_watermark(self.core.high_watermark)
        node.flush_soon()
        self._look()
        node.world.moment("after election", node)

    @property
    def _is_over(self) -> bool:
        return self._node.role is not self

    def step(self, event: Event) -> None:
        self._carry_out(self.core.step(event, self._world.now))

    # What the node learns

    def learn(self, state: PartitionState, min_insync: int) -> None:
        if min_insync != self._min_insync:
            self._min_insync = min_insync
            self.step(MinInSyncChanged(self._min_insync))
        joined = [node for node in state.in_sync if node not in self.core.in_sync]
        self.step(InSyncChanged(self._node.with_epochs(state.in_sync), state.partition_epoch, state.replicas))
        if joined:
            self._world.moment("after joining", self._world.nodes[joined[0]])

    def settled(self) -> None:
        node = self._node
        if node.store.failure is not None:
            self.step(LogFailed(node.store.failure))
        else:
            self.step(Reached(node.node_id, node.durable_end))

    def resign(self) -> None:
        self.step(Resigned("another node leads"))

    def _look(self) -> None:
        if not self._is_over:
            self._node.later(self._world.plan.lag_max_s / LOOKS_PER_LAG, self._look)
            self.step(TimePassed(self._node.store.end_offset))

    # Producers

    def produce(self, asked: Asked) -> None:
        node, store = self._node, self._node.store
        if store.failure is not None or (asked.needs_all and not self.core.is_enough):
            asked.refuse()
            return
        stamp(asked.batch, store.end_offset, self.epoch)
        header = read_header(asked.batch)
        store.append(asked.batch, header)
        asked.appended(node.node_id, node.life, self.epoch, header)
        if not self.core.park(Offset(header.end_offset), asked, needs_all=asked.needs_all):
            self._answer(asked)
        node.flush_soon()
        if not self._world.plan.flushes_before_ack:
            self.settled()
        self._wake()

    def tell_end(self) -> Offset | None:
        """Only what no later answer takes back."""
        if not self.core.may_tell_end:
            return None
        self._world.judge.tells_end(self.epoch, self.core.high_watermark)
        return self.core.high_watermark

    def trim(self, offset: Offset) -> None:
        self._node.store.raise_start(min(offset, self.core.high_watermark))

    # Followers

    def fetch(self, follower: "Following", asked: Fetch, number: int) -> None:
        answer = self._answer_to(asked)
        if answer.records or answer.error_code or answer.diverging is not None or self._world.rng.random() < 0.2:
            follower.hear(self._node, asked, number, answer)
            return
        parked = Parked(follower, asked, number)
        self._parked.append(parked)
        self._node.later(WAIT_SECONDS, lambda: self._give(parked))

    def _wake(self) -> None:
        for parked in list(self._parked):
            self._give(parked)

    def _give(self, parked: Parked) -> None:
        if parked in self._parked:
            self._parked.remove(parked)
            parked.follower.hear(self._node, parked.asked, parked.number, self._answer_to(parked.asked))

    def _answer_to(self, asked: Fetch) -> Fetched:
        node, store = self._node, self._node.store
        code = ErrorCode.NONE
        if self._is_over:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif asked.epoch != self.epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH if asked.epoch < self.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        elif store.failure is not None:
            code = ErrorCode.KAFKA_STORAGE_ERROR
        answer = Fetched(code, self.core.high_watermark, store.start_offset, None, b"")
        if code is not ErrorCode.NONE:
            return answer
        diverging = diverging_at(store, asked.offset, asked.last_epoch)
        if diverging is not None:
            return answer._replace(diverging=diverging)
        if not store.start_offset <= asked.offset <= store.end_offset:
            return answer._replace(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        return answer._replace(records=store.read(asked.offset, store.end_offset, node.world.plan.batches_max))

    # Effects

    def _carry_out(self, effects: list[Effect[Asked]]) -> None:
        for effect in effects:
            match effect:
                case AdvanceWatermark(watermark):
                    self._node.raise_watermark(watermark)
                case Answer(tokens):
                    for asked in tokens:
                        self._answer(asked)
                case Refuse(tokens, _):
                    for asked in tokens:
                        asked.leave_open()
                case ProposeInSync():
                    self._propose(effect)
                    self._world.moment("after proposal", self._node)

    def _answer(self, asked: Asked) -> None:
        node = self._node
        if asked.needs_all:
            self._world.judge.acknowledges(node.node_id, node.life, self.epoch, asked.base_offset, asked.crc)
        asked.acknowledge()
        self._world.moment("after acknowledgement", node)

    def _propose(self, proposal: ProposeInSync) -> None:
        node, is_answered = self._node, False

        def answered(refusal: Refusal | None) -> None:
            nonlocal is_answered
            is_answered = True
            if refusal is not None and not self._is_over:
                self.step(ProposalRefused(proposal.partition_epoch))

        def give_up() -> None:
            if is_answered or self._is_over or self.core.partition_epoch != proposal.partition_epoch:
                return
            if self._world.plan.asks_again:
                self._propose(proposal)
            else:
                self.step(ProposalLost(proposal.partition_epoch))

        wish = InSyncWish(TOPIC_ID, 0, self.epoch, proposal.partition_epoch, proposal.members)
        node.wish_in_sync(ChangeInSync(node.node_id, node.node_epoch, (wish,)), answered)
        node.later(PROPOSAL_SECONDS, give_up)

    def follower_reached(self, report: Reached) -> None:
        """Who could not join anyway is not heard, so that the controller is spared; but not every leader knows so much."""
        known = self._node.image.nodes[report.replica]
        could_join = known.node_epoch == report.node_epoch and known.is_live and not known.is_stopping
        if could_join or not self._world.plan.knows_nodes:
            self.step(report)
