"""The library behind this room: confluent-kafka, which is librdkafka. The one place that says so when it is missing.

Not here: what is done with it.
"""

import logging
import os
from collections.abc import Mapping
from typing import Any

try:
    import confluent_kafka
except ImportError as missing:
    raise ImportError("penstock.client needs confluent-kafka\n  pip install 'penstock[client]'") from missing

BOOTSTRAP_VARIABLE = "PENSTOCK_BOOTSTRAP"  # The one that the commands listen to as well.
BOOTSTRAP_DEFAULT = "127.0.0.1:9092"
CLIENT_ID = "penstock-python"

log = logging.getLogger("penstock.client")  # What librdkafka has to say goes here too.


def common_settings(bootstrap: str | None, ours: Mapping[str, object], theirs: Mapping[str, object] | None) -> dict[str, Any]:
    """librdkafka's settings: ours, then whatever the caller wants to be different."""
    where = bootstrap or os.environ.get(BOOTSTRAP_VARIABLE) or BOOTSTRAP_DEFAULT
    return {"bootstrap.servers": where, "client.id": CLIENT_ID, "logger": log, **ours, **(theirs or {})}


__all__ = ["BOOTSTRAP_DEFAULT", "BOOTSTRAP_VARIABLE", "common_settings", "confluent_kafka", "log"]
