"""Signatures as AWS has them (Signature Version 4), for nodes that want to know who asks.

The signer's side only, and of one kind of request: a POST to `/` with a body that is known in full.
"""

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime

ALGORITHM = "AWS4-HMAC-SHA256"
SERVICE = "sqs"
REGION_DEFAULT = "us-east-1"


class Signer:
    def __init__(self, access_key: str, secret_key: str, region: str = REGION_DEFAULT) -> None:
        self._access_key = access_key
        self._secret_key = secret_key
        self._region = region

    def headers(self, host: str, others: Mapping[str, str], body: bytes, now: datetime | None = None) -> dict[str, str]:
        """What to send beside `others`, all of which are signed too."""
        time = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
        signed = {name.lower(): value.strip() for name, value in others.items()} | {"host": host, "x-amz-date": time}
        names = ";".join(sorted(signed))
        lines = [f"{name}:{signed[name]}" for name in sorted(signed)]
        request = "\n".join(["POST", "/", "", *lines, "", names, hashlib.sha256(body).hexdigest()])
        scope = f"{time[:8]}/{self._region}/{SERVICE}/aws4_request"
        to_sign = "\n".join([ALGORITHM, time, scope, hashlib.sha256(request.encode()).hexdigest()])
        signature = hmac.new(self._key(time[:8]), to_sign.encode(), hashlib.sha256).hexdigest()
        credential = f"{ALGORITHM} Credential={self._access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
        return {"X-Amz-Date": time, "Authorization": credential}

    def _key(self, day: str) -> bytes:
        key = f"AWS4{self._secret_key}".encode()
        for step in (day, self._region, SERVICE, "aws4_request"):
            key = hmac.new(key, step.encode(), hashlib.sha256).digest()
        return key
