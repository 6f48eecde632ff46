"""`penstock` itself: the list of commands, each loaded when it is asked for, so that `produce` does not wait for the broker's imports."""

import os
from importlib import import_module

import click

from penstock import __version__
from penstock.cli.faults import exit_code_of
from penstock.cli.patience import connect_timeout_option

NOUNS = {
    "serve": "penstock.cli.serve:serve",
    "cluster": "penstock.cli.cluster:cluster",
    "topics": "penstock.cli.topics:topics",
    "configs": "penstock.cli.configs:configs",
    "produce": "penstock.cli.produce:produce",
    "consume": "penstock.cli.consume:consume",
    "groups": "penstock.cli.groups:groups",
    "transactions": "penstock.cli.transactions:transactions",
    "queues": "penstock.cli.queues:queues",
    "pipeline": "penstock.cli.pipeline:pipeline",
    "log": "penstock.cli.log:log",
    "simulate": "penstock.cli.simulate:simulate",
    "completion": "penstock.cli.completion:completion",
}


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(NOUNS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in NOUNS:
            return None
        module, attribute = NOUNS[name].split(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="penstock")
@connect_timeout_option
def penstock() -> None:
    """A durable, partitioned message log that speaks Kafka's wire protocol.

    \b
    Start a node, write to it, read from it:
      penstock serve --data-dir ./data
      penstock topics create orders --partitions 3
      echo 'k1:hello' | penstock produce orders --key-separator :
      penstock consume orders
    """


def run(arguments: list[str]) -> int:
    """The exit code of one command."""
    if "_PENSTOCK_COMPLETE" in os.environ:  # A shell asks what could come next.
        penstock.main(arguments, prog_name="penstock")
    try:
        # Not click's own `main`: it has its own ideas of what an interrupt or a closed pipe should print and return.
        with penstock.make_context("penstock", arguments) as context:
            answer = penstock.invoke(context)
    except (Exception, KeyboardInterrupt) as failure:
        code = exit_code_of(failure)
        if code is None:
            raise
        return code
    return answer if isinstance(answer, int) else 0
