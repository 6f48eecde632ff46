"""ListTransactions, versions 0 to 2 (KIP-664, KIP-994 by duration, KIP-1152 by pattern): those that this node coordinates.

All of them, or none: while one of its coordinators is loading, or is still to be made, the answer is COORDINATOR_LOAD_IN_PROGRESS as at
Kafka. Whoever looks for transactions that nobody knows of must not take a part for the whole.
Filters are joined by "and"; an empty one lets all pass. A state that there is none of is told back, as at Kafka.
"""

from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.long_answers import written
from penstock.broker.patience import Patience
from penstock.errors import ErrorCode, Refusal
from penstock.patterns import pattern_of
from penstock.transactions.records import TransactionSaved
from penstock.transactions.states import STATES_BY_TITLE
from penstock.transactions.views import Wanted
from penstock.vocabulary import Buffer, ProducerId
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node


async def list_transactions(node: "Node", call: Call) -> list[Buffer]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    unknown = [each for each in request.state_filters if each not in STATES_BY_TITLE]
    rows: list[dict[str, Any]] = []
    code = ErrorCode.NONE
    try:
        wanted = _wanted(request)
        rows = await _listed(node, await _all_saved(node), wanted)
    except Refusal as refusal:
        code = refusal.code
    return await written(node, call, {"error_code": code, "unknown_state_filters": unknown, "transaction_states": rows}, len(rows))


def _wanted(request: Any) -> Wanted:
    states = tuple(STATES_BY_TITLE[each] for each in request.state_filters if each in STATES_BY_TITLE)
    pattern = getattr(request, "transactional_id_pattern", None)
    return Wanted(
        states=states if request.state_filters else None,
        producer_ids=frozenset(map(ProducerId, request.producer_id_filters)),  # A client may name very many.
        longer_than_ms=getattr(request, "duration_filter", -1),
        matches=pattern_of(pattern).matches if pattern else None,
    )


async def _all_saved(node: "Node") -> list[TransactionSaved]:
    if not node.transactions.are_all_here():
        raise Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "this node leads partitions of the transactions' log since a moment ago")
    saved: list[TransactionSaved] = []
    for coordinator in node.transactions:
        saved += await coordinator.read(lambda state: state.all_saved())
    return saved


async def _listed(node: "Node", all_saved: list[TransactionSaved], wanted: Wanted) -> list[dict[str, Any]]:
    wall_ms, patience, rows = node.env.wall_ms(), Patience(node.env), []
    for saved in all_saved:
        if patience.is_over():
            await patience.pause_if_over()
        if wanted.includes(saved, wall_ms):
            row = {"transactional_id": saved.transactional_id, "producer_id": saved.producer_id, "transaction_state": saved.state.title}
            rows.append(row)
    return rows
