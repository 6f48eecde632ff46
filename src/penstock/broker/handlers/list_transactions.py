"""ListTransactions, versions 0 to 2 (KIP-664, KIP-994 by duration, KIP-1152 by pattern): those that this node coordinates.

All of them, or none: while one of its coordinators is loading, or is still to be made, the answer is COORDINATOR_LOAD_IN_PROGRESS as at
Kafka. Whoever looks for transactions that nobody knows of must not take a part for the whole.
Filters are joined by "and"; an empty one lets all pass. A state that there is none of is told back, as at Kafka.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.patience import Patience
from penstock.errors import ErrorCode, Refusal
from penstock.groups.consumer.subscriptions import check_regex
from penstock.transactions.states import STATES_BY_TITLE
from penstock.transactions.views import TransactionListed, Wanted
from penstock.vocabulary import ProducerId
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node


async def list_transactions(node: "Node", call: Call) -> dict[str, Any]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    unknown = [each for each in request.state_filters if each not in STATES_BY_TITLE]
    rows: list[TransactionListed] = []
    code = ErrorCode.NONE
    try:
        rows = await _listed(node, _wanted(request))
    except Refusal as refusal:
        code = refusal.code
    return {
        "error_code": code,
        "unknown_state_filters": unknown,
        "transaction_states": [
            {"transactional_id": row.transactional_id, "producer_id": row.producer_id, "transaction_state": row.state.title} for row in rows
        ],
    }


def _wanted(request: Any) -> Wanted:
    states = tuple(STATES_BY_TITLE[each] for each in request.state_filters if each in STATES_BY_TITLE)
    pattern = getattr(request, "transactional_id_pattern", None)
    return Wanted(
        states=states if request.state_filters else None,
        producer_ids=tuple(map(ProducerId, request.producer_id_filters)),
        longer_than_ms=getattr(request, "duration_filter", -1),
        matches=_matcher(pattern) if pattern else None,
    )


def _matcher(pattern: str) -> Callable[[str], bool]:
    check_regex(pattern)
    compiled = re.compile(pattern)
    return lambda transactional_id: compiled.fullmatch(transactional_id) is not None


async def _listed(node: "Node", wanted: Wanted) -> list[TransactionListed]:
    wall_ms, patience = node.env.wall_ms(), Patience(node.env)
    rows: list[TransactionListed] = []
    if not node.transactions.are_all_here():
        raise Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "this node leads partitions of the transactions' log since a moment ago")
    for coordinator in node.transactions:
        rows += await coordinator.read(lambda state: state.transactions(wanted, wall_ms))
        await patience.pause_if_over()
    return rows
