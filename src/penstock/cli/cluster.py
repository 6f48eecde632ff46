"""`penstock cluster`: start one on this machine, look at any, and change where its partitions lie and who votes."""

import click

from penstock.cli.cluster_drain import drain, forget_node
from penstock.cli.cluster_elect import elect
from penstock.cli.cluster_lead import lead
from penstock.cli.cluster_list_moves import moves
from penstock.cli.cluster_processes import add_node, kill_node, restart_node, start, stop, stop_node
from penstock.cli.cluster_reassign import reassign
from penstock.cli.cluster_rebalance import rebalance
from penstock.cli.cluster_replace import replace_node
from penstock.cli.cluster_scrub import scrub_copies
from penstock.cli.cluster_status import status
from penstock.cli.cluster_voters import add_voter, remove_voter


@click.group()
def cluster() -> None:
    """Run several nodes on this machine, and look after a cluster wherever it runs.

    \b
      penstock cluster start --nodes 3 --data-dir ./cluster
      penstock cluster status --data-dir ./cluster
      penstock cluster restart-node 2 --data-dir ./cluster
      penstock cluster replace-node 2 --data-dir ./cluster
      penstock cluster rebalance --bootstrap host:9092
      penstock cluster scrub --bootstrap host:9092
      penstock cluster stop --data-dir ./cluster

    Commands that only talk to nodes take --bootstrap for a cluster elsewhere, or --data-dir for one that was started here.
    """


for command in (
    start, stop, status, restart_node, stop_node, kill_node, add_node, replace_node, drain, forget_node, reassign, rebalance, moves, lead,
    elect, add_voter, remove_voter, scrub_copies,
):  # fmt: skip
    cluster.add_command(command)
