"""What an operator told topics and nodes of a simulated cluster, in order, and what each setting may be by that."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.wire.configs import ResourceType

_MIN_IN_SYNC = "min.insync.replicas"

Values = Mapping[str, str | None]  # None: as it is by default.
Resource = tuple[ResourceType, str]


@dataclass(slots=True, eq=False)
class Change:
    """What a resource was told, in one request."""

    resource: Resource
    values: Values
    began: float
    ended: float | None = None  # When it was acknowledged.


class ToldSettings:
    """All that was told in a world, in order."""

    def __init__(self) -> None:
        self.changes: list[Change] = []

    def possible(self, resource: Resource, name: str, first: str | None) -> list[str | None]:
        """What the setting may be now: the last value that was acknowledged, or any whose fate is unknown."""
        held, unknown = first, dict[str | None, None]()
        for change in self.changes:
            if change.resource == resource and name in change.values:
                if change.ended is None:
                    unknown[change.values[name]] = None
                else:
                    held = change.values[name]
        return list(dict.fromkeys((held, *unknown)))

    def names(self, resource: Resource) -> list[str]:
        return list(dict.fromkeys(name for change in self.changes if change.resource == resource for name in change.values))

    def resources(self) -> list[Resource]:
        return list(dict.fromkeys(change.resource for change in self.changes))

    def least_in_sync(self, topic: str, since: float) -> list[int]:
        """All that was under way after that moment."""
        return [
            int(change.values[_MIN_IN_SYNC] or 1)
            for change in self.changes
            if change.resource == (ResourceType.TOPIC, topic) and _MIN_IN_SYNC in change.values
            if change.ended is None or change.ended >= since
        ]  # fmt: skip
