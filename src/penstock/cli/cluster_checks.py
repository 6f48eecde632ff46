"""What `penstock cluster status` looks at besides the picture: disks, damaged copies, and topics with odd numbers of replicas.

Troubles go away when they are mended, and `status --wait` waits for that. Notes are worth knowing and stay as they are until somebody
changes a topic.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.cli.cluster_disks import ASK_SECONDS, Disks, ask_disks
from penstock.cli.cluster_picture import Picture
from penstock.cli.progress import size_text
from penstock.cluster.topic_names import is_companion
from penstock.peers.client import Client
from penstock.peers.configs import Configured
from penstock.peers.failures import PeerFailure
from penstock.vocabulary import TopicPartition

FREE_MIN = "disk.free.bytes.min"
FACTORS = {
    "__consumer_offsets": "offsets.topic.replication.factor",
    "__transaction_state": "transaction.state.log.replication.factor",
}
NAMED_MAX = 5


class DamagedCopy(NamedTuple):
    node: int
    directory: str
    where: TopicPartition | None  # None where no topic of today has that directory.

    def __str__(self) -> str:
        return f"{self.where if self.where is not None else self.directory} on node {self.node}"


class OddPartition(NamedTuple):
    where: TopicPartition
    replicas: int
    usual: int  # What most partitions of its topic have.


@dataclass(frozen=True, slots=True)
class Checks:
    picture: Picture
    disks: Disks = field(default_factory=lambda: Disks({}, {}))
    settings: Mapping[int, Mapping[str, int]] = field(default_factory=dict)  # By node, those that are looked at here.

    def troubles(self) -> list[str]:
        return [*self._short_disks(), *self._damage()]

    def notes(self) -> list[str]:
        unasked = [f"node {node} could not be asked about its disk: {reason}" for node, reason in self.disks.silent.items()]
        return [*unasked, *self._nearly_short_disks(), *self._odd_topics(), *self._own_topics()]

    def free(self, node: int) -> int | None:
        disk = self.disks.told.get(node)
        return None if disk is None or disk.free_bytes < 0 else disk.free_bytes

    def full(self) -> list[int]:
        """Nodes that should be given no more replicas. One whose disk has filled up counts until it has twice what it needs."""
        return [node for node, free, least in self._space() if free < 2 * least]

    def damaged(self) -> list[DamagedCopy]:
        names = {topic.topic_id.hex(): topic.name for topic in self.picture.topics}
        return [
            DamagedCopy(node, directory, _partition_of(directory, names))
            for node, disk in self.disks.told.items()
            for directory in disk.failed
        ]

    def odd_partitions(self) -> list[OddPartition]:
        """Those with another number of replicas than most of their topic, unless they are being moved. Ledgers are as their queues are."""
        found = []
        for topic in self.picture.targets():
            if is_companion(topic.name):
                continue
            counts = Counter(len(state.replicas) for state in topic.partitions)
            usual = max(counts, key=lambda count: (counts[count], count), default=0)
            for state in topic.partitions:
                where = TopicPartition(topic.name, state.partition)
                if len(state.replicas) != usual and where not in self.picture.moving:
                    found.append(OddPartition(where, len(state.replicas), usual))
        return found

    def _short_disks(self) -> list[str]:
        return [
            f"node {node} has {size_text(free)} free, less than {FREE_MIN} ({size_text(least)}): it refuses what producers send, and "
            "others lead in its place where they can; make space"
            for node, free, least in self._space()
            if free < least
        ]

    def _nearly_short_disks(self) -> list[str]:
        return [
            f"node {node} has {size_text(free)} free; below {size_text(least * 3 // 2)} others lead in its place where they can, and below "
            f"{size_text(least)} ({FREE_MIN}) it refuses what producers send"
            for node, free, least in self._space()
            if least <= free < 2 * least
        ]

    def _space(self) -> list[tuple[int, int, int]]:
        told = [(node, self.free(node), self.settings.get(node, {}).get(FREE_MIN, 0)) for node in self.disks.told]
        return [(node, free, least) for node, free, least in told if free is not None]

    def _damage(self) -> list[str]:
        damaged = self.damaged()
        if not damaged:
            return []
        return [f"damaged copies: {_named(list(map(str, damaged)))}; their nodes fetch them anew where another replica is in sync"]

    def _odd_topics(self) -> list[str]:
        topics: dict[str, list[OddPartition]] = {}
        for odd in self.odd_partitions():
            topics.setdefault(odd.where.topic, []).append(odd)
        said = []
        for name, odds in topics.items():
            usual, listed = odds[0].usual, _named([f"{odd.where.partition} has {odd.replicas}" for odd in odds])
            advice = f"penstock cluster reassign --topic {name} --replication-factor {usual}"
            said.append(f"topic {name} has {usual} replicas, but partition {listed}: {advice}")
        return said

    def _own_topics(self) -> list[str]:
        said, brokers = [], len(self.picture.cluster.nodes)
        for topic in self.picture.targets():
            setting = FACTORS.get(topic.name)
            wanted = max((settings.get(setting, 0) for settings in self.settings.values()), default=0) if setting is not None else 0
            least = min((len(state.replicas) for state in topic.partitions), default=wanted)
            if least < wanted:
                advice = f"penstock cluster reassign --topic {topic.name} --replication-factor {wanted}"
                if brokers < wanted:
                    advice = f"there {'is one broker' if brokers == 1 else f'are {brokers} brokers'}, so add nodes first"
                said.append(f"{topic.name} has {least} replica{'s' if least != 1 else ''}, and {setting} asks for {wanted}: {advice}")
        return said


async def check(client: Client, picture: Picture) -> Checks:
    """Asks every node that is up about its disk, and those that answer about their settings: the others would be asked again and again."""
    disks = await ask_disks(client, dict.fromkeys(picture.live(), ()))
    told = await asyncio.gather(*[_settings(client, node) for node in disks.told])
    return Checks(picture, disks, dict(zip(disks.told, told, strict=True)))


async def _settings(client: Client, node: int) -> dict[str, int]:
    try:
        told = await client.settings_of(Configured.node(node), deadline_s=ASK_SECONDS)
    except PeerFailure:
        return {}
    return {view.name: int(view.value) for view in told if view.name in (FREE_MIN, *FACTORS.values()) and view.value is not None}


def _partition_of(directory: str, names: Mapping[str, str]) -> TopicPartition | None:
    """A node keeps a partition in .../topics/<topic id>/<partition>."""
    *_, topic_id, index = ["", "", *directory.split("/")]
    return TopicPartition(names[topic_id], int(index)) if topic_id in names and index.isdecimal() else None


def _named(names: list[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more
