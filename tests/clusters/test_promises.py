"""Nodes that do not wait for the flush, or waited for it too late, and then lose their power."""

from dataclasses import replace

import clusters.scene as scenes
import pytest
from clusters.scene import TOPIC, Scene

from penstock.cluster.configuring import Change, ConfigureTopic
from penstock.simulator.clusters.menu import NodePlan
from penstock.wire.configs import Operation

pytestmark = pytest.mark.invariant("controller.weak-acks-remembered")


def test_a_node_that_was_started_to_flush_late_does_not_lead_with_what_it_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands alone with that, so nobody else knows: it has to say so itself."""
    plans_of = scenes.plans_of

    def with_one_weak_node(*args: object) -> tuple[NodePlan, ...]:
        return tuple(
            replace(plan, settings=replace(plan.settings, topic_defaults={"flush": "os"} if plan.node_id == 2 else {}))
            for plan in plans_of(*args)  # type: ignore[arg-type]
        )

    monkeypatch.setattr(scenes, "plans_of", with_one_weak_node)
    with Scene(("broker", "broker", "broker", "controller")) as cluster:
        cluster.create(min_insync_replicas=3)
        cluster.lead(1)
        for number in range(5):
            cluster.produce(b"%d" % number)
        cluster.power_cut(1, 2, 3)
        cluster.until(lambda: not cluster.in_sync())
        cluster.start(2)
        cluster.run_for(10)
        assert cluster.leader() is None
        cluster.start(1, 3)
        cluster.check()


def test_a_replica_that_lost_its_tail_is_not_believed_because_the_promise_became_stronger_meanwhile() -> None:
    with Scene(("broker", "broker", "controller")) as cluster:
        cluster.create(replicas=2, min_insync_replicas=2, flush="os")
        cluster.lead(1)
        for number in range(3):
            cluster.produce(b"%d" % number)
        cluster.power_cut(2)
        cluster.until(lambda: cluster.in_sync() == {1})
        controller = cluster.node(cluster.controller())
        command = ConfigureTopic(TOPIC, (Change("flush", Operation.SET, "ack"),))
        cluster.world.call(cluster.host(cluster.controller()), lambda env: controller.submit(command), 20)
        cluster.kill(1)
        cluster.until(lambda: not cluster.in_sync())
        cluster.start(2)
        cluster.run_for(10)
        assert cluster.leader() is None
        cluster.start(1)
        cluster.check()
