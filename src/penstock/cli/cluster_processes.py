"""`penstock cluster start`, `stop` and their like: the processes of a cluster on this machine."""

import signal
import time
from collections.abc import Sequence
from pathlib import Path

import click

from penstock.cli.cluster_places import local_option
from penstock.cli.cluster_voters import VOTERS_MAX, give_vote, meaning_of
from penstock.cli.faults import Fault
from penstock.cli.local_cluster import BOTH_ROLES, BROKER, CONTROLLER, LocalCluster, LocalNode, free_ports, is_free
from penstock.cli.talking import pairs, talk
from penstock.client.queues.caller import URL_VARIABLE

NODES_MAX = 50
DEFAULT_NODES, DEFAULT_BASE_PORT = 3, 9092


@click.command()
@click.option("--nodes", type=click.IntRange(1, NODES_MAX), help=f"How many brokers.  [default: {DEFAULT_NODES}]")
@click.option("--witnesses", type=click.IntRange(0, VOTERS_MAX), default=0, help="Nodes besides that only vote and hold no records.")
@click.option("--base-port", type=click.IntRange(1, 65_000), help=f"Node n serves clients here + n - 1.  [default: {DEFAULT_BASE_PORT}]")
@click.option("--racks", metavar="NAME,...", default="", help="Where nodes stand, over and over in this order.")
@click.option("--set", "settings", metavar="NAME=VALUE", multiple=True, help="A setting for every node; may be repeated.")
@click.option("--foreground", is_flag=True, help="Stay, and stop them all with Ctrl-C.")
@local_option
def start(
    *, nodes: int | None, witnesses: int, base_port: int | None, racks: str, settings: tuple[str, ...], foreground: bool, directory: Path
) -> None:
    """Start a cluster on this machine, or start again the one that DIR holds.

    \b
      penstock cluster start --nodes 3 --data-dir ./cluster --base-port 9092
      penstock cluster start --nodes 2 --witnesses 1 --racks east,west --data-dir ./cluster
      penstock cluster start --data-dir ./cluster

    Each node is a `penstock serve` process of its own that outlives this command; its log is DIR/node-N/log. DIR/cluster.json says what
    they are. The last two lines are what clients want to know: those of queues, whose commands and Python client read that variable, and
    Kafka's.
    """
    if LocalCluster.is_in(directory):
        if nodes is not None or witnesses or base_port is not None or racks or settings:
            raise Fault(f"{directory} holds a cluster already", "start it as it is, with --data-dir alone, or choose another directory")
        cluster = LocalCluster.load(directory)
    else:
        ports = _kafka_ports(nodes or DEFAULT_NODES, base_port or DEFAULT_BASE_PORT)
        made = _new_nodes(ports, witnesses, [name.strip() for name in racks.split(",") if name.strip()])
        cluster = LocalCluster.found(directory, made, dict(pairs(settings, "--set")))
    began = bring_up(cluster, [node_id for node_id in cluster.nodes if not cluster.is_running(node_id)])
    for node in cluster.nodes.values():
        state = "started" if node.node_id in began else "was running"
        kafka = f"kafka 127.0.0.1:{node.kafka_port}" if node.is_broker else "only votes"
        click.echo(f"node {node.node_id}  process {node.pid}  {kafka}  http 127.0.0.1:{node.http_port}  {state}")
    _tell_addresses(cluster)
    if foreground:
        _stay(cluster)


@click.command()
@local_option
def stop(directory: Path) -> None:
    """Stop every node of the cluster in DIR. What was acknowledged is there when it is started again."""
    cluster = LocalCluster.load(directory)
    take_down(cluster, list(cluster.nodes))
    click.echo("stopped")


@click.command("restart-node")
@click.argument("number", type=int, metavar="N")
@local_option
def restart_node(number: int, directory: Path) -> None:
    """Stop node N in order and start it again; start it where it was not running."""
    cluster = LocalCluster.load(directory)
    cluster.node(number)
    take_down(cluster, [number])
    bring_up(cluster, [number])
    click.echo(f"node {number}  process {cluster.node(number).pid}")


@click.command("stop-node")
@click.argument("number", type=int, metavar="N")
@local_option
def stop_node(number: int, directory: Path) -> None:
    """Stop node N in order: it hands over what it leads first."""
    cluster = LocalCluster.load(directory)
    cluster.node(number)
    if not take_down(cluster, [number]):
        raise Fault(f"node {number} is not running")
    click.echo(f"node {number} is stopped")


@click.command("kill-node")
@click.argument("number", type=int, metavar="N")
@local_option
def kill_node(number: int, directory: Path) -> None:
    """Kill the process of node N (kill -9), to see what the others do."""
    cluster = LocalCluster.load(directory)
    cluster.node(number)
    if not cluster.signal(number, signal.SIGKILL):
        raise Fault(f"node {number} is not running")
    cluster.wait_until_gone(number)
    click.echo(f"node {number} is killed")


