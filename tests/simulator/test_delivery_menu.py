"""What a seed chooses for transactions and for groups under the new protocol comes to its menu, and changes nothing else of it."""

from collections import Counter
from random import Random

from penstock.simulator.clusters.delivery_menu import with_deliveries as with_cluster_deliveries
from penstock.simulator.clusters.menu import draw_cluster
from penstock.simulator.delivery_menu import draw_members, draw_transactions, draw_working_members, with_deliveries
from penstock.simulator.menu import draw_menu

SEEDS = range(300)


def test_what_a_seed_had_before_it_has_still() -> None:
    for seed in SEEDS:
        before, after = draw_menu(seed), with_deliveries(draw_menu(seed))
        assert after.topics[: len(before.topics)] == before.topics and after.clients[: len(before.clients)] == before.clients
        if after.topics == before.topics:
            assert after == before
        assert len({topic.name for topic in after.topics}) == len(after.topics)
        assert len({client.name for client in after.clients}) == len(after.clients)


def test_every_kind_of_worker_has_its_share_of_the_seeds() -> None:
    alone, clustered = (
        Counter(kind for menu in menus for kind in {client.kind for client in menu.clients})
        for menus in ([with_deliveries(draw_menu(seed)) for seed in SEEDS], [with_cluster_deliveries(draw_cluster(seed)) for seed in SEEDS])
    )
    for kind in ("transact", "transact as member", "belong"):
        assert alone[kind] >= 10 and clustered[kind] >= 10, kind


def test_what_is_damaged_at_rest_is_not_what_transactions_are_judged_by() -> None:
    assert not [seed for seed in SEEDS if draw_menu(seed).rots and with_deliveries(draw_menu(seed)) != draw_menu(seed)]


def test_an_input_partition_belongs_to_one_transactional_id() -> None:
    for seed in SEEDS:
        source, sink = draw_transactions(Random(seed)).topics
        workers = [client for client in draw_transactions(Random(seed)).clients if client.kind == "transact"]
        given = {client.options["id"]: client.options["partitions"] for client in workers}
        assert sorted(index for indexes in given.values() for index in indexes) == list(range(source.partitions))
        assert sink.is_transactional and not (sink.forgets or sink.is_weak or sink.is_compacted)


def test_members_are_drawn_with_times_that_their_coordinator_keeps() -> None:
    for draw in (draw_members, draw_working_members):
        for seed in SEEDS:
            settings = draw(Random(seed)).settings
            assert settings["group_consumer_heartbeat_interval_ms"] * 2 < settings["group_consumer_session_timeout_ms"]
