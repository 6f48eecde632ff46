"""What the operator of a simulated cluster does with machines: a node is added, stopped for good, and taken out of the run."""

from penstock.simulator.clusters.members import Cluster
from penstock.simulator.faults import Field


class Machines:
    def __init__(self, cluster: Cluster, field: Field) -> None:
        self._cluster = cluster
        self._field = field

    def add(self, node_id: int) -> None:
        """Starts a node that is not part of the run; from here on it meets the same trouble as the others."""
        cluster, host = self._cluster, self._cluster.host_of(node_id)
        cluster.hosts.append(host)
        if cluster.plans[node_id].is_broker:
            cluster.brokers.append(host)
        self._field.nodes.append(host)
        cluster.world.host(host).disk.faults = self._field.usual_disk
        self.start(node_id)

    def start(self, node_id: int) -> None:
        host = self._cluster.host_of(node_id)
        self._cluster.held_down.pop(host, None)
        if not self._cluster.world.is_running(host):
            self._cluster.start(host)

    def stop(self, node_id: int) -> None:
        """Asks the node to end; it is not started again."""
        host = self._cluster.host_of(node_id)
        self._cluster.held_down[host] = None
        self._cluster.world.terminate(host)

    def is_down(self, node_id: int) -> bool:
        return self._cluster.world.has_ended(self._cluster.host_of(node_id))

    def remove(self, node_id: int) -> None:
        """The node is no part of the run any more: nothing is expected of it."""
        host = self._cluster.host_of(node_id)
        for hosts in (self._cluster.hosts, self._cluster.brokers, self._field.nodes):
            if host in hosts:
                hosts.remove(host)

    def is_to_vote(self, node_id: int, *, votes: bool) -> None:
        """Whether the node is to be one of the voters at the end."""
        host, voters = self._cluster.host_of(node_id), self._cluster.voters
        if votes and host not in voters:
            voters.append(host)
        elif not votes and host in voters:
            voters.remove(host)

    @property
    def brokers(self) -> list[int]:
        return [self._cluster.processes[host].plan.node_id for host in self._cluster.brokers]

    @property
    def voters(self) -> list[int]:
        return [self._cluster.processes[host].plan.node_id for host in self._cluster.voters]
