"""What holds for a share group now: what it was told, within what the node was told. Asked at every heartbeat and every decision."""

from typing import TYPE_CHECKING

from penstock.broker.queues.policies import share_policy
from penstock.queues.policy import Policy
from penstock.settings import GroupConfig, NodeSettings

if TYPE_CHECKING:
    from penstock.broker.node import Node

GROUPS_MAX = 1_000  # Whose configs stand ready.


class GroupConfigs:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._settings: NodeSettings | None = None  # Of which all that is remembered was made.
        self._ready: dict[str, tuple[dict[str, str] | None, GroupConfig, Policy]] = {}

    def config_of(self, group: str) -> GroupConfig:
        return self._look(group)[1]

    def policy_of(self, group: str) -> Policy:
        return self._look(group)[2]

    def _look(self, group: str) -> tuple[dict[str, str] | None, GroupConfig, Policy]:
        """What a group was told is replaced as a whole, never changed: whether it is the same is seen without a look inside."""
        told = self._node.image.group_configs.get(group)
        known = self._ready.get(group)
        if known is None or known[0] is not told or self._settings is not self._node.settings:
            known = self._learn(group, told)
        return known

    def _learn(self, group: str, told: dict[str, str] | None) -> tuple[dict[str, str] | None, GroupConfig, Policy]:
        if self._settings is not self._node.settings or len(self._ready) > GROUPS_MAX:
            self._settings = self._node.settings
            self._ready.clear()
        config = GroupConfig.of(self._node.settings, told or {})
        known = self._ready[group] = (told, config, share_policy(config))
        return known
