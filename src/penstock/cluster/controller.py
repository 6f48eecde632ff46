"""Who may change the cluster, and how: commands in, records and replies out.

`decide` never mutates the image. One decision is committed and replayed before the next is taken, so each sees all that came before it.
`owed` is what the controller does unasked, as commands: derived from the image and from who is alive, so that a successor goes on with it.
Here is only whose business a command is; the rules stand there: registering, in_sync, electing, reassigning, topic_making, configuring.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from penstock.cluster import electing, records, registering
from penstock.cluster.commands import (
    AddPartitions,
    BuryTopic,
    ChangeInSync,
    Command,
    CreateTopics,
    DeleteTopic,
    DistrustCopies,
    ElectionKind,
    ElectLeaders,
    FenceNode,
    MakeCompanion,
    ReassignPartitions,
    RegisterNode,
    ReportDisk,
    Settle,
    StopNode,
    TakeProducerBlock,
    UnfenceNode,
    UnregisterNode,
)
from penstock.cluster.companions import made_for, not_directly, reconfigured, wants_companion
from penstock.cluster.configuring import (
    MIN_INSYNC,
    ConfigureGroup,
    ConfigureNode,
    ConfigureTopic,
    group_configured,
    node_configured,
    topic_configured,
)
from penstock.cluster.deciding import Decision, agreed, refused
from penstock.cluster.drafting import Draft
from penstock.cluster.image import ClusterImage, Topic
from penstock.cluster.in_sync import change_in_sync, distrust
from penstock.cluster.moving import AS_IT_IS
from penstock.cluster.promises import node_promises, topic_promises
from penstock.cluster.reassigning import reassign
from penstock.cluster.records import EVERY_NODE
from penstock.cluster.sessions import Sessions
from penstock.cluster.topic_making import Terms, add_partitions, create_topics
from penstock.errors import ErrorCode, Refusal
from penstock.settings import TOPIC_PREFIX, NodeSettings, TopicConfig
from penstock.vocabulary import Instant, NodeId, TopicId

PRODUCER_BLOCK_SIZE = 1_000  # As Kafka's: a crash wastes at most this many of 2**63 ids.


@dataclass(slots=True)
class Controller:
    """All but the image follows the node's settings, which may change while it runs."""

    image: ClusterImage
    topic_defaults: TopicConfig
    partitions_default: int
    partitions_max: int
    replication_default: int = 1
    settings: NodeSettings = field(default_factory=NodeSettings)
    internal_replication: Mapping[str, int] = field(default_factory=dict)  # Of the cluster's own topics, by name.
    gives_leadership_back: bool = True  # To the first replica, when it is in sync again.
    imbalance_check_s: float = 30.0
    seconds_since_heard: Callable[[NodeId], float | None] = lambda _: None  # For refusals that tell why there are too few nodes.
    voters: Callable[[], Sequence[NodeId]] = tuple  # Also those that have never been up.
    doubts: Callable[[NodeId], bool] = lambda _: False  # Of whom nothing was heard since this controller took office.
    _settled_at: tuple[int, TopicConfig] | None = None  # Then nothing could be settled: no need to look again while it holds.
    _look_back_at: Instant | None = None

    @classmethod
    def of(cls, image: ClusterImage, settings: NodeSettings) -> "Controller":
        controller = cls(image, settings.default_topic_config(), settings.num_partitions, settings.partitions_max)
        controller.follow(settings)
        return controller

    def follow(self, settings: NodeSettings) -> None:
        """These hold from now on."""
        self.settings = settings
        self.topic_defaults = settings.default_topic_config()
        self.partitions_default, self.partitions_max = settings.num_partitions, settings.partitions_max
        self.replication_default = settings.default_replication_factor
        self.internal_replication = {
            "__consumer_offsets": settings.offsets_replication_factor, "__transaction_state": settings.transaction_replication_factor,
        }  # fmt: skip
        self.gives_leadership_back, self.imbalance_check_s = settings.auto_leader_rebalance, float(settings.leader_imbalance_seconds)

    def decide(self, command: Command) -> Decision:
        match command:
            case CreateTopics():
                return create_topics(self._terms(), command.topics)
            case AddPartitions():
                return add_partitions(self._terms(), command.topics)
            case ConfigureTopic() | ConfigureNode() | ConfigureGroup():
                return self._configure(command)
            case DeleteTopic() | MakeCompanion():
                return self._delete(command.topic_id) if isinstance(command, DeleteTopic) else self._make_companion(command.topic_id)
            case BuryTopic():
                return self._bury(command)
            case TakeProducerBlock():
                taken = records.ProducerBlockTaken(command.node_id, self.image.next_producer_id, PRODUCER_BLOCK_SIZE)
                return agreed((taken,), taken)
            case RegisterNode() | UnfenceNode() | FenceNode() | StopNode() | ReportDisk() | UnregisterNode():
                return self._decide_on_node(command)
            case ChangeInSync() | DistrustCopies() | ElectLeaders() | ReassignPartitions() | Settle():
                return self._decide_on_partitions(command)
            case _:
                assert_never(command)

    def owed(self, now: Instant, sessions: Sessions) -> list[Command]:
        """What to submit now. Asked again and again: cheap while nothing has changed, and what was done is not owed any more."""
        owed: list[Command] = []
        for node_id in sessions.expired(now):
            node = self.image.nodes.get(node_id)
            if node is not None and not node.is_fenced:
                owed.append(FenceNode(node_id, node.node_epoch))
        if self._has_unsettled():
            owed.append(Settle())
        if self.gives_leadership_back and (self._look_back_at is None or now >= self._look_back_at):
            if self._look_back_at is not None and (partitions := electing.to_be_given_back(self.image)):
                owed.append(ElectLeaders(ElectionKind.PREFERRED, partitions))
            self._look_back_at = Instant(now + self.imbalance_check_s)
        return owed

    def config_of(self, topic: Topic) -> TopicConfig:
        """What holds for the topic. Of what it was told, a value that only another version of Penstock takes is passed over."""
        config = self.topic_defaults
        if (told := self.image.node_overrides.get(EVERY_NODE, {}).get(TOPIC_PREFIX + MIN_INSYNC)) is not None:
            config = replace(config, min_insync_replicas=int(told))  # At once: others may have adopted it before us.
        return config.with_known(topic.overrides) if topic.overrides else config

    def _has_unsettled(self) -> bool:
        at = self.image.version, self.topic_defaults
        if not self.image.unsettled or self._settled_at == at:
            return False
        if electing.settle(self._draft()).records:
            return True
        self._settled_at = at
        return False

    def _decide_on_node(self, command: RegisterNode | UnfenceNode | FenceNode | StopNode | ReportDisk | UnregisterNode) -> Decision:
        match command:
            case RegisterNode():
                return registering.register(self._draft(), command)
            case UnfenceNode():
                return registering.unfence(self._draft(), command)
            case FenceNode():
                return registering.fence(self._draft(), command)
            case StopNode():
                return registering.stop(self._draft(), command)
            case ReportDisk():
                return registering.report_disk(self._draft(), command)
            case UnregisterNode():
                return registering.unregister(self.image, command)
            case _:
                assert_never(command)

    def _decide_on_partitions(self, command: ChangeInSync | DistrustCopies | ElectLeaders | ReassignPartitions | Settle) -> Decision:
        match command:
            case ChangeInSync():
                return change_in_sync(self._draft(), command)
            case DistrustCopies():
                return distrust(self._draft(), command)
            case ElectLeaders():
                return electing.elect(self._draft(), command)
            case ReassignPartitions():
                return reassign(self._draft(), command)
            case Settle():
                return electing.settle(self._draft())
            case _:
                assert_never(command)

    def _draft(self) -> Draft:
        return Draft(self.image, self.config_of, self.doubts)

    def _terms(self) -> Terms:
        return Terms(
            self.image, self.topic_defaults, self.partitions_default, self.partitions_max,
            self.replication_default, self.internal_replication, self.seconds_since_heard, self.voters(),
        )  # fmt: skip

    def _configure(self, command: ConfigureTopic | ConfigureNode | ConfigureGroup) -> Decision:
        match command:
            case ConfigureTopic():
                return self._configure_topic(command)
            case ConfigureNode():
                return self._configure_node(command)
            case ConfigureGroup():
                return self._configure_group(command)
            case _:
                assert_never(command)

    def _configure_group(self, command: ConfigureGroup) -> Decision:
        try:
            configured = group_configured(self.image, self.settings, command)
        except Refusal as refusal:
            return Decision((), (refusal,))
        is_news = configured.overrides != self.image.group_configs.get(command.group, {})
        return agreed((configured,) if is_news else (), configured)

    def _configure_topic(self, command: ConfigureTopic) -> Decision:
        try:
            configured = topic_configured(self.image, self.topic_defaults, command)
            topic = self.image.topics_by_id[configured.topic_id]
            if configured.overrides == topic.overrides:
                return agreed((), configured)
            companions = self._companion_changes(topic, configured.overrides)
        except Refusal as refusal:
            return Decision((), (refusal,))
        config = self.config_of(replace(topic, overrides=configured.overrides))
        draft = Draft(self.image, lambda _: config)
        if config.min_insync_replicas != self.config_of(topic).min_insync_replicas:
            for index in range(len(topic.partitions)):
                if any(state.eligible for state in draft.states(topic, index)):
                    draft.move(topic, index, AS_IT_IS)
        promises = topic_promises(self.image, self.topic_defaults, self.image.together(topic), configured.overrides)
        return agreed((*draft.records(), *promises, configured, *companions), configured)

    def _companion_changes(self, topic: Topic, overrides: Mapping[str, str]) -> tuple[records.Record, ...]:
        """What the topic's new overrides mean for its companion. Raises Refusal where one is wanted and cannot be made."""
        if topic.topic_id in self.image.companions:
            return tuple(reconfigured(self.image, topic, overrides))
        if not wants_companion(overrides):
            return ()
        return (made_for(self.image, topic, overrides, partitions_max=self.partitions_max),)

    def _make_companion(self, topic_id: TopicId) -> Decision:
        topic, companion = self.image.topics_by_id.get(topic_id), self.image.companion_of(topic_id)
        if topic is None:
            return refused(ErrorCode.UNKNOWN_TOPIC_ID, "there is no such topic (any more)")
        if companion is not None:
            return agreed((), companion.as_record(topic_id))
        try:
            made = made_for(self.image, topic, topic.overrides, partitions_max=self.partitions_max)
        except Refusal as refusal:
            return Decision((), (refusal,))
        return agreed((made,), made)

    def _configure_node(self, command: ConfigureNode) -> Decision:
        try:
            configured = node_configured(self.image, command)
        except Refusal as refusal:
            return Decision((), (refusal,))
        held = self.image.node_overrides.get(command.node_id, {})
        if configured.overrides == held:
            return agreed((), configured)
        name = TOPIC_PREFIX + MIN_INSYNC
        draft = self._draft()
        if configured.overrides.get(name) != held.get(name):
            self._trust_no_eligible(draft)
        after = {**self.image.node_overrides, command.node_id: configured.overrides}
        promises = node_promises(self.image, self.topic_defaults, after)
        return agreed((*draft.records(), *promises, configured), configured)

    def _trust_no_eligible(self, draft: Draft) -> None:
        """The least size of in-sync sets is about to change for leaders, and some may hear of it before others: nobody may commit what
        somebody else still counts on not being committed. Where nobody leads, nothing can be committed."""
        draft.config_of = lambda topic: replace(self.config_of(topic), min_insync_replicas=1)
        for topic_id, index in self.image.unsettled:
            topic, state = self.image.topics_by_id[topic_id], self.image.topics_by_id[topic_id].partitions[index]
            if state.eligible and all(each.in_sync for each in draft.states(topic, index)) and MIN_INSYNC not in topic.overrides:
                draft.move(topic, index, AS_IT_IS)

    def _delete(self, topic_id: TopicId) -> Decision:
        topic = self.image.topics_by_id.get(topic_id)
        if topic is None:
            return refused(ErrorCode.UNKNOWN_TOPIC_ID, "there is no such topic (any more)")
        if self.image.data_of(topic_id) is not None:
            return Decision((), (not_directly(topic.name),))
        ended = [records.TopicDeleted(each.topic_id, _holders(each)) for each in reversed(self.image.together(topic))]
        return agreed(ended, ended[-1])  # The ledger ends first: it is of no use without its data.

    def _bury(self, command: BuryTopic) -> Decision:
        buried = records.TopicBuried(command.topic_id, command.node_id)
        is_owed = command.node_id in self.image.graveyard.get(command.topic_id, ())
        return agreed((buried,) if is_owed else (), buried)


def _holders(topic: Topic) -> tuple[NodeId, ...]:
    return tuple(sorted({node for state in topic.partitions for node in state.replicas}))
