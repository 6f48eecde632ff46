"""Names of topics, groups and transactions, offered where a shell completes a word.

The node is asked once and quickly; one that is not there offers nothing, for a person who presses Tab wants no complaint.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import click

from penstock.peers.client import Client
from penstock.peers.failures import PeerFailure
from penstock.peers.transaction_admin import Wanted, list_transactions
from penstock.server.calling import CallerEnv

SECONDS = 1.0
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


def topic_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    async def ask(client: Client) -> Iterable[str]:
        return [view.name for view in (await client.metadata(deadline_s=SECONDS)).topics if not view.is_internal]

    return _matching(context, incomplete, ask)


def group_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    async def ask(client: Client) -> Iterable[str]:
        return [listed.group for listed in await client.list_groups(deadline_s=SECONDS)]

    return _matching(context, incomplete, ask)


def transactional_ids(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    async def ask(client: Client) -> Iterable[str]:
        listed = await list_transactions(client.router, Wanted(), client.router.deadline(SECONDS))
        return [each.transactional_id for each in listed]

    return _matching(context, incomplete, ask)


def _matching(context: click.Context, incomplete: str, ask: Callable[[Client], Awaitable[Iterable[str]]]) -> list[str]:
    async def whole() -> Iterable[str]:
        async with Client(CallerEnv(), context.params.get("bootstrap") or DEFAULT_BOOTSTRAP, client_id="penstock-completion") as client:
            await client.connect(deadline_s=SECONDS)
            return await ask(client)

    try:
        return sorted(name for name in asyncio.run(whole()) if name.startswith(incomplete))
    except (PeerFailure, ValueError):
        return []
