"""ApiVersions, versions 0 to 4 (KIP-511, KIP-584). What it lists is computed from the API table.

Produce is listed from version 0 although 0 to 2 are refused: librdkafka before 2025 stops compressing otherwise (KAFKA-18659).
A version that we don't know is answered in version 0 with UNSUPPORTED_VERSION (apis.py), and the client asks again.
Two features are announced: the second version of transactions (KIP-890), which clients take up when they see it, and share groups
(KIP-932), of which tools want to know.
"""

from typing import TYPE_CHECKING

from penstock.broker.calls import Call
from penstock.vocabulary import Buffer
from penstock.wire import schemas
from penstock.wire.api_versions import write_api_versions_response

if TYPE_CHECKING:
    from penstock.broker.node import Node


SUPPORTED = (("transaction.version", 0, 2), ("share.version", 0, 1))
FINALIZED = (("transaction.version", 2, 2), ("share.version", 1, 1))


def api_versions(node: "Node", call: Call) -> list[Buffer]:
    schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    return [
        write_api_versions_response(
            call.version, call.correlation_id, node.apis.advertised,
            supported_features=SUPPORTED, finalized_features=FINALIZED, finalized_features_epoch=0,
        )
    ]  # fmt: skip
