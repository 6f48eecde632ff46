"""What an operator does after a disk is lost: the old disk's vote is taken away, the node joins with an empty one, and votes again.

As the handbook has it, step by step, each tried again until it is done. Where the node never voted there is nothing to do.
"""

from penstock.broker.node import Node
from penstock.broker.quorum_calls import change_voters
from penstock.consensus.nouns import Replica
from penstock.errors import Refusal
from penstock.simulator.clusters.members import Cluster
from penstock.simulator.process import Process
from penstock.vocabulary import NodeId

_TRIED_AGAIN_SECONDS = 0.3


class Replacement:
    """Of one node's disk. Begins when it is made."""

    def __init__(self, cluster: Cluster, host: str) -> None:
        self._cluster = cluster
        self._host = host
        self._node_id = NodeId(cluster.processes[host].plan.node_id)
        self._asking_in: Process | None = None  # If that dies, nobody hears of the answer.
        if host in cluster.voters:
            self._go_on()

    def _go_on(self) -> None:
        if self._asking_in is None or self._asking_in.is_dead:
            host = self._cluster.controller()
            node = None if host is None else self._cluster.node(host)
            wish = None if node is None else self._wish(node)
            if wish is not None and node is not None and host is not None:
                self._asking_in = self._cluster.run_at(host, self._ask(node, *wish))
        self._cluster.world.at(_TRIED_AGAIN_SECONDS, self._go_on)

    def _wish(self, controller: Node) -> tuple[Replica, bool] | None:
        """Whose vote to take or to give; None where there is nothing to do now."""
        votes_with = controller.quorum.voters.directory_of(self._node_id)
        joined = self._cluster.node(self._host)
        directory = None if joined is None else joined.quorum.me.directory
        if votes_with is not None:
            return None if directory is None or votes_with == directory else (Replica(self._node_id, votes_with), False)
        return None if directory is None else (Replica(self._node_id, directory), True)

    async def _ask(self, controller: Node, replica: Replica, is_added: bool) -> None:
        try:
            await change_voters(controller, replica, is_added=is_added)
        except Refusal:
            pass  # It is tried again.
        finally:
            self._asking_in = None
