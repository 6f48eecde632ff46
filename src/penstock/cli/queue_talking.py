"""How the commands of queues reach a node: over its HTTP port, which is another one than Kafka's, with the client that programs use.

A command asks each node that it was given once: when none of them can be reached, that is told at once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click

from penstock.cli.faults import Fault
from penstock.client.complaints import ClientError
from penstock.client.queues import AsyncQueue, Unreachable, async_list_queues
from penstock.client.queues.caller import URL_DEFAULT, URL_VARIABLE
from penstock.client.queues.http import addresses

T = TypeVar("T")

COMPLETION_SECONDS = 1.0


def _checked(context: click.Context, parameter: click.Parameter, url: str) -> str:
    """Before anything is asked: what is no address is a person's slip, and no node's answer."""
    try:
        addresses(url)
    except ValueError as wrong:
        raise click.UsageError(f"--url ({URL_VARIABLE}): {wrong}", context) from None
    return url


url_option = click.option(
    "--url",
    metavar="http://HOST:PORT,...",
    envvar=URL_VARIABLE,
    default=URL_DEFAULT,
    show_default=True,
    show_envvar=True,
    callback=_checked,
    help="The HTTP port of a node.",
)


def talk_to_queue(url: str, name: str, conversation: Callable[[AsyncQueue], Awaitable[T]]) -> T:
    async def whole() -> T:
        async with AsyncQueue(name, url=url, patience=0, worker="penstock queues") as queue:
            return await conversation(queue)

    return talking(whole)


def talking(whole: Callable[[], Awaitable[T]]) -> T:
    """Runs it, and tells what went wrong as commands do."""

    async def inner() -> T:
        return await whole()

    try:
        return asyncio.run(inner())
    except Unreachable as failure:
        raise Fault(failure.problem, f"start a node with penstock serve, or name one with --url or {URL_VARIABLE}") from None
    except ClientError as failure:
        raise Fault(failure.problem, failure.advice) from None


def queue_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """For a shell that completes a word. A node that is not there offers nothing."""

    async def ask() -> list[str]:
        async with asyncio.timeout(COMPLETION_SECONDS):
            return await async_list_queues(context.params.get("url"), patience=0)

    try:
        return sorted(name for name in asyncio.run(ask()) if name.startswith(incomplete))
    except (ClientError, ValueError, TimeoutError):
        return []
