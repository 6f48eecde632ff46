"""`penstock --connect-timeout SECONDS …`: how long any command waits for the first answer of a node.

It belongs to `penstock` itself, so that no command has to declare it.
"""

from collections.abc import Callable
from typing import Any

import click

DEFAULT_S = 5.0
KEY = "penstock.connect_timeout_s"


def _keep(context: click.Context, parameter: click.Parameter, seconds: float) -> None:
    context.meta[KEY] = seconds


connect_timeout_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--connect-timeout",
    metavar="SECONDS",
    type=click.FloatRange(0, min_open=True),
    envvar="PENSTOCK_CONNECT_TIMEOUT",
    default=DEFAULT_S,
    show_default=True,
    show_envvar=True,
    expose_value=False,
    callback=_keep,
    help="How long to wait for a node's first answer.",
)


def connect_timeout_s() -> float:
    seconds: float = click.get_current_context().meta.get(KEY, DEFAULT_S)
    return seconds
