"""DescribeTransactions, version 0 (KIP-664): where the transactions of some ids stand. Each is told by its own coordinator, and once."""

from itertools import groupby
from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.long_answers import written
from penstock.broker.patience import Patience
from penstock.errors import ErrorCode, Refusal
from penstock.transactions.records import TransactionPartition
from penstock.transactions.views import TransactionView
from penstock.vocabulary import Buffer
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node


async def describe_transactions(node: "Node", call: Call) -> list[Buffer]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    patience, states, rows = Patience(node.env), [], 0
    for transactional_id in dict.fromkeys(map(str, request.transactional_ids)):
        await patience.pause_if_over()
        states.append(await _state(node, transactional_id))
        rows += 1 + sum(len(topic["partitions"]) for topic in states[-1]["topics"])
    return await written(node, call, {"transaction_states": states}, rows)


async def _state(node: "Node", transactional_id: str) -> dict[str, Any]:
    try:
        if not transactional_id:
            raise Refusal(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")
        view = await node.transactions.find(transactional_id).read(lambda state: state.describe(transactional_id))
    except Refusal as refusal:
        return _nothing(transactional_id, refusal.code)
    return _nothing(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND) if view is None else _described(view)


def _described(view: TransactionView) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.NONE,
        "transactional_id": view.transactional_id,
        "transaction_state": view.state.title,
        "transaction_timeout_ms": view.timeout_ms,
        "transaction_start_time": schemas.moment(view.started_ms),
        "producer_id": view.producer_id,
        "producer_epoch": view.producer_epoch,
        "topics": [
            {"topic": topic, "partitions": [each.partition for each in group]}
            for topic, group in groupby(sorted(view.partitions, key=_name), key=_name)
        ],
    }


def _name(place: TransactionPartition) -> str:
    return place.topic


def _nothing(transactional_id: str, code: ErrorCode) -> dict[str, Any]:
    return {
        "error_code": code,
        "transactional_id": transactional_id,
        "transaction_state": "",
        "transaction_timeout_ms": 0,
        "transaction_start_time": schemas.moment(-1),
        "producer_id": -1,
        "producer_epoch": -1,
        "topics": [],
    }
