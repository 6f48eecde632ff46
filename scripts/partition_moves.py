"""The reference page of partitions: how in-sync set, eligible replicas and leader move, told by letting the controller decide.

The page cannot differ from the rules, because each row is what they made of the row above it.
"""

from penstock.cluster.commands import (
    ChangeInSync,
    Command,
    CreateTopics,
    ElectionKind,
    ElectLeaders,
    FenceNode,
    InSyncWish,
    NewTopic,
    Reassignment,
    ReassignPartitions,
    RegisterNode,
    StopNode,
    UnfenceNode,
)
from penstock.cluster.companions import companion_id
from penstock.cluster.controller import Controller
from penstock.cluster.image import ClusterImage, PartitionState
from penstock.settings import TopicConfig
from penstock.vocabulary import NO_NODE, NodeId, TopicId

HEAD = """\
# How a partition moves

<!-- Made by `make reference` from src/penstock/cluster/; do not edit. -->

Each partition has *replicas* (the first is preferred as leader), an *in-sync set* of those that have every acknowledged record, a *leader*
from that set, and sometimes *eligible* replicas: they are out of the set, and yet have every acknowledged record, because none was
acknowledged since they left. Nothing is acknowledged to `acks=all`, and nothing is shown to readers, while the set is smaller than
`min.insync.replicas` (or than the number of replicas, if that is less).

- A leader comes from the in-sync set; where nobody there is up, from the eligible; otherwise there is none until one of them is back.
- A node that is not heard of is fenced: it leads nothing and is in sync with nothing. A node that starts is fenced until it has caught up
  with the metadata.
- Every change of leader begins a leader epoch, every change a partition epoch.
- A partition of a queue and the one with its ledger have one leader, in sync in both. Who leaves one in-sync set leaves both
  ([why](../decisions/0029-companions.md)).
- Only an operator's word (an unclean election), or the topic setting `unclean.leader.election.enable`, makes a leader of anyone else.

Each row is what became of the one above it.
"""

TABLE = "\n| what happens | leader | epoch | in sync | eligible |\n|---|---|---|---|---|\n"


class Story:
    def __init__(self, title: str, replicas: tuple[int, ...], **overrides: str) -> None:
        self._controller = Controller(ClusterImage(), TopicConfig(), 1, 10)
        self.text = f"\n## {title}\n{TABLE}"
        for node_id in (1, 2, 3, 4):
            self._submit(self._register(node_id), UnfenceNode(NodeId(node_id), 1))
        told = {name.replace("_", "."): value for name, value in overrides.items()}
        self.then("the topic is made", CreateTopics((NewTopic("t", TopicId(bytes(16)), -1, overrides=told, assignments=((0, replicas),)),)))

    def then(self, what: str, *commands: Command) -> None:
        self._submit(*commands)
        state, epoch = self._state, str(self._state.leader_epoch)
        leader = "nobody" if state.leader == NO_NODE else str(state.leader)
        self.text += f"| {what} | {leader} | {epoch} | {_names(state.in_sync)} | {_names(state.eligible)} |\n"
        if self._ledger is not None:
            ledger = self._ledger
            self.text += f"| … its ledger | {leader} | {ledger.leader_epoch} | {_names(ledger.in_sync)} | {_names(ledger.eligible)} |\n"

    def fenced(self, node_id: int, what: str = "") -> None:
        self.then(what or f"node {node_id} is lost", FenceNode(NodeId(node_id), self._epoch(node_id)))

    def back(self, node_id: int, what: str = "", *, directory: str = "d", cleanly: bool = False) -> None:
        register = self._register(node_id, directory=directory, cleanly=cleanly)
        self.then(what or f"node {node_id} is back", register, UnfenceNode(NodeId(node_id), self._epoch(node_id) + 1))

    def in_sync(self, what: str, *members: int, is_ledger: bool = False) -> None:
        state, with_epochs = self._ledger if is_ledger else self._state, tuple((NodeId(n), self._epoch(n)) for n in members)
        assert state is not None
        topic_id = companion_id(TopicId(bytes(16))) if is_ledger else TopicId(bytes(16))
        wish = InSyncWish(topic_id, 0, state.leader_epoch, state.partition_epoch, with_epochs)
        self.then(what, ChangeInSync(state.leader, self._epoch(state.leader), (wish,)))

    def stopping(self, node_id: int) -> None:
        self.then(f"node {node_id} asks to stop", StopNode(NodeId(node_id), self._epoch(node_id)))

    @property
    def _state(self) -> PartitionState:
        return self._controller.image.topics["t"].partitions[0]

    @property
    def _ledger(self) -> PartitionState | None:
        found = self._controller.image.companion_of(TopicId(bytes(16)))
        return None if found is None else found.partitions[0]

    def _epoch(self, node_id: int) -> int:
        return self._controller.image.nodes[NodeId(node_id)].node_epoch

    def _register(self, node_id: int, *, directory: str = "d", cleanly: bool = False) -> RegisterNode:
        return RegisterNode(NodeId(node_id), "c", f"{directory}{node_id}", "h", 1, cleanly)

    def _submit(self, *commands: Command) -> None:
        for command in commands:
            for record in self._controller.decide(command).records:
                self._controller.image.replay(record)


