"""When everything is available again: somebody decides, every partition is led, every replica is in sync, and every node serves.

Once trouble has ended this must come within a bound, whatever the trouble was. What is still missing is told in sentences.
"""

from collections.abc import Iterator

from penstock.simulator.clusters.members import Cluster

AVAILABLE_WITHIN_SECONDS = 60.0


def is_available(cluster: Cluster) -> bool:
    return next(missing(cluster), None) is None


def missing(cluster: Cluster) -> Iterator[str]:
    for host in cluster.hosts:
        if not cluster.serves(host):
            yield f"{host} does not serve"
    if cluster.controller() is None:
        yield "nobody decides"
    if (image := cluster.image()) is not None:
        live = image.live_brokers()
        yield from (f"{host} is fenced" for host in cluster.brokers if cluster.processes[host].plan.node_id not in live)
    for topic, index, state in cluster.states():
        if state.leader < 0:
            yield f"{topic}-{index} has no leader: replicas {state.replicas}, in sync {state.in_sync}, eligible {state.eligible}"
        elif state.is_reassigning:
            yield f"{topic}-{index} is still being moved: replicas {state.replicas}, adding {state.adding}, removing {state.removing}"
        elif set(state.in_sync) != set(state.replicas):
            yield f"{topic}-{index} has replicas {state.replicas}, in sync are {state.in_sync}"
        else:
            host = cluster.host_of(state.leader)
            partition = cluster.partition(host, topic, index)
            if partition is None or partition.leader is None or partition.leader.epoch != state.leader_epoch:
                yield f"{host} does not know that it leads {topic}-{index} in epoch {state.leader_epoch}"
    yield from not_voting(cluster)
    yield from _behind(cluster)


def not_voting(cluster: Cluster) -> Iterator[str]:
    host = cluster.controller()
    node = None if host is None else cluster.node(host)
    for voter in cluster.voters if node is not None else ():
        living = cluster.node(voter)
        if living is not None and node is not None and not node.quorum.voters.has(living.quorum.me):
            yield f"{voter} does not vote"


def _behind(cluster: Cluster) -> Iterator[str]:
    ends = {host: node.quorum.applied_end for host, node in cluster.living()}
    newest = max(ends.values(), default=0)
    for host in cluster.hosts:
        if ends.get(host, -1) < newest:
            yield f"{host} has applied {ends.get(host)} of {newest}"
