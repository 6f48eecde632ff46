"""Which queues there are."""

from typing import Unpack

from penstock.client.queues.actions import names_of
from penstock.client.queues.caller import caller_for
from penstock.client.queues.loop_thread import loop_thread
from penstock.client.queues.options import ReachOptions


async def async_list_queues(url: str | None = None, **options: Unpack[ReachOptions]) -> list[str]:
    caller = caller_for(url, **options)
    try:
        return await names_of(caller)
    finally:
        caller.close()


def list_queues(url: str | None = None, **options: Unpack[ReachOptions]) -> list[str]:
    """The names of all, in order. Takes what `Queue` takes to reach a node."""
    return loop_thread().wait_for(async_list_queues(url, **options))
