"""What trouble may take from a cluster: worlds that took more have found nothing wrong but themselves (clusters/test_seeds.py)."""

import pytest
from clusters.scene import BOTH, TOPIC, Scene

from penstock.simulator.clusters import budget
from penstock.simulator.clusters.recovering import not_voting


def known_first(cluster: Scene, **config: object) -> bool:
    """Whether a disk of such a topic's leader goes only when others are known to go on without it."""
    cluster.create(**config)
    return budget.must_be_known_first(cluster.cluster, cluster.host(cluster.leads()))


@pytest.mark.parametrize(
    ("config", "is_first"),
    [
        pytest.param({"min_insync_replicas": 2}, False, id="two others have everything"),
        pytest.param({"min_insync_replicas": 1}, True, id="one replica may acknowledge alone"),
        pytest.param({"min_insync_replicas": 2, "flush": "interval"}, True, id="what is acknowledged may not be flushed"),
    ],
)
def test_a_disk_is_lost_before_anybody_knows_only_where_others_have_everything(config: dict[str, object], is_first: bool) -> None:
    with Scene() as cluster:
        assert known_first(cluster, **config) is is_first


def test_no_second_disk_is_lost_before_the_first_is_made_good() -> None:
    with Scene() as cluster:
        cluster.create(min_insync_replicas=2)
        assert budget.is_made_good(cluster.cluster)
        cluster.lose_disk(3)
        assert not budget.is_made_good(cluster.cluster), "its machine is down"
        cluster.start(3)
        cluster.run_for(0.001)
        assert not budget.is_made_good(cluster.cluster), "it does not serve yet"
        cluster.until_available()
        cluster.until(lambda: cluster.in_sync(TOPIC) == {1, 2, 3} and next(not_voting(cluster.cluster), None) is None)
        assert budget.is_made_good(cluster.cluster)


def test_an_operator_asks_another_controller_when_the_one_that_was_asked_has_died() -> None:
    with Scene((BOTH, BOTH, BOTH)) as cluster:
        asked = cluster.controller()
        lost, other = (node for node in (1, 2, 3) if node != asked)
        cluster.lose_disk(lost)
        cluster.start(lost)
        cluster.until(lambda: cluster.cluster.serves(cluster.host(lost)))
        cluster.cut(asked, other)  # What it is asked now it cannot decide.
        cluster.run_for(1.0)
        cluster.kill(asked)
        cluster.heal()
        cluster.start(asked)
        cluster.until(lambda: cluster.cluster.controller() is not None and next(not_voting(cluster.cluster), None) is None)
