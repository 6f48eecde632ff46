"""What seeds choose for clusters: every shape, every kind of client and of trouble, and nothing that a cluster is not promised to bear."""

from collections import Counter

from penstock.simulator.clusters import aiming, faults
from penstock.simulator.clusters.members import Cluster
from penstock.simulator.clusters.menu import ClusterMenu, draw_cluster
from penstock.simulator.clusters.run import ACTORS, draw_menu, draw_trouble
from penstock.simulator.faults import HARMLESS
from penstock.simulator.world import World

SEEDS = range(200)


def menus() -> list[ClusterMenu]:
    return [draw_menu(seed) for seed in SEEDS]


def test_a_seed_draws_the_same_cluster_again() -> None:
    assert [draw_cluster(seed) for seed in range(20)] == [draw_cluster(seed) for seed in range(20)]


def test_every_shape_of_cluster_is_drawn() -> None:
    shapes = Counter(tuple(sorted(node.settings.process_roles for node in menu.nodes)) for menu in menus())
    assert {len(shape) for shape in shapes} == {1, 3, 4, 5, 6}
    assert any(set(shape) == {"broker", "controller"} for shape in shapes)
    assert any(shape.count("broker,controller") == 2 and "controller" in shape for shape in shapes)


def test_replicas_fit_the_brokers_and_every_number_is_drawn() -> None:
    drawn = Counter()
    for menu in menus():
        brokers = len(menu.brokers)
        for topic in (*menu.topics, *([menu.offsets_topic] if menu.offsets_topic else [])):
            drawn[topic.replication_factor, topic.config.get("min.insync.replicas", "1")] += 1
            assert 1 <= int(topic.config.get("min.insync.replicas", "1")) <= max(2, topic.replication_factor) <= max(2, brokers)
            assert topic.replication_factor <= brokers
    assert {(1, "1"), (2, "1"), (2, "2"), (3, "1"), (3, "2")} <= set(drawn)


def test_every_kind_of_client_and_of_trouble_is_drawn() -> None:
    elsewhere = {kind for kind in ACTORS if kind == "share" or kind.startswith("queue ")}  # Worlds of queues are drawn apart.
    assert {client.kind for menu in menus() for client in menu.clients} == set(ACTORS) - elsewhere
    with World(0) as world:
        cluster = Cluster(world, draw_cluster(0).nodes)
        special = [*faults.strikes(cluster), *aiming.strikes(cluster)]
    kinds = {kind for menu in menus() for kind in draw_trouble(menu, special).kinds}
    assert set(special) | set(HARMLESS) <= kinds


def test_disks_are_lost_only_where_the_menu_allows() -> None:
    for menu in menus():
        with World(0) as world:
            special = [*faults.strikes(Cluster(world, menu.nodes))]
        assert menu.may_lose_a_disk or "lost disk" not in draw_trouble(menu, special).kinds
