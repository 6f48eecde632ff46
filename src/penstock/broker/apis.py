"""The API table: what this node serves, in which versions, by which handler. ApiVersions announces what stands here.

Handlers come in three manners. `DIRECT` ones (Produce, Fetch, JoinGroup) take their place in the queue of replies themselves and may park.
`AT_ONCE` ones answer before they return. `IN_TURN` ones await; the connection's next request waits for them, as it does at Kafka,
so that a client that creates a topic and then asks about it on one connection finds it.
A request that we don't serve closes its connection, except ApiVersions, whose answer says what we do serve.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.broker.calls import Call
from penstock.broker.handlers.add_offsets_to_txn import add_offsets_to_txn
from penstock.broker.handlers.add_partitions_to_txn import add_partitions_to_txn
from penstock.broker.handlers.add_raft_voter import add_raft_voter
from penstock.broker.handlers.alter_configs import alter_configs
from penstock.broker.handlers.alter_partition_reassignments import alter_partition_reassignments
from penstock.broker.handlers.alter_share_group_offsets import alter_share_group_offsets
from penstock.broker.handlers.api_versions import api_versions
from penstock.broker.handlers.consumer_group_describe import consumer_group_describe
from penstock.broker.handlers.consumer_group_heartbeat import consumer_group_heartbeat
from penstock.broker.handlers.create_partitions import create_partitions
from penstock.broker.handlers.create_topics import create_topics
from penstock.broker.handlers.delete_groups import delete_groups
from penstock.broker.handlers.delete_records import delete_records
from penstock.broker.handlers.delete_share_group_offsets import delete_share_group_offsets
from penstock.broker.handlers.delete_topics import delete_topics
from penstock.broker.handlers.describe_cluster import describe_cluster
from penstock.broker.handlers.describe_configs import describe_configs
from penstock.broker.handlers.describe_groups import describe_groups
from penstock.broker.handlers.describe_log_dirs import describe_log_dirs
from penstock.broker.handlers.describe_producers import describe_producers
from penstock.broker.handlers.describe_quorum import describe_quorum
from penstock.broker.handlers.describe_share_group_offsets import describe_share_group_offsets
from penstock.broker.handlers.describe_topic_partitions import describe_topic_partitions
from penstock.broker.handlers.describe_transactions import describe_transactions
from penstock.broker.handlers.elect_leaders import elect_leaders
from penstock.broker.handlers.end_txn import end_txn
from penstock.broker.handlers.fetch import fetch
from penstock.broker.handlers.find_coordinator import find_coordinator
from penstock.broker.handlers.heartbeat import heartbeat
from penstock.broker.handlers.incremental_alter_configs import incremental_alter_configs
from penstock.broker.handlers.init_producer_id import init_producer_id
from penstock.broker.handlers.join_group import join_group
from penstock.broker.handlers.leave_group import leave_group
from penstock.broker.handlers.list_config_resources import list_config_resources
from penstock.broker.handlers.list_groups import list_groups
from penstock.broker.handlers.list_offsets import list_offsets
from penstock.broker.handlers.list_partition_reassignments import list_partition_reassignments
from penstock.broker.handlers.list_transactions import list_transactions
from penstock.broker.handlers.metadata import metadata
from penstock.broker.handlers.offset_commit import offset_commit
from penstock.broker.handlers.offset_delete import offset_delete
from penstock.broker.handlers.offset_fetch import offset_fetch
from penstock.broker.handlers.offset_for_leader_epoch import offset_for_leader_epoch
from penstock.broker.handlers.produce import produce
from penstock.broker.handlers.remove_raft_voter import remove_raft_voter
from penstock.broker.handlers.share_acknowledge import share_acknowledge
from penstock.broker.handlers.share_fetch import share_fetch
from penstock.broker.handlers.share_group_describe import share_group_describe
from penstock.broker.handlers.share_group_heartbeat import share_group_heartbeat
from penstock.broker.handlers.single_produce import produce_single
from penstock.broker.handlers.sync_group import sync_group
from penstock.broker.handlers.txn_offset_commit import txn_offset_commit
from penstock.broker.handlers.unregister_broker import unregister_broker
from penstock.broker.handlers.write_txn_markers import write_txn_markers
from penstock.errors import MalformedInput
from penstock.vocabulary import Buffer
from penstock.wire import schemas
from penstock.wire.api_keys import ApiKey
from penstock.wire.api_versions import write_unsupported_api_versions_response
from penstock.wire.frames import read_request_header

if TYPE_CHECKING:
    from penstock.broker.connection import Connection, Reply
    from penstock.broker.node import Node


class Manner(Enum):
    DIRECT = auto()
    AT_ONCE = auto()
    IN_TURN = auto()


class Api(NamedTuple):
    key: ApiKey
    version_min: int
    version_max: int
    manner: Manner
    handler: Callable[["Node", Call], Any]
    advertised_min: int = -1  # Where clients must be told of lower versions than are served.


API_TABLE = (
    Api(ApiKey.PRODUCE, 3, 13, Manner.DIRECT, produce, advertised_min=0),
    Api(ApiKey.FETCH, 4, 18, Manner.DIRECT, fetch),
    Api(ApiKey.LIST_OFFSETS, 1, 11, Manner.IN_TURN, list_offsets),
    Api(ApiKey.METADATA, 0, 13, Manner.IN_TURN, metadata),
    Api(ApiKey.OFFSET_COMMIT, 2, 10, Manner.DIRECT, offset_commit),
    Api(ApiKey.OFFSET_FETCH, 1, 10, Manner.IN_TURN, offset_fetch),
    Api(ApiKey.FIND_COORDINATOR, 0, 6, Manner.IN_TURN, find_coordinator),
    Api(ApiKey.JOIN_GROUP, 0, 9, Manner.DIRECT, join_group),
    Api(ApiKey.HEARTBEAT, 0, 4, Manner.DIRECT, heartbeat),
    Api(ApiKey.LEAVE_GROUP, 0, 5, Manner.DIRECT, leave_group),
    Api(ApiKey.SYNC_GROUP, 0, 5, Manner.DIRECT, sync_group),
    Api(ApiKey.DESCRIBE_GROUPS, 0, 6, Manner.IN_TURN, describe_groups),
    Api(ApiKey.LIST_GROUPS, 0, 5, Manner.IN_TURN, list_groups),
    Api(ApiKey.API_VERSIONS, 0, 4, Manner.AT_ONCE, api_versions),
    Api(ApiKey.CREATE_TOPICS, 2, 7, Manner.IN_TURN, create_topics),
    Api(ApiKey.DELETE_TOPICS, 1, 6, Manner.IN_TURN, delete_topics),
    Api(ApiKey.DELETE_RECORDS, 0, 2, Manner.IN_TURN, delete_records),
    Api(ApiKey.INIT_PRODUCER_ID, 0, 5, Manner.IN_TURN, init_producer_id),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, Manner.IN_TURN, offset_for_leader_epoch),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 3, Manner.IN_TURN, add_partitions_to_txn),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, Manner.IN_TURN, add_offsets_to_txn),
    Api(ApiKey.END_TXN, 0, 5, Manner.IN_TURN, end_txn),
    Api(ApiKey.WRITE_TXN_MARKERS, 1, 2, Manner.IN_TURN, write_txn_markers),
    Api(ApiKey.TXN_OFFSET_COMMIT, 0, 5, Manner.IN_TURN, txn_offset_commit),
    Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, Manner.IN_TURN, describe_configs),
    Api(ApiKey.ALTER_CONFIGS, 0, 2, Manner.IN_TURN, alter_configs),
    Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, Manner.IN_TURN, describe_log_dirs),
    Api(ApiKey.CREATE_PARTITIONS, 0, 3, Manner.IN_TURN, create_partitions),
    Api(ApiKey.ELECT_LEADERS, 0, 2, Manner.IN_TURN, elect_leaders),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, Manner.IN_TURN, incremental_alter_configs),
    Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, Manner.IN_TURN, alter_partition_reassignments),
    Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, Manner.IN_TURN, list_partition_reassignments),
    Api(ApiKey.DELETE_GROUPS, 0, 2, Manner.IN_TURN, delete_groups),
    Api(ApiKey.OFFSET_DELETE, 0, 0, Manner.IN_TURN, offset_delete),
    Api(ApiKey.DESCRIBE_QUORUM, 0, 2, Manner.IN_TURN, describe_quorum),
    Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, Manner.IN_TURN, describe_cluster),
    Api(ApiKey.UNREGISTER_BROKER, 0, 0, Manner.IN_TURN, unregister_broker),
    Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, Manner.IN_TURN, describe_producers),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, Manner.IN_TURN, describe_transactions),
    Api(ApiKey.LIST_TRANSACTIONS, 0, 2, Manner.IN_TURN, list_transactions),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, Manner.DIRECT, consumer_group_heartbeat),
    Api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, Manner.IN_TURN, consumer_group_describe),
    Api(ApiKey.SHARE_GROUP_HEARTBEAT, 1, 1, Manner.DIRECT, share_group_heartbeat),
    Api(ApiKey.SHARE_GROUP_DESCRIBE, 1, 1, Manner.IN_TURN, share_group_describe),
    Api(ApiKey.SHARE_FETCH, 1, 2, Manner.DIRECT, share_fetch),
    Api(ApiKey.SHARE_ACKNOWLEDGE, 1, 2, Manner.IN_TURN, share_acknowledge),
    Api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, Manner.IN_TURN, list_config_resources),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, Manner.IN_TURN, describe_topic_partitions),
    Api(ApiKey.ADD_RAFT_VOTER, 0, 1, Manner.IN_TURN, add_raft_voter),
    Api(ApiKey.REMOVE_RAFT_VOTER, 0, 0, Manner.IN_TURN, remove_raft_voter),
    Api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, 1, Manner.IN_TURN, describe_share_group_offsets),
    Api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, 0, Manner.IN_TURN, alter_share_group_offsets),
    Api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, 0, Manner.IN_TURN, delete_share_group_offsets),
)


class Apis:
    def __init__(self, node: "Node", table: tuple[Api, ...] = API_TABLE) -> None:
        self._node = node
        self._table = {int(api.key): api for api in table}
        self._counts = node.metrics.requests
        self._names = {int(api.key): api.key.name for api in table}
        self._counts.update(dict.fromkeys(self._names.values(), 0))
        self.advertised = [
            (api.key, api.advertised_min if api.advertised_min >= 0 else api.version_min, api.version_max) for api in sorted(table)
        ]

    def handle(self, connection: "Connection", frame: memoryview) -> None:
        if produce_single(self._node, connection, frame):
            self._counts[ApiKey.PRODUCE.name] += 1
            return
        header = read_request_header(frame)
        api = self._table.get(header.api_key)
        if api is None or not api.version_min <= header.api_version <= api.version_max:
            self._decline(connection, header.api_key, header.api_version, header.correlation_id)
            return
        self._counts[self._names[header.api_key]] += 1
        call = Call(connection, header.api_key, header.api_version, header.correlation_id, header.client_id, frame, header.body_at)
        if api.manner is Manner.DIRECT:
            api.handler(self._node, call)
        elif api.manner is Manner.AT_ONCE:
            connection.new_reply().send(api.handler(self._node, call))
        else:
            connection.requests_in_turn += 1
            self._node.spawn(self._in_turn(api, call._replace(frame=bytes(frame)), connection.new_reply()))

    async def _in_turn(self, api: Api, call: Call, reply: "Reply") -> None:
        connection = call.connection
        try:
            answer = await api.handler(self._node, call)
            pieces = answer if isinstance(answer, list) else _written(call, answer)
            reply.send(pieces, sum(map(len, pieces)))
        except MalformedInput as malformed:
            self._node.client_erred(connection, malformed)
        except Exception:
            connection.close()  # The client retries elsewhere or later; the node's top reports what went wrong.
            raise
        finally:
            connection.requests_in_turn -= 1
            connection.go_on()

    def _decline(self, connection: "Connection", api_key: int, version: int, correlation_id: int) -> None:
        if api_key != ApiKey.API_VERSIONS:
            raise MalformedInput(f"API {api_key} version {version} is not served here")
        connection.new_reply().send([write_unsupported_api_versions_response(correlation_id, self.advertised)])


def _written(call: Call, answer: Any) -> list[Buffer]:
    return [schemas.write_response(call.api_key, call.version, call.correlation_id, answer)]
