"""`penstock serve`: one node, in this process."""

import os
from pathlib import Path

import click

# Flags that are shorter than their settings.
SETTING_OF = {
    "voters": "controller.quorum.voters", "roles": "process.roles", "rack": "broker.rack", "accept_loss": "accept.losses",
}  # fmt: skip


@click.command(context_settings={"max_content_width": 120})
@click.option("--data-dir", metavar="DIR", help="Directory that holds everything; made if missing. [default: penstock-data]")
@click.option("--kafka", metavar="HOST:PORT", help="Where Kafka clients connect; port 0 takes a free one. [default: 127.0.0.1:9092]")
@click.option("--http", metavar="HOST:PORT", help="Where queues, /health and /metrics are; 'off' for nowhere. [default: 127.0.0.1:8080]")
@click.option("--advertise", metavar="HOST:PORT", help="What clients are told to connect to. [default: what --kafka is bound to]")
@click.option("--node-id", metavar="NUMBER", help="This node's number; it never changes for a data directory. [default: 1]")
@click.option("--cluster-id", metavar="NAME", help="The cluster that it belongs to; the same for all its nodes.")
@click.option("--voters", metavar="N@HOST:PORT,...", help="The nodes that vote on the metadata, and where each listens for the others.")
@click.option("--roles", metavar="ROLES", help="broker,controller or one of them. [default: broker,controller]")
@click.option("--rack", metavar="NAME", help="Where it stands; replicas are spread over racks.")
@click.option("--peers", metavar="HOST:PORT", help="Where it listens for the other nodes. [default: its own entry in --voters]")
@click.option("--advertise-peers", metavar="HOST:PORT", help="What the other nodes are told to connect to. [default: as --peers]")
@click.option("--cluster-secret-file", metavar="FILE", help="The secret that the nodes share; or PENSTOCK_CLUSTER_SECRET.")
@click.option("--sqs-keys-file", metavar="FILE", help="The access keys that the queue door takes. [default: everybody may use it]")
@click.option("--join", is_flag=True, help="Its disk is new in a cluster that is there: it votes once it was made a voter.")
@click.option("--accept-loss", metavar="NAMES", help="Go on with what is left of a damaged only copy: orders-0,... or metadata.")
@click.option("--config", type=click.Path(path_type=Path), help="TOML file with settings; also PENSTOCK_CONFIG.")
@click.option("--set", "settings", metavar="NAME=VALUE", multiple=True, help="Any setting by its name; may be repeated.")
@click.option("--log-level", metavar="LEVEL", help="debug, info, warning or error. [default: info]")
@click.option("--loop", metavar="LOOP", help="auto, uvloop or asyncio. [default: auto]")
def serve(config: Path | None, settings: tuple[str, ...], join: bool, **flags: str | None) -> int:
    """Run a node until SIGTERM or Ctrl-C.

    Settings come from flags, then PENSTOCK_... variables, then the TOML file; the first that speaks wins. The setting
    num.partitions is --set num.partitions=3, or PENSTOCK_NUM_PARTITIONS=3, or a line in the file. Names that begin with
    topic. are what new topics inherit. docs/reference/settings.md lists them all.

    \b
      penstock serve --data-dir ./data
      penstock serve --data-dir ./data --kafka 0.0.0.0:9092 --advertise broker.example:9092
      penstock serve --data-dir ./data --set topic.retention.ms=3600000 --set num.partitions=6

    One of three nodes that bear the loss of any one; the others differ in --node-id and --data-dir:

    \b
      penstock serve --data-dir ./data --node-id 2 --cluster-id orders --cluster-secret-file cluster.secret \\
        --voters 1@10.0.0.1:9093,2@10.0.0.2:9093,3@10.0.0.3:9093 --kafka 10.0.0.2:9092 --rack r1

    When clients may come, one line on standard output says where:

    \b
      penstock ready kafka=127.0.0.1:9092 http=127.0.0.1:8080 data=/home/me/data node=1

    A node of a cluster adds peers=HOST:PORT, and is ready once the cluster has a controller that knows it.

    Exit codes: 0 stopped as asked, 1 could not start, 2 wrong usage or settings, 3 the node stopped itself.
    """
    from penstock.server.configuration import configure
    from penstock.server.process import run

    given = {SETTING_OF.get(name, name.replace("_", ".")): text for name, text in flags.items() if text is not None}
    given |= {"cluster.join": "true"} if join else {}
    return run(configure(given | _by_name(settings), os.environ, config))


def _by_name(settings: tuple[str, ...]) -> dict[str, str]:
    pairs = [setting.partition("=") for setting in settings]
    for name, equals, _ in pairs:
        if not equals:
            raise click.UsageError(f"--set {name} has no value; write --set {name}=VALUE")
    return {name.strip(): text for name, _, text in pairs}
