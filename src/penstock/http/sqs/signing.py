"""Signature version 4: does the sender know the secret of its key?

A client signs the method, path, query, some headers and the digest of the body, with a key derived from its secret, the day, the region and
the service; here the same is done with the secret that the node knows. Which headers count is the client's word (`SignedHeaders`), but
`host` and the target must be among them, or a stranger could turn one request into another.
Region and service are taken as the client has them. A node without keys takes every request, signed or not.
Not here: what a key's owner may do. All keys may do everything.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import parse_qsl, quote

from penstock.http.sqs.errors import (
    ACCESS_DENIED,
    INCOMPLETE_SIGNATURE,
    MISSING_TOKEN,
    UNKNOWN_CLIENT,
    WRONG_SIGNATURE,
    SqsError,
)

SKEW_SECONDS_MAX = 300  # As AWS: a request of earlier than five minutes ago may be a recorded one.

_ALGORITHM = "AWS4-HMAC-SHA256"
_FIELD = re.compile(r"(Credential|SignedHeaders|Signature)=([^,\s]+)")
_SCOPE_PARTS = 5
_NEEDED = ("host", "x-amz-target")
_SPACES = re.compile(r" +")
_DATE_LENGTH = len("20260101T000000Z")
_DATES_MAX = 64


class Signed(NamedTuple):
    """What the header `Authorization` says."""

    key_id: str
    day: str
    region: str
    service: str
    headers: tuple[str, ...]
    signature: str

    @property
    def scope(self) -> str:
        return f"{self.day}/{self.region}/{self.service}/aws4_request"


class Keys:
    """Key ids and their secrets. Empty: everybody is let in."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._secrets = dict(secrets)
        self._signing_keys: dict[tuple[str, str], bytes] = {}  # Of the last day: deriving one takes four digests.

    def __bool__(self) -> bool:
        return bool(self._secrets)

    def __repr__(self) -> str:
        return f"Keys({len(self._secrets)} of them)"

    def verify(self, path: str, query: str, headers: Mapping[str, str], body: bytes, wall_ms: int) -> str:
        """The id of the key by which the request is signed. Raises SqsError. `headers` have lower-case names; a repeated one is joined."""
        signed, secret, moment = self.look_at_head(headers, wall_ms)
        request = _canonical(path, query, headers, signed, body)
        to_sign = "\n".join((_ALGORITHM, moment, signed.scope, hashlib.sha256(request.encode()).hexdigest()))
        expected = hmac.digest(self._signing_key(signed, secret), to_sign.encode(), "sha256").hex()
        if not hmac.compare_digest(expected.encode(), signed.signature.encode()):
            raise SqsError(
                WRONG_SIGNATURE,
                "The request signature we calculated does not match the signature you provided. Check your secret access key, and that "
                "nothing between changes the Host header, the path or the body.",
            )
        return signed.key_id

    def look_at_head(self, headers: Mapping[str, str], wall_ms: int) -> tuple[Signed, str, str]:
        """What a request says of its signature, the secret and the moment. Raises SqsError where no body could make that a good one."""
        signed = read_authorization(headers)
        secret = self._secrets.get(signed.key_id)
        moment = _check_time(headers, signed, wall_ms)
        if secret is None:
            raise SqsError(UNKNOWN_CLIENT, "The security token included in the request is invalid: this node does not know the access key.")
        return signed, secret, moment

    def _signing_key(self, signed: Signed, secret: str) -> bytes:
        known = self._signing_keys.get((signed.key_id, signed.scope))
        if known is None:
            if len(self._signing_keys) >= 2 * len(self._secrets) + 16:  # Scopes are the clients' words.
                self._signing_keys.clear()
            known = f"AWS4{secret}".encode()
            for part in (signed.day, signed.region, signed.service, "aws4_request"):
                known = hmac.digest(known, part.encode(), "sha256")
            self._signing_keys[(signed.key_id, signed.scope)] = known
        return known


def read_authorization(headers: Mapping[str, str]) -> Signed:
    text = headers.get("authorization")
    if text is None:
        raise SqsError(MISSING_TOKEN, "Request is missing Authentication Token: this node asks for signed requests (signature version 4).")
    fields = dict(_FIELD.findall(text))
    credential = fields.get("Credential", "").split("/")
    if not text.startswith(_ALGORITHM) or len(fields) != 3 or len(credential) < _SCOPE_PARTS or credential[-1] != "aws4_request":
        raise SqsError(INCOMPLETE_SIGNATURE, f"The header Authorization is not a signature of version 4: {_ALGORITHM} with Credential, "
                       "SignedHeaders and Signature.")  # fmt: skip
    day, region, service = credential[-4:-1]
    names = tuple(fields["SignedHeaders"].split(";"))
    unsigned = [name for name in _NEEDED if name not in names]
    if unsigned:
        raise SqsError(ACCESS_DENIED, f"The request must be signed with these headers: {', '.join(unsigned)}")
    return Signed("/".join(credential[:-4]), day, region, service, names, fields["Signature"])


def _check_time(headers: Mapping[str, str], signed: Signed, wall_ms: int) -> str:
    """The moment of signing, as it was written."""
    text = headers.get("x-amz-date", "")
    try:
        moment_s = _seconds(text) if len(text) == _DATE_LENGTH else _seconds.__wrapped__(text)
    except ValueError:
        raise SqsError(INCOMPLETE_SIGNATURE, "The header X-Amz-Date must say when the request was signed: YYYYMMDDTHHMMSSZ.") from None
    if "x-amz-date" not in signed.headers or signed.day != text[:8]:
        raise SqsError(INCOMPLETE_SIGNATURE, "The header X-Amz-Date must be signed, and its day be that of the credential.")
    if abs(moment_s - wall_ms / 1000) > SKEW_SECONDS_MAX:
        now = datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
        raise SqsError(WRONG_SIGNATURE, f"Signature not yet current or expired: it is of {text}, the node's clock says {now}, "
                       f"and they may be {SKEW_SECONDS_MAX} seconds apart.")  # fmt: skip
    return text


@lru_cache(_DATES_MAX)
def _seconds(text: str) -> float:
    """Since 1970. All requests of a second say the same."""
    return datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _canonical(path: str, query: str, headers: Mapping[str, str], signed: Signed, body: bytes) -> str:
    lines = "".join([f"{name}:{_plain(headers.get(name, ''))}\n" for name in signed.headers])
    where = "/" if path == "/" else quote(path, safe="/-_.~")
    return "\n".join(
        ("POST", where, _sorted(query) if query else "", lines, ";".join(signed.headers), hashlib.sha256(body).hexdigest())
    )  # fmt: skip


def _plain(value: str) -> str:
    """Of a header: without spaces around it, and with single ones in it."""
    value = value.strip()
    return _SPACES.sub(" ", value) if "  " in value else value


def _sorted(query: str) -> str:
    pairs = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in parse_qsl(query, keep_blank_values=True))
    return "&".join(f"{name}={value}" for name, value in pairs)
