"""Who is alive, as the controller heard it. Forgettable: it stands beside the image, and a new controller gives everyone a full session.

A node is heard by its heartbeats. One that isn't heard for the session's length has expired, and is to be fenced. A link that breaks makes
its node a suspect: a process that ended is noticed in SUSPECT_SECONDS, and one that lives is heard on a new link by then.
"""

from collections.abc import Iterable, Mapping

from penstock.vocabulary import Instant, NodeId

SUSPECT_SECONDS = 0.5


class Sessions:
    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._ends: dict[NodeId, Instant] = {}
        self._epochs: dict[NodeId, int] = {}
        self._heard: dict[NodeId, Instant] = {}  # Also of those whose session ended: people ask when a node was last seen.

    def begin(self, now: Instant, nodes: Mapping[NodeId, int], suspects: Iterable[NodeId] = ()) -> None:
        """This node became the controller: all `nodes` (id: node epoch) get a full session, but for those that cannot be reached now."""
        self._ends = {node: Instant(now + self.timeout_s) for node in nodes}
        self._epochs = dict(nodes)
        self._heard.clear()
        for node in suspects:
            self.lost_contact(node, now)

    def heard(self, node: NodeId, node_epoch: int, now: Instant) -> bool:
        """False for a life of the node that is over: its heartbeats prolong nothing."""
        if node_epoch < self._epochs.get(node, node_epoch):
            return False
        self._epochs[node] = node_epoch
        self._ends[node] = Instant(now + self.timeout_s)
        self._heard[node] = now
        return True

    def lost_contact(self, node: NodeId, now: Instant) -> None:
        if node in self._ends:
            self._ends[node] = Instant(min(self._ends[node], now + SUSPECT_SECONDS))

    def excuse(self, seconds: float) -> None:
        """For so long the controller itself did not listen: that counts against nobody."""
        self._ends = {node: Instant(end + seconds) for node, end in self._ends.items()}

    def forget(self, node: NodeId) -> None:
        """It was fenced or unregistered: nothing more is expected of it until it is heard again."""
        self._ends.pop(node, None)

    def is_alive(self, node: NodeId, now: Instant) -> bool:
        return now < self._ends.get(node, now)

    def expired(self, now: Instant) -> list[NodeId]:
        return sorted(node for node, end in self._ends.items() if end <= now)

    def due(self) -> Instant | None:
        """When the next session ends, if nothing is heard."""
        return min(self._ends.values(), default=None)

    def seconds_since_heard(self, node: NodeId, now: Instant) -> float | None:
        """None where this controller has never heard of it."""
        heard = self._heard.get(node)
        return None if heard is None else now - heard
