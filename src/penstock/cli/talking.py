"""How a command reaches a node: the shared option, and one conversation over the nodes' own client.

A command asks each address once, and says at once which of them cannot be reached, instead of after half a minute of patient retries. For
one that takes the connection and says nothing it waits as long as `--connect-timeout` says (patience.py).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from penstock.cli.patience import connect_timeout_s
from penstock.peers.client import Client
from penstock.server.calling import CallerEnv

T = TypeVar("T")

bootstrap_option = click.option(
    "--bootstrap",
    "--bootstrap-server",
    "bootstrap",
    metavar="HOST:PORT,...",
    envvar="PENSTOCK_BOOTSTRAP",
    default="127.0.0.1:9092",
    show_default=True,
    show_envvar=True,
    help="A node to ask first.",
)


def talk(bootstrap: str, conversation: Callable[[Client], Awaitable[T]]) -> T:
    async def whole() -> T:
        async with _client(bootstrap) as client:
            await client.connect(deadline_s=connect_timeout_s())
            return await conversation(client)

    return asyncio.run(whole())


def _client(bootstrap: str) -> Client:
    try:
        return Client(CallerEnv(), bootstrap, client_id="penstock-cli")
    except ValueError as wrong:
        raise click.UsageError(f"--bootstrap {bootstrap}: {wrong}") from None


def pairs(texts: tuple[str, ...], option: str) -> list[tuple[str, str]]:
    """NAME=VALUE, as several options take them."""
    split: list[tuple[str, str]] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{option} {text!r} must be NAME=VALUE")
        split.append((name, value))
    return split


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")(command)
