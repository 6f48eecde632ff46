"""What share groups are bound by, as the node's settings and the group's own configs (KIP-1240, resource type GROUP) have it.

A group's config holds against the node's; a changed one takes effect with the next heartbeat.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.settings import NodeSettings

GroupConfigs = Callable[[str], Mapping[str, str]]  # Those that are set for a group of this name.

SESSION_TIMEOUT = "share.session.timeout.ms"
HEARTBEAT_INTERVAL = "share.heartbeat.interval.ms"


@dataclass(frozen=True, slots=True)
class ShareSettings:
    session_timeout_ms: int
    heartbeat_interval_ms: int
    group_size_max: int

    @classmethod
    def of(cls, node: NodeSettings) -> "ShareSettings":
        return cls(node.group_share_session_timeout_ms, node.group_share_heartbeat_interval_ms, node.group_share_max_size)

    def within(self, configs: Mapping[str, str]) -> "ShareSettings":
        """As they hold for a group with these configs."""
        if not configs:
            return self
        return ShareSettings(
            int(configs.get(SESSION_TIMEOUT, self.session_timeout_ms)),
            int(configs.get(HEARTBEAT_INTERVAL, self.heartbeat_interval_ms)),
            self.group_size_max,
        )