def _names(nodes: tuple[NodeId, ...]) -> str:
    return ", ".join(map(str, nodes)) or "–"


def partitions_page() -> str:
    stories = (
        _two_of_three(), _last_one_standing(), _slow_follower(), _stop_in_order(), _lossy(), _wiped(), _reassigned(), _unclean(), _queue(),
    )  # fmt: skip
    return HEAD + "".join(story.text for story in stories)


def _two_of_three() -> Story:
    story = Story("Three replicas, min.insync.replicas 2: the loss of all but one", (1, 2, 3), min_insync_replicas="2")
    story.fenced(1)
    story.fenced(3)
    story.fenced(2)
    story.back(1)
    story.back(3)
    story.in_sync("node 1 catches up", 3, 1)
    story.back(2)
    story.in_sync("node 2 catches up", 3, 1, 2)
    story.then("the preferred leader is asked for", ElectLeaders(ElectionKind.PREFERRED, None))
    return story


def _last_one_standing() -> Story:
    story = Story("Three replicas, min.insync.replicas 1: the last one standing is waited for", (1, 2, 3))
    story.fenced(2)
    story.fenced(3)
    story.fenced(1)
    story.back(2)
    story.back(3)
    story.back(1)
    return story


def _slow_follower() -> Story:
    story = Story("A slow follower, min.insync.replicas 2", (1, 2, 3), min_insync_replicas="2")
    story.in_sync("node 3 falls behind", 1, 2)
    story.in_sync("node 2 falls behind too", 1)
    story.in_sync("node 3 catches up", 1, 3)
    return story


def _stop_in_order() -> Story:
    story = Story("A stop in order", (1, 2, 3), min_insync_replicas="2")
    story.stopping(1)
    story.fenced(1, "node 1 is gone")
    story.back(1, "node 1 starts again", cleanly=True)
    story.in_sync("node 1 catches up", 2, 3, 1)
    return story


def _lossy() -> Story:
    title = "A topic that does not wait for the flush (flush = os), min.insync.replicas 2"
    story = Story(title, (1, 2), min_insync_replicas="2", flush="os")
    story.fenced(2)
    story.fenced(1)
    story.back(1, "node 1 is back after a power cut: what it acknowledged may be gone")
    story.back(2, "node 2 is back after a stop in order", cleanly=True)
    return story


def _wiped() -> Story:
    story = Story("A disk is replaced", (1, 2), min_insync_replicas="2")
    story.fenced(1)
    story.back(1, "node 1 is back with another disk", directory="new")
    story.in_sync("node 1 has fetched everything", 2, 1)
    return story


def _reassigned() -> Story:
    story = Story("Reassigned from nodes 1, 2 to nodes 3, 4", (1, 2))
    story.then("it is asked for", ReassignPartitions((Reassignment("t", 0, (NodeId(3), NodeId(4))),)))
    story.in_sync("node 3 catches up", 1, 2, 3)
    story.in_sync("node 4 catches up: nodes 1 and 2 leave", 1, 2, 3, 4)
    return story


def _unclean() -> Story:
    story = Story("An operator does not wait", (1, 2, 3))
    story.in_sync("nodes 2 and 3 fall behind", 1)
    story.fenced(1)
    story.then("an unclean election is ordered: what only node 1 had is lost", ElectLeaders(ElectionKind.UNCLEAN, (("t", 0),)))
    story.back(1)
    return story


def _queue() -> Story:
    story = Story("A queue and its ledger: who leads has everything of both", (1, 2, 3), queue_enabled="true")
    story.in_sync("node 2 falls behind in the data", 1, 3)
    story.in_sync("node 2 has caught up with the ledger", 1, 3, 2, is_ledger=True)
    story.fenced(1)
    story.fenced(3, "node 3 is lost: node 2 lacks something of the data")
    story.back(3)
    return story