@click.command("add-node")
@click.option("--rack", default="", metavar="NAME", help="Where it stands.")
@click.option("--voter", "is_voter", is_flag=True, help="Let it vote on the cluster's metadata, too.")
@local_option
def add_node(rack: str, is_voter: bool, directory: Path) -> None:
    """Add a broker to the cluster in DIR. It holds nothing until partitions are made on it or moved to it.

    \b
      penstock cluster add-node --data-dir ./cluster
      penstock cluster add-node --voter --data-dir ./cluster
      penstock cluster rebalance --data-dir ./cluster --execute

    With --voter it has both roles, and gets a vote once it follows the metadata. An odd number of voters is worth having: four bear the
    loss of one, as three do.
    """
    cluster = LocalCluster.load(directory)
    number = max(cluster.nodes) + 1
    kafka_port = max(node.kafka_port for node in cluster.nodes.values()) + 1
    if not is_free(kafka_port):
        (kafka_port,) = cluster.new_ports(1)
    peers_port, http_port = cluster.new_ports(2)
    roles, others = BOTH_ROLES if is_voter else BROKER, cluster.bootstrap
    cluster.nodes[number] = LocalNode(number, roles, kafka_port, peers_port, http_port, rack, joins=True)
    cluster.save()
    bring_up(cluster, [number])
    click.echo(f"node {number}  process {cluster.node(number).pid}  kafka 127.0.0.1:{kafka_port}  http 127.0.0.1:{http_port}")
    if is_voter:
        voters = talk(others, lambda client: give_vote(client, number))
        click.echo(f"node {number} votes", err=True)
        click.echo(meaning_of(voters), err=True)
    _tell_addresses(cluster)


def bring_up(cluster: LocalCluster, numbers: Sequence[int]) -> list[int]:
    """Starts these nodes and waits until all are ready; they need each other for it. Where one fails, those started are stopped again."""
    began = {number: cluster.spawn(number) for number in numbers}
    try:
        for number, said_before in began.items():
            cluster.wait_until_ready(number, said_before)
    except (Fault, KeyboardInterrupt):
        take_down(cluster, numbers)
        raise
    return list(began)


def take_down(cluster: LocalCluster, numbers: Sequence[int]) -> list[int]:
    """Stops these nodes, all at once, and waits for them; those that were running."""
    running = [number for number in numbers if cluster.signal(number, signal.SIGTERM)]
    for number in running:
        cluster.wait_until_gone(number)
    return running


def _tell_addresses(cluster: LocalCluster) -> None:
    """The last line has been Kafka's for as long as programs have read it. The other is for a shell: no port of it could be guessed."""
    click.echo(f"export {URL_VARIABLE}={cluster.queue_url}")
    click.echo(f"bootstrap {cluster.bootstrap}")


def _stay(cluster: LocalCluster) -> None:
    try:
        while any(cluster.is_running(number) for number in cluster.nodes):
            time.sleep(0.5)
        raise Fault("every node has ended", f"look at the logs below {cluster.directory}")
    except KeyboardInterrupt:
        take_down(cluster, list(cluster.nodes))
        click.echo("stopped")


def _kafka_ports(nodes: int, base_port: int) -> list[int]:
    ports = list(range(base_port, base_port + nodes))
    for port in ports:
        if not is_free(port):
            raise Fault(f"port {port} is taken", f"stop who listens there, or choose others: --base-port {base_port + 100}")
    return ports


def _new_nodes(kafka_ports: Sequence[int], witnesses: int, racks: Sequence[str]) -> dict[int, LocalNode]:
    total = len(kafka_ports) + witnesses
    own = free_ports(2 * total, set(kafka_ports))
    voters = _voting(len(kafka_ports), witnesses)
    nodes = {}
    for place in range(total):
        roles = CONTROLLER if place >= len(kafka_ports) else BOTH_ROLES if place < voters else BROKER
        kafka_port = kafka_ports[place] if place < len(kafka_ports) else 0
        rack = racks[place % len(racks)] if racks else ""
        nodes[place + 1] = LocalNode(place + 1, roles, kafka_port, own[2 * place], own[2 * place + 1], rack)
    return nodes


def _voting(brokers: int, witnesses: int) -> int:
    """How many of the brokers vote: an odd number of voters in all where that is possible, for an even one bears no more losses."""
    voters = min(brokers, max(1, VOTERS_MAX - witnesses))
    return voters - 1 if (voters + witnesses) % 2 == 0 and voters + witnesses > 2 and voters > 1 else voters
