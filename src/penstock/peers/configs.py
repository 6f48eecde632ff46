"""Settings of topics and nodes: described and changed.

A node speaks for itself only, so its own settings are asked of that very node; what every node is told is the controller's to keep.
Changes are idempotent: a try whose answer was lost is simply made again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.errors import ErrorCode
from penstock.peers.connection import Connection
from penstock.peers.failures import BadAnswer, PeerFailure, Refused, check_code
from penstock.peers.patience import Deadline
from penstock.peers.routing import Router
from penstock.wire.api_keys import ApiKey
from penstock.wire.configs import Operation, ResourceType, Source


class Configured(NamedTuple):
    """What settings are about."""

    kind: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> "Configured":
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def node(cls, node_id: int) -> "Configured":
        return cls(ResourceType.BROKER, str(node_id))

    @classmethod
    def every_node(cls) -> "Configured":
        return cls(ResourceType.BROKER, "")

    def __str__(self) -> str:
        if self.kind is ResourceType.TOPIC:
            return f"topic {self.name!r}"
        return f"node {self.name}" if self.name else "every node"


@dataclass(frozen=True, slots=True)
class SettingView:
    name: str
    value: str | None  # None where the node keeps it to itself.
    source: int  # One of Source, where the node is a Penstock.
    is_read_only: bool

    @property
    def is_default(self) -> bool:
        return self.source == Source.DEFAULT


async def describe(router: Router, configured: Configured, deadline: Deadline) -> list[SettingView]:
    wish = {"resource_type": configured.kind, "resource_name": configured.name, "configuration_keys": None}
    body = {"resources": [wish], "include_synonyms": False, "include_documentation": False}
    what = f"describe the settings of {configured}"
    answer = await _ask(router, configured, ApiKey.DESCRIBE_CONFIGS, body, what=what, deadline=deadline)
    return [SettingView(row.name, row.value, int(row.config_source), bool(row.read_only)) for row in answer.configs]


async def change(
    router: Router, configured: Configured, changes: Mapping[str, str | None], deadline: Deadline, *, is_trial: bool
) -> None:
    rows = [
        {"name": name, "value": value, "config_operation": Operation.DELETE if value is None else Operation.SET}
        for name, value in changes.items()
    ]
    wish = {"resource_type": configured.kind, "resource_name": configured.name, "configs": rows}
    body = {"resources": [wish], "validate_only": is_trial}
    what = f"change the settings of {configured}"
    await _ask(router, configured, ApiKey.INCREMENTAL_ALTER_CONFIGS, body, what=what, deadline=deadline)


async def _ask(router: Router, configured: Configured, api: ApiKey, body: Mapping[str, Any], *, what: str, deadline: Deadline) -> Any:
    """The row of the answer that tells of this topic or node."""

    async def attempt() -> Any:
        try:
            connection = await _speaker_for(router, configured, deadline)
            answer = await connection.call(api, body, timeout_s=router.timeouts(deadline).whole_s)
            rows = answer.results if api == ApiKey.DESCRIBE_CONFIGS else answer.responses
            if not rows:
                raise BadAnswer(f"{connection.address} left {configured} out of its answer")
            check_code(rows[0].error_code, what, rows[0].error_message)
            return rows[0]
        except PeerFailure as failure:
            router.doubt_controller()
            if isinstance(failure, Refused) and failure.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                failure.is_retriable = False  # The controller knows them all.
            raise

    return await router.retry(what, deadline, attempt)


async def _speaker_for(router: Router, configured: Configured, deadline: Deadline) -> Connection:
    controller = await router.controller(deadline)
    if configured.kind is ResourceType.BROKER and configured.name:
        return await router.switchboard.to_node(int(configured.name), deadline)
    return controller
