"""Which cluster a command is about: one that was started here, by its directory, or any, by an address."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from penstock.cli.local_cluster import LocalCluster

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


def local_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """For commands that start and stop processes."""
    return click.option(
        "--data-dir", "directory", type=click.Path(file_okay=False, path_type=Path), default=Path("penstock-cluster"), show_default=True,
        metavar="DIR", help="The directory of the cluster.",
    )(command)  # fmt: skip


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """For commands that only talk to nodes; `bootstrap_of` makes an address of them."""
    command = click.option(
        "--data-dir", "directory", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="A cluster that was started here."
    )(command)
    return click.option(
        "--bootstrap", "--bootstrap-server", "bootstrap", metavar="HOST:PORT,...", envvar="PENSTOCK_BOOTSTRAP", show_envvar=True,
        help=f"A node to ask first.  [default: {DEFAULT_BOOTSTRAP}]",
    )(command)  # fmt: skip


def bootstrap_of(directory: Path | None, bootstrap: str | None) -> str:
    """The directory is the more explicit word: a variable may have set the address for other commands."""
    if directory is not None:
        return LocalCluster.load(directory).bootstrap
    return bootstrap or DEFAULT_BOOTSTRAP
