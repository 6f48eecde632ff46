"""Worlds that play what users do with data: reads from followers, deleted records, changed settings, and bytes that change on a replica.

All of this is drawn for worlds of clusters in general (test_seeds.py). Here are short ones that play each of them, and what neglects one.
"""

from random import Random

import pytest

from penstock.broker.known_ends import KNOWN_ENDS, read_known_ends
from penstock.simulator.clusters.data_menu import KINDS, with_clocks, with_data
from penstock.simulator.clusters.data_variants import DATA_VARIANTS
from penstock.simulator.clusters.delivery_menu import with_deliveries
from penstock.simulator.clusters.menu import ClusterMenu, draw_cluster
from penstock.simulator.clusters.run import ACTORS, draw_menu, draw_trouble, run_cluster_seed
from penstock.simulator.clusters.told_settings import Change, ToldSettings
from penstock.simulator.disk import SimDisk
from penstock.simulator.queue_menu import cluster_with_queues_alone
from penstock.wire.configs import ResourceType

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.invariant(
        "log.reads-below-watermark", "log.known-end", "replication.deleted-stays-deleted", "replication.damaged-copy-not-trusted",
        "replication.damage-mended", "replication.follower-reads", "replication.settings-everywhere", "node.admin-changes-durable",
    ),
]  # fmt: skip

CLOCKS = ("clock jump", "clock drift", "clock strobe")
OPERATIONS = ("follower read", "delete records", "change settings")

# The quickest seed that catches each defect, and the rule by which it does.
CAUGHT: dict[tuple[str, str], int] = {
    ("shows-what-a-follower-has-fetched", "no replica shows what is past its watermark"): 0,
    ("takes-the-end-of-a-fetch-for-the-watermark", "what is below a watermark is on every in-sync replica"): 3,
    ("shows-open-transactions-on-followers", "nothing is read before its commit"): 3,
    ("forgets-aborted-transactions-on-followers", "nothing is read before its commit"): 3,
    ("answers-when-only-the-leader-has-deleted", "a deletion is on every in-sync replica"): 2,
    ("cuts-off-damage-as-if-it-were-torn", "one offset, one value"): 43,
    ("counts-on-damaged-copies", "one offset, one value"): 16,
    ("mends-nothing", "damage is mended"): 26,
    ("leaves-settings-of-nodes-out-of-snapshots", "what was told is what is described"): 7,
    ("goes-by-the-old-settings-of-a-topic-on-one-node", "what was told is what nodes go by"): 51,
}
SEEDS_MAX = 30


def plays(menu: ClusterMenu) -> set[str]:
    return {client.kind for client in menu.clients} | ({"rot"} if menu.rots else set())


@pytest.mark.parametrize(("variant", "rule"), CAUGHT)
def test_a_cluster_that_neglects_data_is_caught(variant: str, rule: str) -> None:
    seeds = [CAUGHT[variant, rule], *range(SEEDS_MAX)]
    caught = (any(found.rule == rule for found in run_cluster_seed(seed, variant=variant).violations) for seed in seeds)
    assert any(caught), f"no seed below {SEEDS_MAX} finds by {rule!r} that the cluster {variant}"


def test_every_defect_has_its_turn() -> None:
    assert {variant for variant, _ in CAUGHT} == set(DATA_VARIANTS)


@pytest.mark.parametrize("seed", [2, 16, 59])
def test_operations_are_counted_with_those_that_overlap_a_fault(seed: int) -> None:
    report = run_cluster_seed(seed)
    assert not report.violations, report.violations[0]
    played = [name for name in OPERATIONS if f"op {name} begun" in report.statistics]
    assert played
    for name in played:
        begun, completed = report.statistics[f"op {name} begun"], report.statistics[f"op {name} completed"]
        assert begun >= completed > 0
        assert f"op {name} overlapped a fault" in report.statistics


# What is drawn.


def test_each_operation_is_drawn_in_a_third_of_the_worlds_or_nearly() -> None:
    menus = [draw_menu(seed) for seed in range(200)]
    for kind in (*KINDS, "rot"):
        assert 0.15 < sum(kind in plays(menu) for menu in menus) / len(menus) < 0.4, kind


def test_worlds_that_draw_none_stay_what_they_were() -> None:
    before = [with_deliveries(draw_cluster(seed)) for seed in range(200)]
    untouched = [menu for menu in before if with_clocks(with_data(menu)) == menu]
    assert 0.1 < len(untouched) / len(before) < 0.5


def test_a_seed_draws_the_same_data_again() -> None:
    assert [draw_menu(seed) for seed in range(20)] == [draw_menu(seed) for seed in range(20)]


def test_clocks_are_set_under_every_kind_of_client_and_differ_from_the_beginning() -> None:
    """Of worlds with queues and of all others."""
    wrong_later, wrong_first = dict[str, None](), dict[str, None]()
    for seed in range(200):
        for menu in (draw_menu(seed), with_clocks(cluster_with_queues_alone(draw_cluster(seed)))):
            kinds = dict.fromkeys(client.kind for client in menu.clients)
            if any(fault.kind in CLOCKS for fault in draw_trouble(menu, []).faults):
                wrong_later |= kinds
            if menu.clocks:
                assert len({seconds for _, seconds in menu.clocks}) == len(menu.nodes)
                wrong_first |= kinds
    assert set(wrong_later) == set(wrong_first) == set(ACTORS)


# What holds the worlds to it.


def test_a_setting_may_be_what_was_told_last_or_what_had_no_answer() -> None:
    told, topic = ToldSettings(), (ResourceType.TOPIC, "tuned")
    told.changes.append(Change(topic, {"segment.ms": "500"}, 1.0, ended=2.0))
    assert told.possible(topic, "segment.ms", None) == ["500"]
    told.changes.append(Change(topic, {"segment.ms": "700"}, 3.0))
    told.changes.append(Change(topic, {"segment.ms": None}, 4.0, ended=5.0))
    assert told.possible(topic, "segment.ms", None) == [None, "700"]
    assert told.possible(topic, "flush.ms", "50") == ["50"]
    assert told.names(topic) == ["segment.ms"]


def test_the_least_number_in_sync_counts_changes_that_were_under_way() -> None:
    told, topic = ToldSettings(), (ResourceType.TOPIC, "tuned")
    told.changes.append(Change(topic, {"min.insync.replicas": "2"}, 1.0, ended=2.0))
    told.changes.append(Change(topic, {"min.insync.replicas": "1"}, 3.0, ended=4.0))
    told.changes.append(Change(topic, {"min.insync.replicas": "3"}, 5.0))
    assert told.least_in_sync("tuned", 3.5) == [1, 3]
    assert told.least_in_sync("tuned", 4.5) == [3]


def test_a_rotten_byte_can_be_put_right() -> None:
    disk = SimDisk("a seed")
    file = disk.open("log", create=True)
    disk.append(file, [b"right"])
    disk.restore("log", b"right")
    disk.rot("log", 2)
    assert disk.flushed("log") != b"right"
    disk.put_right("log", 2, b"right"[2])
    assert disk.flushed("log") == disk.snapshot("log") == b"right"


def test_known_ends_that_cannot_be_read_say_nothing() -> None:
    assert read_known_ends(Random(1).randbytes(60)) is None, KNOWN_ENDS
