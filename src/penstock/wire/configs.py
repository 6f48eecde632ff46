"""The numbers of Kafka's config APIs (KIP-133, 226, 339, 569): what has configs, where a value comes from, how it is changed."""

from enum import IntEnum


class ResourceType(IntEnum):
    """What configs are about; together with a name."""

    TOPIC = 2
    BROKER = 4  # Without a name: every node.
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Source(IntEnum):
    """Where a value comes from. Clients refuse other numbers."""

    TOPIC = 1
    THIS_NODE = 2  # Told while it ran, as is
    EVERY_NODE = 3  # what all nodes were told.
    STARTED_WITH = 4
    DEFAULT = 5
    GROUP = 8


class ConfigType(IntEnum):
    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Operation(IntEnum):
    """How a value is changed; the latter two only for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3
