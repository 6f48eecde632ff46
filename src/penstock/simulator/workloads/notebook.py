"""What the clients of one run write down: the diary of promises, and whatever a single client may never see.

Most rules need the whole story and are judged afterwards (checkers.py). Some are broken in a single reply: an answer out of turn, a wrong
checksum, one producer id for two. Those are noted here at once, as findings.

A topic that is deleted and made again is another topic, so partitions stand in the diary under a label that tells the two apart.
"""

from collections import Counter
from dataclasses import dataclass
from zlib import crc32

from penstock.queues.headers import SOURCE
from penstock.simulator.checkers import Violation
from penstock.simulator.diary import Diary, Outcome, Read
from penstock.simulator.menu import TopicPlan
from penstock.simulator.queue_diary import Told
from penstock.simulator.transaction_diary import Ending
from penstock.simulator.workloads.values import identity_of, what_is_wrong
from penstock.vocabulary import TopicId, TopicPartition
from penstock.wire.batches import Record

NOWHERE = TopicPartition("(node)", 0)  # For what concerns no partition.
FINDINGS_MAX = 50


@dataclass(slots=True)
class TopicLife:
    """One topic id, from its making to its end."""

    label: str
    topic_id: TopicId
    plan: TopicPlan
    deletion: Outcome | None = None  # None: nobody ever asked for it.


class Notebook:
    def __init__(self, *, caches_are_harmed: bool = False) -> None:
        # A checkpoint is more than a cache in one thing: it alone knows where a log begins while the files of old segments still go.
        self.caches_are_harmed = caches_are_harmed
        self.diary = Diary()
        self.findings: list[Violation] = []
        self.lives: dict[TopicId, TopicLife] = {}
        self.may_refuse_to_start = ""  # Which file was damaged that a node cannot do without.
        self._producer_ids: dict[int, str] = {}
        self._batches: dict[tuple[TopicPartition, int], int] = {}  # What a batch looked like, by the offset at which it begins.

    def find(self, rule: str, partition: TopicPartition, story: str) -> None:
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(Violation(rule, partition, story))

    # At the end.

    def account(self) -> Counter[str]:
        """How much was asked and told."""
        diary = self.diary
        outcomes = Counter(attempt.outcome for attempt in diary.attempts)
        return Counter({
            "records attempted": len(diary.attempts),
            "records acknowledged": outcomes[Outcome.ACKNOWLEDGED],
            "records refused": outcomes[Outcome.FAILED],
            "records read": sum(isinstance(move, Read) for move in diary.moves),
            "records at the end": sum(len(final.records) for final in diary.finals.values()),
            "offsets asked for": len(diary.watermarks),
            "assignments": len(diary.assignments),
            "transactions": len(diary.transactions.transactions),
            "transactions committed": sum(one.ending is Ending.COMMITTED for one in diary.transactions.transactions),
            "partitions gained": sum(len(member.tenures) for member in diary.memberships.members),
            "offsets committed": sum(commit.outcome is Outcome.ACKNOWLEDGED for commit in diary.commits),
            "topics": len(self.lives),
            "messages sent": sum(send.outcome is Told.ACKNOWLEDGED for send in diary.queues.sends),
            "messages lent": len(diary.queues.deliveries),
            "records shared": len(diary.queues.shares.deliveries),
            "dead letters": sum(SOURCE in each.headers for each in diary.queues.deliveries),
        })  # fmt: skip

    def excuse_weak_topics(self) -> None:
        """Topics that promise less may lose their last records in a cut."""
        for life in self.lives.values():
            if life.plan.is_weak and self.diary.cuts:
                for index in range(life.plan.partitions):
                    self.diary.weak[TopicPartition(life.label, index)] = life.plan.config.get("flush", "")

    # Topics.

    def made(self, topic_id: TopicId, plan: TopicPlan) -> TopicLife:
        """A topic is there that nobody has told of yet, or is told of again."""
        life = self.lives.get(topic_id)
        if life is None:
            label = plan.name if not plan.is_churned else f"{plan.name}~{topic_id[:3].hex()}"
            life = self.lives[topic_id] = TopicLife(label, topic_id, plan)
            if plan.is_transactional:
                self.diary.transactional |= dict.fromkeys(TopicPartition(label, index) for index in range(plan.partitions))
            if plan.is_compacted:
                for index in range(plan.partitions):
                    self.diary.compacted[TopicPartition(label, index)] = int(plan.config["delete.retention.ms"]) / 1_000
        return life

    def life_at(self, path: str) -> tuple[TopicLife, TopicPartition] | None:
        """Whose file this is; None if it belongs to no topic that is known."""
        parts = path.split("/")
        if len(parts) < 4 or parts[0] != "topics":
            return None
        life = self.lives.get(TopicId(bytes.fromhex(parts[1])))
        return None if life is None else (life, TopicPartition(life.label, int(parts[2])))

    def keeps_everything(self, partition: TopicPartition, plan: TopicPlan) -> bool:
        """Whether nothing excuses that a record which was once there is not."""
        return not (plan.is_weak or plan.forgets or partition in self.diary.damaged)

    # What clients are told.

    def got_producer_id(self, producer_id: int, who: str) -> None:
        other = self._producer_ids.setdefault(producer_id, who)
        if other != who:
            self.find("a producer id is given once", NOWHERE, f"{producer_id} was given to {other} and to {who}")

    def saw(self, partition: TopicPartition, plan: TopicPlan, reader: str, record: Record, now: float) -> None:
        wrong = what_is_wrong(record, is_append_time=plan.is_append_time)
        if wrong is not None:
            self.find("a record is what it was", partition, f"offset {record.offset}: {wrong}")
        self.diary.read(partition, reader, record.offset, identity_of(record), now)

    def saw_batch(self, partition: TopicPartition, plan: TopicPlan, base_offset: int, batch: bytes | memoryview) -> None:
        """Every byte of a batch is compared with what anybody saw of it before, the stamped header too."""
        if plan.is_weak or plan.is_compacted:
            return  # There another batch may come to stand in its place, or less of the same.
        seen = crc32(batch)
        if self._batches.setdefault((partition, base_offset), seen) != seen:
            self.find("a batch never changes", partition, f"the batch at offset {base_offset} is not the one that was read before")
