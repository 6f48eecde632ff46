"""What holds for one topic, and how its overrides are read."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

from penstock.errors import ErrorCode, Refusal
from penstock.settings.logs import LogSettings
from penstock.settings.queues import QueueSettings
from penstock.settings.setting import Value, as_text, attributes_by_name, settings_by_name

# Kafka's other topic settings. Tools set them without asking; they are taken and kept so that those tools work, and change nothing here.
KAFKA_NAMES_WITHOUT_EFFECT = frozenset({
    "file.delete.delay.ms", "follower.replication.throttled.replicas", "leader.replication.throttled.replicas",
    "message.downconversion.enable", "message.format.version", "preallocate", "segment.index.bytes", "segment.jitter.ms",
})  # fmt: skip


@dataclass(frozen=True)
class TopicConfig(QueueSettings, LogSettings):
    """What holds for one topic: the defaults, then the node's `[topic]` defaults, then the topic's own overrides."""

    @property
    def is_compacted(self) -> bool:
        """A queue never is, whatever its node's default says: every message is work, whatever its key."""
        return "compact" in self.cleanup_policy and not self.queue_enabled

    def as_texts(self) -> dict[str, str]:
        """Every setting by name, as it would be written."""
        return {name: as_text(getattr(self, attribute)) for name, attribute in _ATTRIBUTES.items()}

    def with_known(self, overrides: Mapping[str, str]) -> "TopicConfig":
        """The same with what another version of Penstock may have taken: what this one does not know is passed over."""
        with suppress(Refusal):
            return self.with_overrides(overrides)
        config = self
        for name, text in overrides.items():
            with suppress(Refusal):
                config = config.with_overrides({name: text})
        return config

    def with_overrides(self, overrides: Mapping[str, str]) -> "TopicConfig":
        """This config with the named values in place of its own; a bad name or value is refused and nothing is changed."""
        changes: dict[str, Value] = {}
        for name, text in overrides.items():
            if name in KAFKA_NAMES_WITHOUT_EFFECT:
                continue
            attribute = _ATTRIBUTES.get(name)
            if attribute is None:
                raise Refusal(ErrorCode.INVALID_CONFIG, f"there is no topic setting {name!r}")
            try:
                changes[attribute] = TOPIC_SETTINGS[name].parse(text)
            except ValueError as wrong:
                raise Refusal(ErrorCode.INVALID_CONFIG, str(wrong)) from None
        return replace(self, **cast(dict[str, Any], changes))


_ATTRIBUTES = attributes_by_name(TopicConfig)
TOPIC_SETTINGS = settings_by_name(TopicConfig)
