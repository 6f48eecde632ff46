"""The in-sync set as its leader knows it: who vouches for what is acknowledged, who may join, who has fallen behind.

Only the controller changes the set; the leader proposes. Until it knows what became of a proposal it reckons with everybody who may be in
the set (`bounds`), because the controller may already have made one of them the next leader. A proposal names the version that it
changes (`partition_epoch`), so any later version ends all doubt about earlier proposals, however many of them got lost or came twice.
A proposal that was refused or got lost is therefore followed by another, which may ask for nothing new: accepted, it is a later version.

A replica joins when it has *reached* the watermark and the beginning of this leader's epoch. Before that it could lack what an earlier
leader has acknowledged, since a new leader's watermark lags behind. Its log must start no earlier than what clients know to be deleted, or
deleted records would be back when it leads. It leaves when it lacks a record that is older than `lag_max_s`.
What counts is what it has on its disk, not what it has fetched.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.vocabulary import Instant, NodeId, Offset

Members = tuple[tuple[NodeId, int], ...]  # Nodes with their node epochs: which life of a node is meant (KIP-903).

NOTHING, FIRST = Offset(-1), Offset(0)
NO_NODE_EPOCH = -1

# How often a leader looks at its followers in the time after which one leaves. One that was away for half that time judges nobody by
# it: what the followers have reported meanwhile is still on its way.
LOOKS_PER_LAG = 4


class ProposeInSync(NamedTuple):
    """The set that the leader asks the controller for, and the version that it would replace."""

    partition_epoch: int
    members: Members


class Progress:
    """One follower, as far as it has told this leader."""

    __slots__ = ("joined_at", "node", "node_epoch", "reached", "start")

    def __init__(self, node: NodeId, node_epoch: int, now: Instant) -> None:
        self.node = node
        self.node_epoch = node_epoch
        self.reached = NOTHING  # It has everything below. Nothing it told an earlier leader counts.
        self.start = Offset(0)  # Its log starts here, also after a crash; as of the report of `reached`.
        self.joined_at = now  # A member is not judged before it had its time.


class InSync:
    __slots__ = (
        "_doubtful", "_epochs", "_followers", "_judged_since", "_lag_max_s", "_looked_at", "_marks", "_me", "_needed_end", "_proposal",
        "_rests", "bounds", "leader_leaves", "members", "partition_epoch", "replicas",
    )  # fmt: skip

    def __init__(
        self, me: NodeId, members: Sequence[tuple[NodeId, int]], replicas: Iterable[NodeId], partition_epoch: int,
        *, lag_max_s: float, now: Instant,
    ) -> None:  # fmt: skip
        self._me = me
        self._lag_max_s = lag_max_s
        self.replicas = tuple(replicas)
        self.partition_epoch = partition_epoch
        self.members = tuple(node for node, _ in members)
        self._epochs = dict(members)  # The lives that are in the set, as the controller has it.
        self._followers = {node: Progress(node, node_epoch, now) for node, node_epoch in members if node != me}
        self._proposal: ProposeInSync | None = None
        self._doubtful: tuple[NodeId, ...] = ()  # Perhaps in the set, by proposals whose end nobody knows.
        self._rests = False  # There was a no just now: the next look is early enough.
        self._marks: deque[tuple[Instant, Offset]] = deque([(now, NOTHING)])  # Where the log ended at each look.
        self._looked_at = now
        self._needed_end = NOTHING  # Where the log ended `lag_max_s` ago, for members that joined before `_judged_since`.
        self._judged_since = now
        self.leader_leaves = False  # Its log has failed: it asks to be left out, so that another one leads.
        self.bounds: tuple[Progress, ...] = ()  # The watermark passes none of these.
        self._note_bounds()

    # What followers tell

    def note(self, node: NodeId, node_epoch: int, end_offset: Offset, start: Offset = FIRST) -> bool:
        """Notes what a follower has reported; returns whether that is news. A new life of it may have less than the one before.

        A log that begins anew starts earlier than it did, and then reports a later end: the start belongs to the end that it came with."""
        follower = self._followers.get(node)
        if follower is None:
            if node not in self.replicas or node == self._me:
                return False
            follower = self._followers[node] = Progress(node, node_epoch, self._looked_at)
        known = (follower.node_epoch, follower.reached, follower.start)
        if (node_epoch, end_offset, start) <= known:
            return False
        follower.node_epoch, follower.reached, follower.start = node_epoch, end_offset, start
        return True

    def look(self, log_end: Offset, now: Instant) -> None:
        """Notes what a member must have by now. To be called `LOOKS_PER_LAG` times in the time after which one leaves."""
        if now - self._looked_at > self._lag_max_s / 2:
            self._marks.clear()
        self._looked_at, self._rests = now, False
        self._marks.append((now, log_end))
        horizon = Instant(now - self._lag_max_s)
        while len(self._marks) > 1 and self._marks[1][0] <= horizon:
            self._marks.popleft()
        marked_at, end_then = self._marks[0]
        self._needed_end, self._judged_since = end_then if marked_at <= horizon else NOTHING, horizon

    # Proposals

    def propose(self, joining_from: Offset, deleted_below: Offset = FIRST) -> ProposeInSync | None:
        """Returns the change that is due, if any. A replica may join that has reached `joining_from` and starts no earlier than
        `deleted_below`. One proposal at a time."""
        if self._proposal is not None or self._rests:
            return None
        wanted = self._wanted(joining_from, deleted_below)
        if wanted == self.members and not self._doubtful:
            return None
        self._proposal = ProposeInSync(self.partition_epoch, tuple((node, self._epoch_of(node)) for node in wanted))
        self._note_bounds()
        return self._proposal

    def refused(self, partition_epoch: int) -> None:
        """By the controller. Another attempt at the same may still be on its way there, so whom it names stays in doubt for now."""
        joining = self._end_in_doubt(partition_epoch)
        for node in joining:
            self._followers[node].reached = NOTHING  # Let it report once more: by then it may be welcome.
        self._rests = not joining

    def lost(self, partition_epoch: int) -> None:
        """Nobody knows what became of it. It is tried again at the next look."""
        self._end_in_doubt(partition_epoch)
        self._rests = True

    def adopt(self, members: Sequence[tuple[NodeId, int]], replicas: Iterable[NodeId], partition_epoch: int, now: Instant) -> bool:
        """What the controller has decided; whether it is news."""
        if partition_epoch <= self.partition_epoch:
            return False
        before, self.members, self._epochs = self.members, tuple(node for node, _ in members), dict(members)
        self.partition_epoch, self.replicas = partition_epoch, tuple(replicas)
        self._proposal, self._doubtful, self._rests = None, (), False
        for node, node_epoch in members:
            if node != self._me and node not in before:
                self._followers.setdefault(node, Progress(node, node_epoch, now)).joined_at = now
        for node in [node for node in self._followers if node not in self.members and (node in before or node not in self.replicas)]:
            del self._followers[node]  # Who was put out comes in again by what it reports from here on.
        self._note_bounds()
        return True

    def _wanted(self, joining_from: Offset, deleted_below: Offset) -> tuple[NodeId, ...]:
        staying = tuple(node for node in self.members if node == self._me or not self._is_late(self._followers[node]))
        if self.leader_leaves and len(staying) > 1:
            return tuple(node for node in staying if node != self._me)
        for node in self.replicas:
            follower = self._followers.get(node) if node not in self.members else None
            if follower is not None and follower.reached >= joining_from and follower.start >= deleted_below:
                return (*staying, node)  # One at a time: whoever is refused spoils nobody else's proposal.
        return staying

    def _is_late(self, member: Progress) -> bool:
        return member.reached < self._needed_end and member.joined_at <= self._judged_since

    def _end_in_doubt(self, partition_epoch: int) -> list[NodeId]:
        """The proposal is no longer waited for. Returns whom it would have added."""
        if self._proposal is None or self._proposal.partition_epoch != partition_epoch:
            return []
        joining = [node for node, _ in self._proposal.members if node not in self.members]
        self._doubtful = tuple(dict.fromkeys((*self._doubtful, *joining)))
        self._proposal = None
        return joining

    def _note_bounds(self) -> None:
        proposed = tuple(node for node, _ in self._proposal.members) if self._proposal is not None else ()
        everybody = dict.fromkeys((*self.members, *proposed, *self._doubtful))
        self.bounds = tuple(self._followers[node] for node in everybody if node != self._me)

    def _epoch_of(self, node: NodeId) -> int:
        """A member is proposed with the life that is in the set, whatever a later life of it may report."""
        return self._epochs[node] if node in self._epochs else self._followers[node].node_epoch
