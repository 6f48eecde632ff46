"""What a seed chooses for a run of one node: topics and their settings, the node's own settings, and the clients.

Each seed draws its own mix (swarm testing), and every knob that shapes batching, rolling and checkpoints is drawn small now and then:
without tiny segments the rare paths never run.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from penstock.settings import NodeSettings
from penstock.simulator.knobs import Turned, draw_compaction_knobs, draw_group_knobs, draw_knobs

CODECS = (0, 0, 1, 2, 3, 4)
# Without a reserve, with one that a few writes use up, and as nodes are started.
DISK_ROOMS: tuple[Mapping[str, Any], ...] = (
    {"disk_free_bytes_min": 0, "disk_reserve_bytes": 0},
    {"disk_free_bytes_min": 0, "disk_reserve_bytes": 4 << 10},
    {"disk_free_bytes_min": 256 << 20, "disk_reserve_bytes": 64 << 20},
)
_COMPACTED = 0.2  # How many seeds have a compacted topic beside the others,
_GROUPED = 0.25  # and how many a consumer group.


@dataclass(frozen=True, slots=True)
class TopicPlan:
    name: str
    partitions: int = 1
    config: Mapping[str, str] = field(default_factory=dict)
    is_churned: bool = False  # Deleted and made again, over and over.
    replication_factor: int = 1
    is_transactional: bool = False  # Written in transactions: markers take offsets of it.
    is_trimmed: bool = False  # Its oldest records are deleted by request.

    @property
    def is_weak(self) -> bool:
        """May lose acknowledged records to a power cut, because it was asked to."""
        return self.config.get("flush", "ack") != "ack" and self.config.get("flush.messages") != "1"

    @property
    def forgets(self) -> bool:
        """Old segments go."""
        return self.is_trimmed or "retention.ms" in self.config or "retention.bytes" in self.config

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.config.get("cleanup.policy", "")

    @property
    def is_append_time(self) -> bool:
        return self.config.get("message.timestamp.type") == "LogAppendTime"


@dataclass(frozen=True, slots=True)
class ClientPlan:
    name: str
    kind: str
    topic: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Menu:
    seed: int
    seconds: float
    settings: NodeSettings
    topics: tuple[TopicPlan, ...]
    clients: tuple[ClientPlan, ...]
    harms_caches: bool  # Indexes and checkpoints are lost, cut, swapped or changed at rest.
    rots: bool  # Flushed batches change at rest.
    knobs: Turned  # Constants of the product that are made small.
    last_ending: str  # How the node's last life before the reckoning ends.
    offsets_topic: TopicPlan | None = None  # Where groups keep their offsets, made beforehand to be small.
    queues: tuple[TopicPlan, ...] = ()


def draw_menu(seed: int) -> Menu:
    return _with_a_group(_with_a_compacted_topic(_draw_menu(seed), Random(f"{seed}/compacted")), Random(f"{seed}/group"))


def _draw_menu(seed: int) -> Menu:
    rng = Random(f"{seed}/menu")
    seconds = rng.uniform(3.0, 9.0)
    topics = tuple(draw_topic(rng, f"topic-{number}") for number in range(rng.choice((1, 1, 2, 2, 3))))
    harms_caches = rng.random() < 0.25
    return Menu(
        seed=seed,
        seconds=seconds,
        settings=_draw_settings(rng),
        topics=topics,
        clients=_draw_clients(rng, topics, harms_caches=harms_caches),
        harms_caches=harms_caches,
        rots=rng.random() < 0.2,
        knobs=draw_knobs(rng),
        last_ending=rng.choice(("power cut", "power cut", "kill", "clean stop")),
    )


def draw_topic(rng: Random, name: str) -> TopicPlan:
    config: dict[str, str] = {}

    def now_and_then(setting: str, *choices: object, chance: float = 0.3) -> None:
        if rng.random() < chance:
            config[setting] = str(rng.choice(choices))

    now_and_then("segment.bytes", 1024, 1024, 2048, 8192, 65536, chance=0.7)
    now_and_then("segment.ms", 500, 3000)
    now_and_then("index.interval.bytes", 0, 100, 1000)
    now_and_then("flush", "os", "interval")
    if "flush" in config:
        now_and_then("flush.ms", 0, 50, 2000, chance=0.6)
        now_and_then("flush.messages", 1, 10)
    now_and_then("retention.ms", 300, 800, 3000, chance=0.2)
    now_and_then("retention.bytes", 1, 4000, chance=0.15)
    now_and_then("message.timestamp.type", "LogAppendTime", chance=0.25)
    now_and_then("max.message.bytes", 1500, 5000, chance=0.15)
    return TopicPlan(name, rng.choice((1, 1, 2, 3)), config)


def _with_a_compacted_topic(menu: Menu, rng: Random) -> Menu:
    """Now and then, by chance of its own: the other seeds, and the rest of the menu, stay what they were."""
    if rng.random() >= _COMPACTED:
        return menu
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": str(rng.choice((1024, 1024, 2048, 8192))),
        "min.cleanable.dirty.ratio": str(rng.choice((0.0, 0.0, 0.3))),
        "delete.retention.ms": str(rng.choice((0, 300, 1_500, 60_000))),
    }
    if rng.random() < 0.2:
        config["min.compaction.lag.ms"] = str(rng.choice((100, 1_000)))
    if rng.random() < 0.3:
        config["index.interval.bytes"] = str(rng.choice((0, 100, 1000)))
    topic = TopicPlan("kept", rng.choice((1, 1, 2)), config)
    pause = _between(rng, 0.01, 0.1)
    options = {"pause": pause, "keys": rng.choice((2, 5, 12)), "records": rng.choice((1, 3, 12))}
    options |= {"codec": rng.choice(CODECS), "size": rng.choice((10, 60, 200))}
    clients = [ClientPlan(f"keep-{number}", "keep", topic.name, options) for number in range(rng.choice((1, 1, 2)))]
    if not menu.harms_caches and rng.random() < 0.4:  # Of a producer whose checkpoint is lost only the last batch is known.
        more = {"version": 9, "has_giants": False, "is_grouped": False, **options}
        clients.append(ClientPlan("keep-pipeline", "pipeline", topic.name, more))
    reader = rng.choice(("follow", "reread", "fetch", "fetch"))
    clients.append(ClientPlan("keep-reader", reader, topic.name, {"pause": pause, "uses_sessions": rng.random() < 0.5, "version": 12}))
    if rng.random() < 0.4:
        clients.append(ClientPlan("keep-asker", "ask", topic.name, {"pause": pause}))
    settings = replace(menu.settings, cleaner_backoff_ms=rng.choice((20, 100, 500)), cleaner_keys_bytes=rng.choice((1 << 10, 1 << 20)))
    return replace(
        menu, topics=(*menu.topics, topic), clients=(*menu.clients, *clients), settings=settings,
        knobs={**menu.knobs, **draw_compaction_knobs(rng)},
    )  # fmt: skip


def _with_a_group(menu: Menu, rng: Random) -> Menu:
    """As with compacted topics: by chance of its own."""
    if rng.random() >= _GROUPED:
        return menu
    topic = TopicPlan("grouped", rng.choice((1, 2, 4)), {"segment.bytes": str(rng.choice((1024, 8192)))})
    pause = _between(rng, 0.02, 0.2)
    producing = {
        "pause": pause, "codec": 0, "size": 40, "acks": -1, "is_idempotent": True, "keys": 0, "linger": 0.005, "batch_bytes": 1_000,
        "burst": rng.choice((1, 5)),
    }  # fmt: skip
    clients = [ClientPlan("grouped-producer", "produce", topic.name, producing)]
    times = {"session_ms": rng.choice((200, 500, 1_500)), "rebalance_ms": rng.choice((300, 1_000, 3_000))}
    joining = {"pause": _between(rng, 0.005, 0.05), "group": "g", **times}
    clients += [ClientPlan(f"member-{number}", "join", topic.name, joining) for number in range(rng.randint(1, 4))]
    config = {"segment.bytes": str(rng.choice((1024, 4096, 65536))), "min.cleanable.dirty.ratio": str(rng.choice((0.0, 0.5)))}
    config |= {"delete.retention.ms": str(rng.choice((0, 500, 60_000)))}
    settings = replace(
        menu.settings, group_initial_rebalance_delay_ms=rng.choice((0, 0, 100)), group_min_session_timeout_ms=100,
        cleaner_backoff_ms=rng.choice((50, 500, 15_000)),
    )  # fmt: skip
    return replace(
        menu, topics=(*menu.topics, topic), clients=(*menu.clients, *clients), settings=settings,
        offsets_topic=TopicPlan("__consumer_offsets", rng.choice((1, 2)), config), knobs={**menu.knobs, **draw_group_knobs(rng)},
    )  # fmt: skip


def _draw_settings(rng: Random) -> NodeSettings:
    return NodeSettings(
        num_partitions=rng.choice((1, 2)),
        checkpoint_bytes=rng.choice((64 << 20, 1024, 1024, 4096, 30_000)),
        open_files_max=rng.choice((4_000, 16)),
        retention_check_ms=rng.choice((300, 1_000, 300_000)),
        **rng.choice(DISK_ROOMS),
        fetch_sessions_max=rng.choice((1_000, 0, 1)),
        requests_in_flight_max=rng.choice((64, 64, 1, 3)),
        fetch_max_bytes=rng.choice((55 << 20, 1024, 20_000)),
    )


def _draw_clients(rng: Random, topics: tuple[TopicPlan, ...], *, harms_caches: bool) -> tuple[ClientPlan, ...]:
    clients: list[ClientPlan] = []

    def add(kind: str, topic: TopicPlan, **options: Any) -> None:
        clients.append(ClientPlan(f"{kind}-{len(clients)}", kind, topic.name, {"pause": _between(rng, 0.02, 0.4), **options}))

    for topic in topics:
        _add_producers(rng, topic, add, may_repeat=not (harms_caches and topic.forgets))
    for _ in range(rng.choice((1, 1, 2))):
        topic = rng.choice(topics)
        kind, uses_sessions = rng.choice(("follow", "reread", "fetch", "fetch")), rng.random() < 0.6
        add(kind, topic, uses_sessions=uses_sessions, version=rng.choice((4, 11, 13, 16)))
    if rng.random() < 0.5:
        add("ask", rng.choice(topics))
    if rng.random() < 0.4:
        churned = TopicPlan("churned", rng.choice((1, 2)), draw_topic(rng, "").config, is_churned=True)
        add("churn", churned, plan=churned)
    return tuple(clients)


def _add_producers(rng: Random, topic: TopicPlan, add: Any, *, may_repeat: bool) -> None:
    size = rng.choice((10, 40, 40, 200, 6_000))
    common = {"codec": rng.choice(CODECS), "size": size}
    if may_repeat and not topic.is_weak and rng.random() < 0.6:
        version = rng.choice((3, 7, 9, 13))
        codec = common["codec"] if version >= 7 else 0
        records, has_giants, is_grouped = rng.choice((1, 1, 3, 12)), rng.random() < 0.15, rng.random() < 0.3
        add(
            "pipeline", topic, **{**common, "codec": codec}, records=records, version=version, has_giants=has_giants, is_grouped=is_grouped
        )
        if rng.random() < 0.6:
            return
    acks, is_idempotent = rng.choice(((-1, True), (-1, True), (-1, False), (1, False), (0, False)))
    add(
        "produce", topic, **common, acks=acks, is_idempotent=is_idempotent, keys=rng.choice((0, 3, 20)),
        linger=rng.choice((0.0, 0.005, 0.1)), batch_bytes=rng.choice((200, 1_000, 65_536)), burst=rng.choice((1, 1, 5, 30)),
    )  # fmt: skip


def _between(rng: Random, low: float, high: float) -> float:
    """Evenly over the orders of magnitude."""
    return math.exp(rng.uniform(math.log(low), math.log(high)))
